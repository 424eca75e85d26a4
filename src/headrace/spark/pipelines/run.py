"""Driver: a pipeline from its definition to its end: session, rounds or a streaming query, progress, state on the board."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.spark import register
from headrace.spark.connection import Access
from headrace.spark.pipelines.archive import ArchivePipeline
from headrace.spark.pipelines.audit import AuditPipeline
from headrace.spark.pipelines.board import Board
from headrace.spark.pipelines.definition import (
    Aggregate,
    Archive,
    Audit,
    Kinds,
    Mirror,
    Redrive,
    Replay,
    Table,
    Transform,
    seconds,
)
from headrace.spark.pipelines.mirror import MirrorPipeline
from headrace.spark.pipelines.redrive import start_redrive
from headrace.spark.pipelines.replay import ReplayPipeline
from headrace.spark.pipelines.rounds import Round
from headrace.spark.pipelines.streams import start
from headrace.spark.session import STATELESS_SETTINGS, local_session, need_iceberg
from headrace.spark.sync_client import SyncClient, pause

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POST_SECONDS = 5.0
_LOOK_SECONDS = 1
_ALWAYS_ONCE = (Replay, Audit, Redrive)


class InRounds(Protocol):
    @property
    def facts(self) -> dict[str, Any]: ...

    def round(self) -> Round: ...

    def upkeep(self) -> int: ...

    def close(self) -> None: ...


class Progress:
    """What a run has done, told to the terminal at once and to the board now and then."""

    def __init__(self, definition: Kinds, board: Board, show: Callable[[dict[str, Any]], None]) -> None:
        self._board = board
        self._show = show
        self._started = time.monotonic()
        self._posted = 0.0
        self.run = uuid.uuid4().hex
        self.name = definition.name
        self.entry: dict[str, Any] = {
            "name": definition.name,
            "kind": definition.kind,
            "run": self.run,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "master": definition.spark.master,
            "started_ms": int(time.time() * 1000),
            "records": 0,
            "bytes": 0,
            "lag": 0,
            "rate": 0,
        }

    def add(self, records: int, size: int, lag: int) -> None:
        self.entry["records"] += records
        self.entry["bytes"] += size
        self.entry["lag"] = lag
        elapsed = time.monotonic() - self._started
        self.entry["rate"] = int(self.entry["records"] / elapsed) if elapsed > 0 else 0
        self._show(self.entry)

    def post(self, state: str, *, now: bool = False, **facts: Any) -> None:
        if not now and time.monotonic() - self._posted < _POST_SECONDS:
            return
        self._posted = time.monotonic()
        self.entry.update(state=state, updated_ms=int(time.time() * 1000), **facts)
        self._board.post(self.name, self.entry)

    def should_stop(self) -> bool:
        return self._board.is_asked_to_stop(self.name, self.run)


def make_session(definition: Kinds, *, quiet: bool = False) -> SparkSession:
    settings = dict(STATELESS_SETTINGS) if isinstance(definition, Transform | Redrive) else {}
    session = local_session(
        f"headrace {definition.name}",
        master=definition.spark.master,
        settings={**settings, **definition.spark.settings},
        quiet=quiet,
    )
    register(session)
    return session


def run(
    definition: Kinds,
    *,
    once: bool = False,
    show: Callable[[dict[str, Any]], None] = lambda entry: None,
    spark: SparkSession | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Run it to its end (`once`: what is there now) and return its last state. The board learns of everything.

    `quiet`: a session that is made here says nothing of its own."""
    with SyncClient(Access(definition.bootstrap)) as client:
        progress = Progress(definition, Board(client), show)
        progress.post("starting", now=True)
        try:
            session = spark or make_session(definition, quiet=quiet)
            if isinstance(definition, Transform | Aggregate):
                _stream(start(session, definition, once=once), progress)
            elif isinstance(definition, Redrive):
                _stream(start_redrive(session, definition), progress)
            else:
                _rounds(_in_rounds(definition, session), definition, progress, once)
        except BaseException as problem:
            state = "stopped" if isinstance(problem, KeyboardInterrupt) else "failed"
            _post_quietly(progress, state, str(problem)[:500])
            raise
        state = "finished" if once or isinstance(definition, _ALWAYS_ONCE) else "stopped"
        progress.post(state, now=True)
        return progress.entry


def _post_quietly(progress: Progress, state: str, error: str) -> None:
    try:
        progress.post(state, now=True, error=error)
    except HeadraceError:
        # The broker may be what failed; the error itself is on its way up.
        pass


def _in_rounds(definition: Kinds, session: SparkSession) -> InRounds:
    if isinstance(definition, Archive):
        return ArchivePipeline(definition, session)
    if isinstance(definition, Table):
        need_iceberg()
        from headrace.spark.pipelines.table import TablePipeline

        return TablePipeline(definition, session)
    if isinstance(definition, Mirror):
        return MirrorPipeline(definition, session)
    if isinstance(definition, Replay):
        return ReplayPipeline(definition, session)
    assert isinstance(definition, Audit)
    return AuditPipeline(definition, session)


def _rounds(pipeline: InRounds, definition: Kinds, progress: Progress, once: bool) -> None:
    try:
        once = once or isinstance(definition, _ALWAYS_ONCE)
        while True:
            done = pipeline.round()
            progress.add(done.records, done.bytes, done.lag)
            progress.post("running", **pipeline.facts)
            if done.records and not done.lag:
                pipeline.upkeep()
            if not done.lag or not done.records:
                if once:
                    progress.post("running", now=True, **pipeline.facts)
                    return
                if _wait(seconds(definition.every) or 0.0, progress):
                    return
            elif progress.should_stop():
                return
    finally:
        pipeline.close()


def _wait(duration: float, progress: Progress) -> bool:
    """True when somebody wants us to stop."""
    until = time.monotonic() + duration
    while True:
        if progress.should_stop():
            return True
        left = until - time.monotonic()
        if left <= 0:
            return False
        progress.post("running")
        pause(min(left, 1.0))


def _stream(query: StreamingQuery, progress: Progress) -> None:
    seen = -1
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            seen = _told(query, progress, seen)
            progress.post("running")
            if progress.should_stop():
                query.stop()
                break
        _told(query, progress, seen)
    except BaseException:
        query.stop()
        raise


def _told(query: StreamingQuery, progress: Progress, seen: int) -> int:
    """Add the micro-batches that are new since the last look."""
    for told in query.recentProgress:
        batch = told["batchId"]
        if batch > seen:
            seen = batch
            progress.add(_rows(told), 0, _lag(told))
    return seen


def _rows(told: Any) -> int:
    """Spark Connect tells them for each source only."""
    if told["numInputRows"] is not None:
        return int(told["numInputRows"])
    return sum(source["numInputRows"] or 0 for source in told["sources"])


def _lag(told: Any) -> int:
    """Records that wait behind a micro-batch, as the source reported."""
    import json

    lag = 0
    for source in told["sources"]:
        try:
            latest, end = source["latestOffset"], source["endOffset"]
            latest = json.loads(latest) if isinstance(latest, str) else latest
            end = json.loads(end) if isinstance(end, str) else end
            for topic, rows in (latest or {}).items():
                for partition, offset in rows.items():
                    lag += max(0, offset - (end or {}).get(topic, {}).get(partition, 0))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return lag
