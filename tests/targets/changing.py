"""Containers that change as fast as they can, until the input ends; then prints what was computed in the first ROUNDS
rounds. The main thread has the same containers among its variables.
"""

import sys
import threading

ROUNDS = 2000


def change(numbers, names, table, members, rounds_left):
    checksum = 0
    rounds = 0
    while rounds < ROUNDS or rounds_left:
        numbers.extend(range(rounds % 50))
        del numbers[: rounds % 40]
        if len(numbers) > 3000:
            numbers.clear()
        name = f"name {rounds}"
        names.insert(0, name)
        if len(names) > 20:
            del names[5:]
        table[name] = (rounds, [name], {"round": rounds})
        if len(table) > 9:
            table.clear()
        members.add(rounds)
        members.discard(rounds - 30)
        text = name * (rounds % 5)
        pair = (float(rounds), text)
        number = rounds**5
        if rounds < ROUNDS:
            checksum = (checksum * 31 + len(numbers) + len(table) + len(text) + int(pair[0]) + number) % 1000003
        rounds += 1
    print(checksum, flush=True)


def main():
    numbers, names, table, members, rounds_left = [], [], {}, set(), [True]
    thread = threading.Thread(target=change, args=(numbers, names, table, members, rounds_left))
    thread.start()
    print("ready", flush=True)
    sys.stdin.read()
    rounds_left.clear()
    thread.join()


main()
