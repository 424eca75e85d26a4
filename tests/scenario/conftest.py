"""Scenario files: what goes in, four dashes, what comes out. `pytest tests/scenario --rewrite` writes what came out.

    # A comment says what this file is about.
    advance 3s
    ----
    a: session over

Everything between a blank line (or a comment) and `----` is input, one step per line; everything up to the next
blank line is the output of these steps. A rewritten file is reviewed like code: the diff is the change of behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

RULE = "----"

Execute = Callable[[str], list[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write the actual output into the scenario files")


class Block(NamedTuple):
    """Comment and blank lines before the input, the input, and the output that is expected."""

    preamble: list[str]
    steps: list[str]
    expected: list[str]


def blocks(text: str) -> Iterator[Block]:
    preamble: list[str] = []
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        line = lines[position]
        if not line.strip() or line.startswith("#"):
            preamble.append(line)
            position += 1
            continue
        rule = lines.index(RULE, position)
        end = rule + 1
        while end < len(lines) and lines[end].strip():
            end += 1
        yield Block(preamble, lines[position:rule], lines[rule + 1 : end])
        preamble, position = [], end
    if preamble:
        yield Block(preamble, [], [])


@pytest.fixture
def scenario(request: pytest.FixtureRequest) -> Callable[[Path, Execute], None]:
    rewrite = bool(request.config.getoption("--rewrite", default=False))

    def check(path: Path, execute: Execute) -> None:
        written: list[str] = []
        differences: list[str] = []
        for preamble, steps, expected in blocks(path.read_text()):
            actual = [line for step in steps for line in execute(step)] or (["ok"] if steps else [])
            written += preamble
            if steps:
                written += [*steps, RULE, *actual]
            if actual != expected:
                differences += [
                    *(f"  {step}" for step in steps),
                    *(f"- {e}" for e in expected),
                    *(f"+ {a}" for a in actual),
                ]
        if rewrite:
            path.write_text("\n".join(written) + "\n")
        else:
            assert not differences, f"{path.name}:\n" + "\n".join(differences)

    return check
