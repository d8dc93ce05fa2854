"""Says the process id as Windows has it, before a program of the tests begins."""

import os

print(os.getpid(), flush=True)
