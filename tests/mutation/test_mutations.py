"""What `scripts/mutants` changes: every place is found once, and the text around it stays."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from mutations import compiles, mutations

SOURCE = b'''
LIMIT = 3

def f(a: int, b: int | None = None) -> int:
    """Text."""
    if a < 4 and b is not None:  # \xc3\xa4
        log.info("not a place %s", a + 1)
        raise ValueError(f"{a + 1}")
    total = 0
    while total >= a:
        total += 1
        g(total)
    return total - 1 if not b else b
'''


def test_each_place_is_found_and_changed_alone() -> None:
    found = {(m.line, m.kind): m.apply(SOURCE).decode().splitlines() for m in mutations("f.py", SOURCE)}
    lines = SOURCE.decode().splitlines()
    seen = {}
    for (line, kind), changed in found.items():
        assert [n for n, (old, new) in enumerate(zip(lines, changed, strict=True), 1) if old != new] == [line]
        seen[line, kind] = changed[line - 1].strip()
    assert seen == {
        (6, "condition"): "if (not (a < 4 and b is not None)):  # ä",
        (6, "boolean"): "if a < 4 or b is not None:  # ä",
        (6, "compare"): "if a < 4 and b is None:  # ä",
        (6, "constant"): "if a < 5 and b is not None:  # ä",
        (8, "raise removed"): "pass",
        (9, "constant"): "total = 1",
        (10, "loop skipped"): "while (False and (total >= a)):",
        (10, "compare"): "while total > a:",
        (11, "augmented"): "total -= 1",
        (11, "constant"): "total += 2",
        (12, "call removed"): "pass",
        (13, "return"): "return None",
        (13, "condition"): "return total - 1 if (not (not b)) else b",
        (13, "not removed"): "return total - 1 if b else b",
        (13, "arithmetic"): "return total + 1 if not b else b",
        (13, "constant"): "return total - 2 if not b else b",
    }


def test_what_is_drawn_compiles() -> None:
    assert all(compiles(m, SOURCE) for m in mutations("f.py", SOURCE))


def test_a_name_outlives_changes_elsewhere() -> None:
    moved = b"# one more line\n" + SOURCE
    assert [m.name for m in mutations("f.py", moved)] == [m.name for m in mutations("f.py", SOURCE)]
