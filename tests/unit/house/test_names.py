"""One name per thing: who reads a class name need not ask which of them is meant."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"

FOREIGN = ("headrace/wire/messages/", "headrace/http/rest/forms/", "headrace/http/schemas/")
"""Kafka's names, those of the OpenAPI document and those of Confluent's registry: not ours to choose."""


def test_a_class_name_stands_for_one_class() -> None:
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for path in SOURCES.rglob("*.py"):
        file = path.relative_to(SOURCES).as_posix()
        if file.startswith(FOREIGN):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(file)
    shared = {name: files for name, files in homes.items() if len(files) > 1}
    assert shared == {}
