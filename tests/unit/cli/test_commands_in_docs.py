"""F42: every command and flag that a page names is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from headrace.cli.main import main as root

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = re.compile(r"(?:^|[`$(|;]\s*|&& )headrace ([a-z].*?)(?:`|$|\s#|\s\|)", re.M)


def complaint(line: str) -> str | None:
    try:
        words = shlex.split(line.replace("\\", " ").replace("…", ""))
    except ValueError:
        words = line.split()
    command: click.Command = root
    ctx = click.Context(root, info_name="headrace")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        names = words[0].split("|")
        for name in names:
            if command.get_command(ctx, name) is None:
                return f"there is no {ctx.command_path} {name}"
        found = command.get_command(ctx, names[0])
        assert found is not None
        command, words = found, words[1:]
        ctx = click.Context(command, info_name=names[0], parent=ctx)
    flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)} | {
        "--help"
    }
    for word in words:
        flag = word.partition("=")[0]
        if re.fullmatch(r"--[a-z][a-z-]+", flag) and flag not in flags:
            return f"{ctx.command_path} has no {flag}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_f42_every_command_that_is_named_is_there(page: Path) -> None:
    text = page.read_text().replace("\\\n", " ")
    wrong = [f"headrace {line}: {said}" for line in SHOWN.findall(text) if (said := complaint(line))]
    assert not wrong, "\n".join(wrong)


def test_a_command_that_is_not_there_is_noticed() -> None:
    assert complaint("topic create orders --partitions 3") is None
    assert complaint("topic mend orders") == "there is no headrace topic mend"
    assert complaint("topic create orders --colour red") == "headrace topic create has no --colour"
