"""What is shown of the variables of tests/targets/variables.py."""

from __future__ import annotations

MAX_ITEMS = 50
MAX_CHARACTERS = 256


def expected(name: str, text: str) -> str:
    """What is shown of a value whose repr() is `text`."""
    numbers = list(range(MAX_ITEMS))
    cut = {
        "deep_cut": "[[[[[[[…]]]]]]]",
        "list_cut": f"{str(numbers)[:-1]}, … {1000 - MAX_ITEMS} more]",
        "dict_cut": f"{str({number: str(number) for number in numbers})[:-1]}, … {1000 - MAX_ITEMS} more}}",
        "queue_cut": "{… 10 more}",
        "huge_cut": "<int of 5001 bits>",
        "negative_cut": "<negative int of 5001 bits>",
        "text_cut": f"{('ab' * MAX_CHARACTERS)[:MAX_CHARACTERS]!r}…",
        "data_cut": f"{bytes(MAX_CHARACTERS)!r}…",
        # Known by their name alone, which is enough to find the rest of them.
        "module_by_name": "<module 'json'>",
        "loud_own": "Loud([1, 2])",
    }
    return cut.get(name, text)
