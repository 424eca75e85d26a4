from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from headrace.cli import completing
from headrace.cli.failure import Exit

Run = Callable[..., Result]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == Exit.OK
    assert "_HEADRACE_COMPLETE" in result.stdout and "headrace" in result.stdout
    assert json.loads(run("completion", shell, "--json").stdout)["shell"] == shell


def complete(words: str, tmp_path: Path) -> list[str]:
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "XDG_CACHE_HOME": str(tmp_path),
        "HEADRACE_BOOTSTRAP": "127.0.0.1:1",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "headrace"], env=environment, capture_output=True, text=True, check=False
    )
    return [line.partition(",")[2] for line in ran.stdout.splitlines() if line]


def test_commands_are_completed_and_a_missing_broker_is_silent(tmp_path: Path) -> None:
    assert complete("headrace topic d", tmp_path) == ["describe", "delete"]
    assert complete("headrace topic describe o", tmp_path) == []


def test_names_come_from_the_cache_while_it_is_fresh(tmp_path: Path) -> None:
    cache = tmp_path / "headrace" / "completion" / "topics-127.0.0.1_1"
    cache.parent.mkdir(parents=True)
    cache.write_text(json.dumps(["orders", "offers", "users"]))
    assert complete("headrace topic describe o", tmp_path) == ["orders", "offers"]
    old = time.time() - completing.FRESH_SECONDS - 1
    os.utime(cache, (old, old))
    assert complete("headrace topic describe o", tmp_path) == []
