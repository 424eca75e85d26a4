"""The commands that a page of the manual shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Block(NamedTuple):
    is_python: bool
    steps: list[str]
    """Commands one by one, or one program."""


def blocks(page: Path) -> Iterator[Block]:
    """```console shows commands behind `$ ` and what they print, ```sh commands alone, ```python one program."""
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.S | re.M):
        if language == "console":
            yield Block(False, [line[2:] for line in body.splitlines() if line.startswith("$ ")])
        elif language == "sh":
            yield Block(False, re.sub(r"\\\n\s*", "", body).strip().splitlines())
        elif language == "python":
            yield Block(True, [body])
