"""A process with a child, a grandchild, a program of another kind and a zombie, which all wait.

Prints their pids as JSON; ends, and ends them, when its input does.
"""

import json
import os
import signal
import subprocess
import sys
import time


def grandchild_waits():
    time.sleep(1000)


def child_waits(pipe):
    pid = os.fork()
    if not pid:
        grandchild_waits()
    os.write(pipe, b"%d\n" % pid)
    time.sleep(1000)


def parent_waits():
    sys.stdin.read()


ours, theirs = os.pipe()
child = os.fork()
if not child:
    child_waits(theirs)
grandchild = int(os.read(ours, 20))
program = subprocess.Popen(["sleep", "1000"])
zombie = subprocess.Popen(["true"])
os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
pids = {"child": child, "grandchild": grandchild, "program": program.pid, "zombie": zombie.pid}
print(json.dumps(pids), flush=True)
parent_waits()
for pid in (grandchild, child, program.pid):
    os.kill(pid, signal.SIGKILL)
