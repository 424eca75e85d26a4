"""The headrace command about queues, dead letters, schedules and subscriptions, against a real broker."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from printed import as_promised

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

_numbers = itertools.count()
Ask = Callable[..., Any]


@pytest.fixture
def ask(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADRACE_URL", broker.url)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, exit: Exit = Exit.OK) -> Any:
        result = CliRunner().invoke(main, [*arguments, "--json"], prog_name="headrace")
        assert result.exit_code == exit, (arguments, result.output, result.stderr)
        if exit is not Exit.OK:
            return json.loads(result.stderr)
        document = as_promised(result.stdout)
        return document.get("items", document)

    return invoke


@pytest.fixture
def name() -> str:
    return f"cli-{next(_numbers)}"


def until(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.05)


def test_the_life_of_a_queue(ask: Ask, name: str) -> None:
    """Q10: peek never consumes; a receipt acknowledges once."""
    assert ask("queue", "create", name, "--visibility", "20s")["visibility_ms"] == 20_000
    ask("queue", "create", name, exit=Exit.CONFLICT)
    assert len(ask("queue", "send", name, "a", "b", "-H", "x:1")) == 2
    for _ in range(2):
        assert [m["value"] for m in ask("queue", "peek", name)] == ["a", "b"]
    (first,) = ask("queue", "receive", name, "--wait", "5s")
    assert (first["value"], first["delivery"], first["headers"]) == ("a", 1, {"x": "1"})
    ask("queue", "extend", name, first["receipt"], "0s")
    (again,) = [m for m in ask("queue", "receive", name, "-n", "10") if m["value"] == "a"]
    assert again["delivery"] == 2
    ask("queue", "ack", name, first["receipt"], exit=Exit.FAILED)
    ask("queue", "ack", name, again["receipt"])
    described = ask("queue", "describe", name)
    assert (described["ready"], described["in_flight"]) == (0, 1)
    assert name in [row["name"] for row in ask("queue", "list")]
    assert ask("queue", "set", name, "--visibility", "5s")["visibility_ms"] == 5_000
    ask("queue", "set", name, "--pause")
    ask("queue", "send", name, "c")
    assert ask("queue", "receive", name) == []
    ask("queue", "set", name, "--resume")
    assert [m["value"] for m in ask("queue", "receive", name, "--ack", "--wait", "5s")] == ["c"]
    ask("queue", "purge", name, exit=Exit.USAGE)
    assert ask("queue", "purge", name, "--yes")["purged"] == 1
    ask("queue", "delete", name, "--yes")
    assert ask("queue", "describe", name, exit=Exit.NOT_FOUND)["code"] == "NOT_FOUND"


def test_dead_letters(ask: Ask, name: str) -> None:
    """Q3: with a filter and a limit, and the rest stays."""
    dead = f"{name}-dead"
    ask("queue", "create", dead)
    ask("queue", "create", name, "--dlq", dead, "--max-receives", "1")
    ask("queue", "send", name, "bad", "-H", "kind:a")
    ask("queue", "send", name, "worse", "-H", "kind:b")
    until(lambda: ask("queue", "receive", name, "-n", "10", "--visibility", "0s") is not None
          and ask("queue", "describe", dead)["ready"] == 2)  # fmt: skip
    letters = ask("dlq", "peek", dead)
    assert {m["headers"]["headrace-dead-reason"] for m in letters} == {"max_deliveries"}
    (row,) = [row for row in ask("dlq", "list") if row["name"] == dead]
    assert row["messages"] == 2 and row["sources"] == [name]
    assert ask("dlq", "redrive", dead, "--dry-run")["to_move"] == 2
    plan = ask("dlq", "redrive", dead, "--filter", "headers.kind = 'b'", "--dry-run")
    assert (plan["to_move"], plan["moved"]) == (1, 0), "F13: a dry run counts what the run itself would move"
    ask("dlq", "redrive", dead, "--filter", "headers.kind = ", "--dry-run", exit=Exit.USAGE)
    moved = ask("dlq", "redrive", dead, "--filter", "headers.kind = 'b'")
    assert (moved["status"], moved["moved"]) == ("completed", 1)
    assert [m["value"] for m in ask("queue", "peek", name)] == ["worse"]
    assert [m["value"] for m in ask("dlq", "peek", dead)] == ["bad"]
    assert ask("dlq", "status", dead)[0]["id"] == moved["id"]
    ask("dlq", "cancel", moved["id"], exit=Exit.USAGE)


def test_schedules(ask: Ask, name: str) -> None:
    """Q7: list, move, cancel, and cron."""
    ask("queue", "create", name)
    first, second = ask("queue", "send", name, "x", "y", "--delay", "1h")
    assert [row["name"] for row in ask("schedule", "list", name)] == [
        first["message_id"],
        second["message_id"],
    ]
    ask("schedule", "cancel", second["message_id"], "--queue", name)
    ask("schedule", "move", name, first["message_id"], "2026-01-01T00:00:00Z")
    assert [m["value"] for m in ask("queue", "receive", name, "-n", "10", "--wait", "5s", "--ack")] == ["x"]
    assert ask("schedule", "list", name) == []
    ask("schedule", "add", name, "nonsense", name, "tick", exit=Exit.USAGE)
    ask("schedule", "add", name, "* * * * * *", name, "tick")
    assert [m["value"] for m in ask("queue", "receive", name, "--wait", "10s", "--ack")] == ["tick"]
    ask("schedule", "pause", name)
    while ask("queue", "receive", name, "--wait", "2s", "--ack"):
        pass  # what was sent before
    ask("schedule", "run", name)
    assert [m["value"] for m in ask("queue", "receive", name, "--wait", "10s", "--ack")] == ["tick"]
    assert ask("queue", "receive", name, "--wait", "3s", "--ack") == [], "its ticks pass"
    ask("schedule", "resume", name)
    assert [m["value"] for m in ask("queue", "receive", name, "--wait", "10s", "--ack")] == ["tick"]
    ask("schedule", "cancel", name)
    assert name not in [row["name"] for row in ask("schedule", "list")]


def test_subscriptions_fan_out(ask: Ask, name: str) -> None:
    """Q9: each subscription gets everything that matches; readers of one share it."""
    topics = [f"{name}-t1", f"{name}-t2"]
    for topic in topics:
        ask("topic", "create", topic)
    ask("subscription", "create", f"{name}-all", *topics)
    ask(
        "subscription",
        "create",
        f"{name}-some",
        topics[0],
        "--filter",
        "headers.kind = 'a'",
        "--from",
        "earliest",
    )
    ask("topic", "produce", topics[0], "one", "-H", "kind:a")
    ask("topic", "produce", topics[0], "two", "-H", "kind:b")
    ask("topic", "produce", topics[1], "three")

    def values(subscription: str, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            batch = ask("queue", "receive", subscription, "-n", "10", "--wait", "5s", "--ack")
            assert batch, found
            found += [m["value"] for m in batch]
        return sorted(found)

    assert values(f"{name}-all", 3) == ["one", "three", "two"]
    assert values(f"{name}-some", 1) == ["one"]
    assert ask("queue", "receive", f"{name}-some") == []
    assert {f"{name}-all", f"{name}-some"} <= {row["name"] for row in ask("subscription", "list")}
    ask("subscription", "delete", f"{name}-all", f"{name}-some", "--yes")
    assert topics[0] in [row["name"] for row in ask("topic", "list")]


def test_a_latest_subscription_reads_a_new_partition_from_its_beginning(ask: Ask, name: str) -> None:
    """What is sent to a partition before the queue has met it must not be skipped: it came after the subscription."""
    ask("topic", "create", name, "--partitions", "1")
    ask("topic", "produce", name, "before")
    ask("subscription", "create", f"{name}-new", name, "--from", "latest")
    ask("topic", "alter", name, "--partitions", "3")
    for partition in ("1", "2"):
        ask("topic", "produce", name, f"in {partition}", "--partition", partition)
    found: set[str] = set()
    while len(found) < 2:
        batch = ask("queue", "receive", f"{name}-new", "-n", "10", "--wait", "5s", "--ack")
        assert batch, found
        found |= {message["value"] for message in batch}
    assert found == {"in 1", "in 2"}
    ask("subscription", "delete", f"{name}-new", "--yes")


def test_what_every_subscription_has_acknowledged_is_dropped(
    fresh_broker: Callable[..., BrokerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q9: retention=delivered."""
    broker = fresh_broker(environment={"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "200"})
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADRACE_URL", broker.url)

    def ask(*arguments: str) -> Any:
        result = CliRunner().invoke(main, [*arguments, "--json"], prog_name="headrace")
        assert result.exit_code == 0, (arguments, result.output, result.stderr)
        document = as_promised(result.stdout)
        return document.get("items", document)

    ask("topic", "create", "t", "-c", "headrace.retention=delivered")
    for subscription in ("s1", "s2"):
        ask("subscription", "create", subscription, "t", "--from", "earliest")
    ask("topic", "produce", "t", "a", "b", "c")

    def messages() -> int:
        (row,) = [row for row in ask("topic", "list") if row["name"] == "t"]
        count: int = row["messages"]
        return count

    assert len(ask("queue", "receive", "s1", "-n", "10", "--wait", "5s", "--ack")) == 3
    assert messages() == 3, "the other one still needs them"
    assert len(ask("queue", "receive", "s2", "-n", "2", "--wait", "5s", "--ack")) == 2
    until(lambda: messages() == 1)
