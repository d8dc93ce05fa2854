"""What `run` must leave alone and must see: startup.py STATUS. Works in `early` at once; passes standard input on to
standard output; writes one line to standard error; ends with STATUS (negative: kills itself with that signal)."""

import os
import sys
import time


def early():
    value = 1
    end = time.process_time() + 0.3
    while time.process_time() < end:
        value = (value * 31 + 7) & 0xFFFFF


def main():
    early()
    sys.stdout.write(sys.stdin.read())
    sys.stdout.flush()
    sys.stderr.write("from the program\n")
    sys.stderr.flush()
    status = int(sys.argv[1])
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)


main()
