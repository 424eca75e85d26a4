"""F52: errors that name the remedy, in the words of the door that was used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Run = Callable[..., Result]


@pytest.fixture
def run(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADRACE_URL", broker.url)
    return lambda *arguments: CliRunner().invoke(main, list(arguments), prog_name="headrace")


def test_f52_a_view_is_read_only_and_says_so(run: Run, topic: str) -> None:
    assert run("topic", "create", topic).exit_code == Exit.OK
    made = run("view", "create", f"{topic}-eu", "--of", topic, "--where", "tag == 'eu'")
    assert made.exit_code == Exit.OK, made.output
    produced = run("topic", "produce", f"{topic}-eu", "x")
    assert produced.exit_code != Exit.OK
    assert f"is a view of {topic}" in produced.stderr, produced.stderr
    deleted = run("topic", "delete", topic, "--yes")
    assert deleted.exit_code != Exit.OK
    assert f"headrace view delete {topic}-eu" in deleted.output, deleted.output


@pytest.mark.parametrize("command", [["queue", "describe"], ["queue", "peek"], ["dlq", "redrive"]])
def test_f52_hints_of_a_command_are_commands(run: Run, topic: str, command: list[str]) -> None:
    refused = run(*command, topic)
    assert refused.exit_code == Exit.NOT_FOUND
    assert re.search("headrace queue (create|list)", refused.stderr) and "/api/" not in refused.stderr, (
        refused.stderr
    )


def test_f52_what_was_typed_wrongly_is_a_usage_error(run: Run, topic: str) -> None:
    assert run("schedule", "add", topic, "every now and then", topic, "x").exit_code == Exit.USAGE
    refused = run("serve", "--kafka-port", "abc")
    assert refused.exit_code == Exit.USAGE
    assert '"abc" is not a whole number' in refused.stderr


def test_f52_a_subject_that_is_too_long_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    refused = run("cert", "ca", "--out", str(tmp_path / "ca.pem"), "--subject", "x" * 65)
    assert refused.exit_code == Exit.USAGE and "1 to 64 bytes" in refused.stderr, refused.stderr


def test_f52_verbose_is_taken_wherever_it_is_said(run: Run) -> None:
    for arguments in (["-v", "topic", "list", "--json"], ["topic", "list", "--json", "-v"]):
        assert json.loads(run(*arguments).stdout)["schema"] == "headrace.topic.list/v1"
