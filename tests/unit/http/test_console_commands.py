"""The commands that the console shows beside what it does: the CLI knows each, and every flag of it. One had a flag of another verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headrace.cli.main import main

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "console" / "src").rglob("*.tsx"))


def shown(source: str) -> Iterator[str]:
    """Each template that begins with our name, with what stands in its ${…} as far as that is text."""
    for found in re.finditer(r"`headrace ", source):
        text, _ = _template(source, found.end() - len("headrace "))
        yield from text.replace("\\n", "\n").splitlines()


def _template(source: str, at: int) -> tuple[str, int]:
    text = ""
    while source[at] != "`":
        if source.startswith("${", at):
            inner, at = _expression(source, at + 2)
            text += inner
        else:
            text += source[at]
            at += 1
    return text, at + 1


def _expression(source: str, at: int) -> tuple[str, int]:
    """Templates inside it; a word where there are none."""
    if source.startswith("via", at):
        return "", source.index("}", at) + 1  # where the cluster is, which every verb takes
    found, depth = "", 1
    while depth:
        if source[at] == "`":
            inner, at = _template(source, at + 1)
            found += f" {inner} "
            continue
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        at += 1
    return found or "WORD", at


COMMANDS = [
    pytest.param(line, id=f"{path.stem}: {line[:60]}")
    for path in SOURCES
    for line in shown(path.read_text())
    if line.startswith("headrace ")
]


def test_there_are_some() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_console_is_one(line: str) -> None:
    assert ">" not in line, "init writes its file itself"
    command: click.Command = main
    words = line.split()[1:]
    while isinstance(command, click.Group):
        word = words.pop(0)
        if word == "WORD":
            return  # one of several verbs
        found = command.get_command(click.Context(command), word)
        assert found is not None, line
        command = found
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
    for flag in re.findall(r"(?<=\s)(--?[a-z][a-z-]*)", line):
        assert flag in flags, (flag, line)
