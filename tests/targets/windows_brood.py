"""Has a child that sleeps, then one after another that works for a second; says the id of each. `few N`: only N that
work for a moment, then the CPU seconds of all of them."""

import json
import subprocess
import sys
import time

EARLY = "import sys\ndef early():\n    sys.stdin.read()\nearly()"
LATE = """import sys, time
def late():
    end = time.process_time() + float(sys.argv[1])
    while time.process_time() < end: sum(range(500))
late()
print(time.process_time(), flush=True)"""


def start(*arguments):
    return subprocess.Popen([sys.executable, "-S", "-c", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def few(count):
    used = 0.0
    for _ in range(count):
        child = start(LATE, "0.3")
        used += float(child.communicate()[0])
    return [used, time.process_time()]


if sys.argv[1:2] == ["few"]:
    print(json.dumps(few(int(sys.argv[2]))), flush=True)
else:
    early = start(EARLY)
    print(early.pid, flush=True)
    while True:
        late = start(LATE, "1.0")
        print(late.pid, flush=True)
        late.communicate()
