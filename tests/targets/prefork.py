"""A server that forks its workers beforehand, and its clients: prefork.py REQUESTS. Each answer takes some work; a
worker that dies is replaced, and at SIGTERM each ends by itself. Prints what became of it all, as JSON."""

import contextlib
import json
import os
import signal
import socket
import sys

WORKERS = 4


def handle(connection):
    number = int(connection.recv(100))
    value = 1
    for step in range(60_000):
        value = (value * 31 + step) & 0xFFFFF
    connection.sendall(b"%d" % (number * 2))


def work(listener):
    ending = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(True))
    signal.siginterrupt(signal.SIGTERM, True)
    listener.settimeout(0.05)
    while not ending:
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(None)
                handle(connection)
    os._exit(7)


def forked(listener):
    pid = os.fork()
    if not pid:
        work(listener)
    return pid


def main():
    requests = int(sys.argv[1])
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    workers = [forked(listener) for _ in range(WORKERS)]
    every, right = list(workers), 0
    for number in range(requests):
        if number == requests // 2:
            os.kill(workers[0], signal.SIGKILL)
            assert os.WTERMSIG(os.waitpid(workers[0], 0)[1]) == signal.SIGKILL
            workers[0] = forked(listener)
            every.append(workers[0])
        # Whoever was killed may have held one: it is asked again.
        for _ in range(3):
            with contextlib.suppress(OSError, ValueError), socket.create_connection(listener.getsockname()) as client:
                client.sendall(b"%d" % number)
                right += int(client.recv(100)) == number * 2
                break
    for pid in workers:
        os.kill(pid, signal.SIGTERM)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    print(json.dumps({"right": right, "workers": every, "statuses": statuses}))


main()
