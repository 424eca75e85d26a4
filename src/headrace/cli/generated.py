"""Command: files and programs that `generate` writes: to stdout, to be piped where they belong."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.invocation import Invocation
from headrace.cli.output import Row


class GeneratedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.generate/v1"
    name: str
    """What the file is usually called."""
    text: str


def show(run: Invocation, name: str, text: str) -> None:
    run.output.one(GeneratedRow(name=name, text=text), lambda: text.rstrip("\n"))
