"""A tree of processes: a child by multiprocessing, one by subprocess, both busy; ids and CPU seconds of all as JSON."""

import json
import multiprocessing
import os
import subprocess
import sys
import time

SECONDS = 0.8


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(500))


def worker(queue):
    busy_worker()
    queue.put((os.getpid(), time.process_time()))


def busy_worker():
    burn(SECONDS)


def busy_parent():
    burn(SECONDS)


def busy_child():
    burn(SECONDS)
    print(json.dumps([os.getpid(), time.process_time()]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        busy_child()
        sys.exit(3)
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=worker, args=(queue,))
    process.start()
    child = subprocess.run([sys.executable, __file__, "child"], stdout=subprocess.PIPE, check=False)
    busy_parent()
    told = {"busy_worker": queue.get(), "busy_child": json.loads(child.stdout)}
    process.join()
    told["busy_parent"] = [os.getpid(), time.process_time()]
    print(json.dumps({"status": child.returncode, **told}), flush=True)
