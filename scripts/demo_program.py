"""What scripts/demo records: a program that reads orders, prices them and writes a report, over and over."""

import json
import sys
import time
from typing import Any

Order = dict[str, Any]


def parse(text: str) -> list[Order]:
    orders: list[Order] = json.loads(text)
    return [dict(order, note=order["note"].strip().title()) for order in orders]


def discount(quantity: int) -> float:
    rate = 0.0
    for step in range(quantity):
        rate += (0.9 - rate) * 0.002 / (1 + step % 7)
    return rate


def price(orders: list[Order]) -> float:
    total = 0.0
    for order in orders:
        total += order["quantity"] * order["price"] * (1 - discount(order["quantity"]))
    return total


class Report:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, orders: list[Order]) -> None:
        for order in sorted(orders, key=lambda order: order["note"]):
            self.lines.append(f"{order['id']:>8} {order['note']:<20} {order['price']:10.2f}")

    def render(self) -> str:
        text = "\n".join(self.lines)
        self.lines.clear()
        return text


def handle_batch(text: str) -> float:
    orders = parse(text)
    report = Report()
    report.add(orders)
    report.render()
    return price(orders)


def main() -> None:
    orders = [
        {"id": i, "quantity": 20 + i % 90, "price": i * 0.37, "note": f"  item {i * 7919 % 1000}"} for i in range(300)
    ]
    text = json.dumps(orders)
    end = time.monotonic() + float(sys.argv[1])
    print("ready", flush=True)
    while time.monotonic() < end:
        handle_batch(text)


if __name__ == "__main__":
    main()
