"""F52: errors that name the remedy, in the words of the door that was used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from secured import Secured

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Run = Callable[..., Result]
RunAt = Callable[[BrokerProcess], Run]


@pytest.fixture
def run_at(monkeypatch: pytest.MonkeyPatch) -> RunAt:
    def at(broker: BrokerProcess) -> Run:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
        monkeypatch.setenv("HEADRACE_URL", broker.url)
        return lambda *arguments: CliRunner().invoke(main, list(arguments), prog_name="headrace")

    return at


@pytest.fixture
def run(broker: BrokerProcess, run_at: RunAt) -> Run:
    return run_at(broker)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess() as running:
        yield Secured(running)


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


@pytest.mark.parametrize(
    "command",
    [["queue", "describe"], ["queue", "peek"], ["dlq", "redrive"], ["queue", "create", "x", "--dlq"]],
)
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


LISTS = (
    ["acl", "list"], ["dlq", "list"], ["group", "list"], ["key", "list"], ["pipeline", "list"], ["queue", "list"], ["quota", "list"],
    ["schedule", "list"], ["schema", "list"], ["subscription", "list"], ["tenant", "list"], ["token", "list"], ["topic", "list"],
    ["user", "list"], ["view", "list"], ["webhook", "list"], ["security", "audit", "--user", "nobody"], ["context", "list"],
)  # fmt: skip


def test_f52_an_empty_list_says_so(fresh_broker: Callable[..., BrokerProcess], run_at: RunAt) -> None:
    """Six of them printed nothing at all, as if something had gone wrong."""
    run = run_at(fresh_broker())
    for command in LISTS:
        listed = run(*command)
        assert listed.exit_code == Exit.OK and listed.output.strip(), command
        assert not run(*command, "--json", "-q").stderr, "programs are told by the empty list"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["topic", "create", "TOPIC", "-p", "100000000"], "100000000 is more than 100000"),
        (["topic", "create", "TOPIC", "-p", "many"], '"many" is not a whole number'),
        (["topic", "create", "TOPIC", "-r", "99999"], "99999 is more than 10000"),
        (["topic", "alter", "TOPIC", "-p", "99999999"], "99999999 is more than 100000"),
        (["topic", "produce", "TOPIC", "x", "--partition", "99999999999"], "is more than 2147483647"),
        (["topic", "list", "--timeout", "3h"], '"3h" is more than 1h'),
        (["topic", "list", "--timeout", "0s"], '"0s" is less than 1ms'),
        (["queue", "receive", "TOPIC", "--wait", "999999999d"], '"999999999d" is more than 36500d'),
        (["queue", "create", "TOPIC", "-p", "99999999"], "99999999 is more than 10000"),
        (["bench", "produce", "-n", "1", "-p", "99999999"], "99999999 is more than 100000"),
        (["completion"], "Choose from: bash, zsh, fish"),
        (["pipeline", "run", "nosuch"], "error: nosuch: "),
    ],
)
def test_f52_what_no_machine_counts_is_refused_and_no_bug(
    run: Run, topic: str, words: list[str], says: str
) -> None:
    """The client library refuses such numbers in words for programmers, and that was called an internal error."""
    refused = run(*[topic if word == "TOPIC" else word for word in words])
    assert refused.exit_code == Exit.USAGE, refused.stderr
    assert says in refused.stderr and "nosuch: nosuch" not in refused.stderr, refused.stderr


def test_f52_the_remedy_is_one_for_what_was_wanted(run: Run, topic: str) -> None:
    """To create what one wants to delete is none, nor to create a topic that is there."""
    assert "topic create" not in run("topic", "delete", topic, "--yes").stderr
    assert run("topic", "create", topic).exit_code == Exit.OK
    refused = run("topic", "produce", topic, "x", "--partition", "77")
    assert refused.exit_code == Exit.NOT_FOUND and f'"{topic}" has no partition 77' in refused.stderr, (
        refused.stderr
    )
    assert f"headrace topic describe {topic}" in refused.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["topic", "produce", "t", "x"],
        ["topic", "consume", "t"],
        ["cluster", "status"],
        ["queue", "list"],
        ["group", "list"],
    ],
)
def test_f52_who_has_to_log_in_is_told_so_at_once(secured: Secured, run_at: RunAt, words: list[str]) -> None:
    """It was "transport failure", "message timed out", "try again in a moment", and a header for curl, after ten seconds."""
    refused = run_at(secured.broker)(*words)
    assert refused.exit_code == Exit.DENIED and "headrace login" in refused.stderr, refused.stderr
    assert "Authorization:" not in refused.stderr
