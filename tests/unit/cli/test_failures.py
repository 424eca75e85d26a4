"""How commands fail: words on stderr, one of the stated exit codes, a problem document for programs, no traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError, KafkaException

from headrace.cli.failure import Exit, Failure, did_you_mean, exit_of, exit_of_many, failure_of
from headrace.cli.main import main
from headrace.core.errors import ErrorKind, HeadraceError

Run = Callable[..., Result]


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_the_exit_codes_are_the_stated_ones() -> None:
    assert {entry.name: int(entry) for entry in Exit} == {
        "OK": 0, "FAILED": 1, "USAGE": 2, "NOT_FOUND": 3, "UNREACHABLE": 4, "DENIED": 5, "CONFLICT": 6,
        "TIMEOUT": 7, "PARTIAL": 8, "BUG": 70, "INTERRUPTED": 130,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, Exit.NOT_FOUND),
        (ErrorKind.GROUP_ID_NOT_FOUND, Exit.NOT_FOUND),
        (ErrorKind.TOPIC_ALREADY_EXISTS, Exit.CONFLICT),
        (ErrorKind.NON_EMPTY_GROUP, Exit.CONFLICT),
        (ErrorKind.TOPIC_AUTHORIZATION_FAILED, Exit.DENIED),
        (ErrorKind.REQUEST_TIMED_OUT, Exit.TIMEOUT),
        (ErrorKind.INVALID_CONFIG, Exit.USAGE),
        (ErrorKind.KAFKA_STORAGE_ERROR, Exit.FAILED),
    ],
)
def test_each_error_of_a_broker_has_its_exit_code(kind: ErrorKind, code: Exit) -> None:
    assert exit_of(kind) is code


def test_an_unknown_command_gets_the_nearest_one(run: Run) -> None:
    result = run("toppic", "list")
    assert result.exit_code == Exit.USAGE
    assert 'there is no command "headrace toppic"; did you mean "topic"?' in result.stderr
    result = run("topic", "crate", "x")
    assert 'did you mean "create"?' in result.stderr


def test_a_verb_without_its_noun_is_shown_where_it_lives(run: Run) -> None:
    result = run("produce", "orders")
    assert result.exit_code == Exit.USAGE
    assert 'did you mean "headrace topic produce"' in result.stderr


def test_an_unknown_option_gets_the_nearest_one(run: Run) -> None:
    result = run("topic", "create", "x", "--partition", "3")
    assert result.exit_code == Exit.USAGE
    assert 'did you mean "--partitions"?' in result.stderr
    assert "hint: headrace topic create --help" in result.stderr


def test_nobody_listening_is_told_at_once_with_what_to_do(run: Run, closed_port: int) -> None:
    result = run("topic", "list", "-b", f"127.0.0.1:{closed_port}")
    assert result.exit_code == Exit.UNREACHABLE
    assert f"error: cannot reach a broker at 127.0.0.1:{closed_port}: connection refused" in result.stderr
    assert "hint: start one with:  headrace serve" in result.stderr
    assert result.stdout == ""


def test_with_json_a_failure_is_one_document_on_stderr(run: Run, closed_port: int) -> None:
    result = run("topic", "list", "--json", "-b", f"127.0.0.1:{closed_port}")
    problem = json.loads(result.stderr)
    assert problem["schema"] == "headrace.error/v1"
    assert problem["exit_code"] == result.exit_code == Exit.UNREACHABLE
    assert set(problem) == {"schema", "code", "detail", "hint", "exit_code"}
    assert result.stdout == ""


def test_a_wrong_value_is_explained_with_what_is_allowed(run: Run) -> None:
    result = run("topic", "create", "x", "-c", "retention.mss=1d")
    assert result.exit_code == Exit.USAGE
    assert 'no topic config called "retention.mss"; did you mean "retention.ms"?' in result.stderr
    result = run("topic", "create", "x", "-c", "min.insync.replicas=0")
    assert "is out of range: it must be from 1 to 32" in result.stderr


def test_a_destructive_verb_without_a_terminal_needs_yes() -> None:
    from headrace.cli.invocation import Invocation

    with pytest.raises(Failure) as refused:
        Invocation().confirm("delete orders")
    assert refused.value.exit is Exit.USAGE
    assert "--yes" in refused.value.hint
    told = Invocation()
    told.assume_yes = True
    told.confirm("delete orders")


class Breaking:
    """A command that ends in whatever way the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, problem: BaseException, *arguments: str) -> Result:
        def fall() -> None:
            raise problem

        command = click.Command("fall", callback=fall)
        self._monkeypatch.setattr(type(main), "get_command", lambda *_: command)
        self._monkeypatch.setattr(main, "_table", {"fall": "Fall."})
        return CliRunner().invoke(main, ["fall", *arguments], prog_name="headrace")


@pytest.fixture
def fall(monkeypatch: pytest.MonkeyPatch) -> Breaking:
    return Breaking(monkeypatch)


def test_a_bug_is_called_one_and_shows_no_traceback(fall: Breaking) -> None:
    result = fall(KeyError("oops"))
    assert result.exit_code == Exit.BUG
    assert "internal error: KeyError" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (HeadraceError(ErrorKind.NON_EMPTY_GROUP, "the group has members"), Exit.CONFLICT, "the group has members"),
        (KafkaException(KafkaError(KafkaError._TRANSPORT, "Local: gone")), Exit.UNREACHABLE, "gone"),
        (PermissionError(13, "Permission denied", "/x"), Exit.DENIED, "/x: permission denied"),
        (FileNotFoundError(2, "No such file or directory", "/y"), Exit.NOT_FOUND, "/y: no such file"),
        (Failure(Exit.TIMEOUT, "too late", "be quicker"), Exit.TIMEOUT, "hint: be quicker"),
        (KeyboardInterrupt(), Exit.INTERRUPTED, ""),
        (BrokenPipeError(), Exit.OK, ""),
    ],
)  # fmt: skip
def test_every_end_has_its_code(fall: Breaking, problem: Any, code: Exit, words: str) -> None:
    result = fall(problem)
    assert result.exit_code == code
    assert words in result.stderr


def test_a_command_over_several_things_tells_partial_from_total_failure() -> None:
    missing = Failure(Exit.NOT_FOUND, "a")
    taken = Failure(Exit.CONFLICT, "b")
    assert exit_of_many([], 3) is Exit.OK
    assert exit_of_many([missing], 1) is Exit.PARTIAL
    assert exit_of_many([missing, missing], 0) is Exit.NOT_FOUND
    assert exit_of_many([missing, taken], 0) is Exit.FAILED


def test_the_subject_is_not_said_twice() -> None:
    error = HeadraceError(ErrorKind.TOPIC_ALREADY_EXISTS, "topic orders already exists")
    assert failure_of(error, 'topic "orders"').what == "topic orders already exists"
    assert (
        failure_of(HeadraceError(ErrorKind.INVALID_PARTITIONS, "too few"), 'topic "a"').what
        == 'topic "a": too few'
    )


def test_a_name_that_is_like_nothing_gets_no_suggestion() -> None:
    assert did_you_mean("order", ["orders", "x"]) == 'did you mean "orders"?'
    assert did_you_mean("zzz", ["orders"]) == ""
