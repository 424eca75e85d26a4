from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import Result

from headrace.cli import completing
from headrace.cli.failure import Exit
from headrace.cli.leaf import Leaf
from headrace.cli.main import main

Run = Callable[..., Result]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == Exit.OK
    assert "_HEADRACE_COMPLETE" in result.stdout and "headrace" in result.stdout
    assert json.loads(run("completion", shell, "--json").stdout)["shell"] == shell


def leaves(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Leaf]]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        elif isinstance(command, Leaf):
            yield " ".join((*path, name)), command


LEAVES = dict(leaves())
NAMES = {
    "broker", "dead_letter", "destination", "group", "groups", "name", "names", "queue", "source", "topic", "topics", "user",
    "ids", "task", "delivery", "message_id", "operation", "operations", "context", "kind", "shell",
}  # fmt: skip


OWN_CHOICE = {
    ("queue send", "group"),
    ("cert issue", "user"),
    ("context add", "user"),
    ("generate systemd", "user"),
}
"""Names that no broker keeps."""


def complete(words: str, tmp_path: Path) -> list[str]:
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "XDG_CACHE_HOME": str(tmp_path),
        "HEADRACE_BOOTSTRAP": "127.0.0.1:1",
        "HEADRACE_URL": "http://localhost:9324",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "headrace"], env=environment, capture_output=True, text=True, check=False
    )
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


def test_commands_are_completed_and_a_missing_broker_is_silent(tmp_path: Path) -> None:
    assert complete("headrace topic d", tmp_path) == ["describe", "delete"]
    assert complete("headrace topic describe o", tmp_path) == []


def test_names_come_from_the_cache_while_it_is_fresh(tmp_path: Path) -> None:
    cache = tmp_path / "headrace" / "completion" / "topics-127.0.0.1_1-http___localhost_9324"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(["orders", "offers", "users"]))
    assert complete("headrace topic describe o", tmp_path) == ["orders", "offers"]
    old = time.time() - completing.FRESH_SECONDS - 1
    os.utime(cache, (old, old))
    assert complete("headrace topic describe o", tmp_path) == []


def test_f55_rights_are_completed_one_by_one(tmp_path: Path) -> None:
    assert complete("headrace acl add alice read,wr", tmp_path) == ["read,write"]


def test_f55_names_of_configs_are_completed(tmp_path: Path) -> None:
    assert complete("headrace topic create orders -c retention.", tmp_path) == [
        "retention.bytes=",
        "retention.ms=",
    ]
    assert complete("headrace topic alter orders --unset retention.", tmp_path) == [
        "retention.bytes",
        "retention.ms",
    ]


@pytest.mark.parametrize("leaf", LEAVES, ids=str)
def test_f55_whoever_asks_for_a_name_that_exists_completes_it(leaf: str) -> None:
    """Those that make something ask for a name that nobody has yet."""
    makes = leaf.split()[-1] in ("create", "init", "add")
    for param in LEAVES[leaf].params:
        if param.name not in NAMES or (makes and param.name in ("name", "names")):
            continue
        if (leaf, param.name) in OWN_CHOICE:
            continue
        own = param._custom_shell_complete is not None or not isinstance(
            param.type, click.types.StringParamType
        )
        assert own, f"headrace {leaf}: {param.name} is not completed"
