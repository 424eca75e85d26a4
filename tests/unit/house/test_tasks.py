"""Whatever runs for ever is supervised (F16, F17); whatever is merely spawned has an end, and the table says which.

A new caller of spawn, create_task or ensure_future fails here until somebody has decided which of the two it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[3] / "src" / "headrace"
BROKER_SIDE = ("broker", "coordinator", "http", "kafka", "net", "node", "push", "queueing", "security")

BOUNDED = {
    ("broker/liveness.py", "_fence"): "one transaction",
    ("broker/liveness.py", "_probe"): "one connection",
    ("broker/lanes.py", "_carry_out"): "one partition; its failure ends the lanes, which are supervised",
    ("broker/latest.py", "_catch_up"): "one read, which has a deadline",
    ("broker/marker_mail.py", "_carry"): "until the letters to one broker are sent",
    ("broker/markers.py", "_deliver"): "until a transaction's markers are written or its shard is gone",
    ("broker/load.py", "coro"): "ends with its load",
    ("broker/peers.py", "connect"): "one connection, which has a deadline",
    ("broker/producer_ids.py", "_refill_ahead"): "one transaction",
    ("broker/queueing/moves/dead_letters.py", "_work"): "until the letters of one shard are moved",
    ("broker/queueing/moves/move_tasks.py", "_run"): "until the messages are moved or the task is cancelled",
    ("broker/queueing/routing/long_polls.py", "_ask_on"): "while somebody waits for a queue of that broker",
    ("broker/queueing/local/due_records.py", "_work"): "until what is due is let go",
    ("broker/replicator.py", "_ask_for_nothing"): "one call, which has a deadline",
    ("broker/replicas.py", "_give_away"): "one transaction",
    ("broker/replicas.py", "propose"): "one transaction",
    ("broker/replicas.py", "_read_again"): "until the partition was read",
    ("broker/replicas.py", "_raise_epoch"): "until the epoch is high enough, or the topic is gone",
    ("broker/shards.py", "_load"): "one load",
    ("broker/views/scanner.py", "_work"): "until nobody waits for a piece",
    (
        "coordinator/etcd.py",
        "run",
    ): "the feed of a prefix: ends with its last watcher, and nothing the server does ends it",
    ("coordinator/sqlite.py", "_poll"): "looks at the file: ends with the coordinator",
    ("coordinator/sqlite.py", "_run_blocking"): "one call",
    ("http/connection.py", "_run"): "one request",
    ("http/rest/idempotency.py", "_load"): "one load",
    ("http/rest/idempotency.py", "_send"): "one send",
    ("http/sse.py", "_next"): "one event",
    ("kafka/dispatch.py", "_finish"): "one request",
    ("kafka/dispatch.py", "step"): "one token of a login",
    ("net/doorway.py", "_begin"): "one handshake, which has a deadline",
    ("node/node.py", "_announce_stop"): "one transaction",
    ("push/courier.py", "_work"): "one delivery with its retries",
    ("push/courier.py", "wait"): "one wait, cancelled by the turn that began it",
    ("push/couriers.py", "_confirm"): "a number of attempts",
    ("push/endpoint.py", "_ask_in_turn"): "one lookup",
}
ONE_REQUEST = "kafka/handlers/"
"""What a handler starts ends with its answer; that it does not loop for ever is looked at all the same."""

SUPERVISOR = ("broker/supervision.py", "_keep")
"""What supervises is the one loop that is spawned."""


class Start(NamedTuple):
    file: str
    callee: str
    line: int


def trees() -> Iterator[tuple[str, ast.Module]]:
    for package in BROKER_SIDE:
        for path in sorted((SOURCE / package).rglob("*.py")):
            yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text())


def starts(file: str, tree: ast.Module) -> Iterator[Start]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("spawn", "_spawn", "create_task", "ensure_future"):
            yield Start(file, _callee(node.args[0]), node.lineno)


def _callee(work: ast.expr) -> str:
    if isinstance(work, ast.Call):
        work = work.func
    if isinstance(work, ast.Attribute):
        return work.attr
    return work.id if isinstance(work, ast.Name) else ast.dump(work)


def runs_for_ever(function: ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(node, ast.While)
        and isinstance(node.test, ast.Constant)
        and node.test.value
        and not any(isinstance(inner, (ast.Return, ast.Break)) for inner in ast.walk(node))
        for node in ast.walk(function)
    )


def test_f17_every_task_is_supervised_or_has_an_end() -> None:
    undecided = [
        start
        for file, tree in trees()
        for start in starts(file, tree)
        if (start.file, start.callee) not in BOUNDED
        and (start.file, start.callee) != SUPERVISOR
        and start.file != "broker/runtime.py"
        and not start.file.startswith(ONE_REQUEST)
    ]
    assert not undecided, "supervise it (runtime.supervise), or say in BOUNDED where it ends"


def test_f17_no_entry_of_the_table_is_out_of_date() -> None:
    known = {(start.file, start.callee) for file, tree in trees() for start in starts(file, tree)}
    assert not BOUNDED.keys() - known


def test_f17_nothing_that_loops_for_ever_is_merely_spawned() -> None:
    guarded = {("coordinator/etcd.py", "run"), ("coordinator/sqlite.py", "_poll")}
    """Adapters below the runtime: they catch what their server does, and a watch that ends is supervised above."""
    defined: dict[str, list[tuple[str, ast.AsyncFunctionDef]]] = {}
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.AsyncFunctionDef):
                defined.setdefault(node.name, []).append((file, node))
    endless = []
    handlers = {
        (start.file, start.callee)
        for file, tree in trees()
        if file.startswith(ONE_REQUEST)
        for start in starts(file, tree)
    }
    for file, callee in (BOUNDED.keys() | handlers) - guarded:
        here = [function for where, function in defined.get(callee, []) if where == file]
        if any(map(runs_for_ever, here)):
            endless.append((file, callee))
    assert not endless, "a loop without an end belongs to runtime.supervise"


def test_f17_the_check_knows_a_loop_without_an_end() -> None:
    for source, expected in (
        ("async def f():\n while True:\n  await g()", True),
        ("async def f():\n while True:\n  if await g():\n   return", False),
        ("async def f():\n while x:\n  await g()", False),
    ):
        (function,) = ast.parse(source).body
        assert isinstance(function, ast.AsyncFunctionDef)
        assert runs_for_ever(function) is expected
