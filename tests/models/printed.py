"""What `--json` printed, held against the golden of the schema that it names: documents with items, single ones, lines of a stream."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

GOLDEN = Path(__file__).parents[1] / "unit" / "cli" / "golden"


@cache
def goldens() -> dict[str, tuple[set[str], Any]]:
    """Schema -> the shapes that it comes in (a queue is shown alone and in a list), and the row."""
    found: dict[str, tuple[set[str], Any]] = {}
    for file in GOLDEN.glob("*.json"):
        one = json.loads(file.read_text())
        shapes, row = found.setdefault(one["schema"], (set(), Draft202012Validator(one["row"])))
        shapes.add(one["shape"])
        assert row.schema == one["row"], f"{file.name}: one name for two things"
    return found


def as_promised(text: str) -> Any:
    """The document, if it is what was promised."""
    document = json.loads(text)
    shapes, row = goldens()[document["schema"]]
    if "items" in shapes and set(document) == {"schema", "items"}:
        rows = document["items"]
    else:
        assert shapes != {"items"}, document
        rows = [{name: value for name, value in document.items() if name != "schema"}]
    for one in rows:
        problems = [f"{problem.json_path}: {problem.message}" for problem in row.iter_errors(one)]
        assert not problems, (document["schema"], problems, one)
        unknown = set(one) - set(_fields(row.schema))
        assert not unknown, f"{document['schema']} has {unknown}, which nobody promised"
    return document


def _fields(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"]
    return found
