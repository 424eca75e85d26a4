"""The tree of commands: what every leaf has, what help says, and the schemas that scripts rely on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from headrace.cli.leaf import Leaf
from headrace.cli.main import main
from headrace.cli.output import Shape
from headrace.cli.parameters import Duration, Number
from headrace.core.moments import show_moments

GOLDEN = Path(__file__).parent / "golden"
DOCS = Path(__file__).parents[3] / "docs"


def leaves(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Leaf]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            assert isinstance(command, Leaf), f"{name} prints no rows"
            yield " ".join((*path, name)), command


LEAVES = dict(leaves())


def json_schema(leaf: Leaf) -> dict[str, Any]:
    """Of what `--json` prints: a document with items, the thing itself, or a line of a stream."""
    schema = msgspec.json.schema(leaf.row)
    show_moments(schema["$defs"][leaf.row.__name__])
    return {"schema": leaf.row.SCHEMA, "shape": leaf.shape.value, "row": schema}


@pytest.mark.parametrize("path", LEAVES)
def test_the_json_of_every_leaf_matches_its_golden_schema(path: str) -> None:
    """A change here breaks somebody's script: rename or remove a field only with a new schema version.

    HEADRACE_REWRITE_GOLDEN=1 writes the files anew.
    """
    found = json.dumps(json_schema(LEAVES[path]), indent=2, sort_keys=True) + "\n"
    file = GOLDEN / f"{path.replace(' ', '.')}.json"
    if os.environ.get("HEADRACE_REWRITE_GOLDEN"):
        file.write_text(found)
    assert file.read_text() == found


@pytest.mark.parametrize("path", LEAVES)
def test_every_leaf_has_json_and_says_what_it_does(path: str) -> None:
    leaf = LEAVES[path]
    options = {name for param in leaf.params for name in param.opts}
    assert {"--json", "--output", "--quiet", "--verbose"} <= options
    assert re.fullmatch(r"headrace\.[a-z.-]+/v[1-9]", leaf.row.SCHEMA)
    assert leaf.help and leaf.help.split("\n")[0].rstrip().endswith((".", ":", "stdin."))
    if leaf.shape is not Shape.STREAM:
        assert leaf.row.NAME in leaf.row.__struct_fields__


def test_destructive_verbs_can_be_confirmed_and_rehearsed() -> None:
    for path in ("topic delete", "group delete", "group seek"):
        options = {name for param in LEAVES[path].params for name in param.opts}
        assert {"--yes", "--dry-run"} <= options, path


def test_help_of_a_verb_begins_with_the_line_its_group_shows() -> None:
    """The table in the package is what `--help` shows without importing; it must not drift from the command."""
    for path, leaf in LEAVES.items():
        noun, _, verb = path.rpartition(" ")
        table = main._table if not noun else sys.modules[f"headrace.cli.{noun.replace(' ', '.')}"].VERBS
        said = " ".join((leaf.help or "").split())
        shown = table[verb].rstrip(".")
        assert said.startswith(shown), (path, shown, said[:80])


def test_version_and_help_import_nothing_heavy() -> None:
    """The start-up budget: what is not needed for `--version` is not imported for it."""
    code = (
        "import sys\n"
        "from headrace.cli.main import main\n"
        "try: main(['--version'], prog_name='headrace')\n"
        "except SystemExit: pass\n"
        "try: main(['--help'], prog_name='headrace')\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'msgspec', 'rich', 'confluent_kafka', 'headrace.node', 'headrace.broker', 'json'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "headrace 0." in ran.stdout
    assert "HEAVY []" in ran.stdout


def test_serve_does_not_import_what_only_other_commands_need() -> None:
    code = "import sys, headrace.cli.serve; print(sorted({'rich', 'confluent_kafka'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


RULE = re.compile(r"\b(?:[RSXAKTWCPF][0-9]{1,3}|KIP-[0-9]+ [0-9])\b")
"""Numbers of our own lists of rules and findings; KIPs are the trade's."""


def test_f55_help_does_not_speak_in_numbers_of_rules() -> None:
    """F55: what a person reads says what it means. Every command, every option, every setting and config."""
    texts = {f"headrace {name}": command.get_help(click.Context(command)) for name, command in LEAVES.items()}
    texts |= {page.name: page.read_text() for page in (DOCS / "cli.md", DOCS / "config.md")}
    found = [f"{where}: {match[0]}" for where, text in texts.items() for match in RULE.finditer(text)]
    assert not found


@pytest.mark.parametrize("path", LEAVES)
def test_every_number_has_an_end(path: str) -> None:
    """What has none is handed on to libraries that speak to programmers: `topic create -p 100000000` was an internal error."""
    for param in LEAVES[path].params:
        kind = param.type
        if getattr(param, "count", False):
            continue  # -vv
        assert not isinstance(kind, click.types.IntParamType) or isinstance(kind, Number), param.name
        if isinstance(kind, (Number, Duration)):
            with pytest.raises(click.BadParameter, match="is more than"):
                kind.convert("9" * 30, param, None)
