"""A shop of shirts, as the files of WebShop have it, for the tests that need a small one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def item(number: int, **changes: Any) -> dict[str, Any]:
    """A shirt as the original's files have it."""
    entry = {
        "asin": f"B{number:02d}",
        "name": f"Brand{number} Cotton Shirt",
        "full_description": "For every day.",
        "small_description": ["Comes folded", "Easy care"],
        "pricing": [10.0 + number],
        "customization_options": {
            "color": [{"value": "red"}, {"value": "blue"}],
            "size": [{"value": "40"}, {"value": "42"}],
        },
        "category": "fashion",
        "query": "shirts",
        "product_category": "Clothing › Shirts",
    }
    return {**entry, **changes}


NOTE = {
    "attributes": ["easy care", "slim fit"],
    "instruction": "Find me easy care, slim fit shirts",
    "instruction_attributes": ["easy care", "slim fit"],
}


def shop_of(folder: Path, entries: list[dict[str, Any]], notes: dict[str, Any]) -> str:
    (folder / "items_shuffle_1000.json").write_text(json.dumps(entries))
    (folder / "items_ins_v2_1000.json").write_text(json.dumps(notes))
    return str(folder)
