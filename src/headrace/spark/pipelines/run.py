"""Driver: a pipeline from its definition to its end: session, rounds or a streaming query, progress, state on the board."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.spark import register
from headrace.spark.options import OptionError
from headrace.spark.pipelines.archive import ArchivePipeline
from headrace.spark.pipelines.audit import AuditPipeline
from headrace.spark.pipelines.board import PipelineBoard
from headrace.spark.pipelines.definition import (
    Aggregate,
    Archive,
    Audit,
    DefinitionError,
    Kinds,
    Mirror,
    Program,
    Redrive,
    Replay,
    Table,
    Transform,
    seconds,
)
from headrace.spark.pipelines.mirror import MirrorPipeline
from headrace.spark.pipelines.redrive import start_redrive
from headrace.spark.pipelines.replay import ReplayPipeline
from headrace.spark.pipelines.restarts import Restarts
from headrace.spark.pipelines.rounds import Round
from headrace.spark.pipelines.streams import start, start_program
from headrace.spark.service.leash import Leash, mark_state
from headrace.spark.session import STATELESS_SETTINGS, SparkMissing, local_session, need_iceberg
from headrace.spark.stream_offsets import StreamOffset
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POST_SECONDS = 5.0
_LOOK_SECONDS = 1
_KEPT_BATCHES = 20
_BOARD_SECONDS = 10.0
_ERROR_CHARACTERS = 65_536
_UPKEEP_ROUNDS = 20
"""One that never catches up is tended all the same."""


class InRounds(Protocol):
    @property
    def facts(self) -> dict[str, Any]: ...

    def round(self) -> Round: ...

    def upkeep(self) -> int: ...

    def close(self) -> None: ...


FINISH_SECONDS = 12.0
"""A round that is under way when SIGTERM comes has so long to end well; then it is dropped. Supervisors wait 20 s."""


DROP_SECONDS = 3.0


class Stopped(KeyboardInterrupt):
    """Somebody wants this process to end now (SIGTERM), and the round could not be finished in time."""


class RunProgress:
    """What a run has done, told to the terminal at once and to the board now and then; a thread says every few seconds that the
    run is alive, however long a round takes, and hears whether it should stop."""

    def __init__(
        self, definition: Kinds, board: PipelineBoard, show: Callable[[dict[str, Any]], None]
    ) -> None:
        self._board = board
        self._show = show
        self._started = time.monotonic()
        self._posted = float("-inf")
        self._one = threading.Lock()
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="pipeline-heartbeat", daemon=True)
        self.stop_asked = threading.Event()
        self.in_round = False
        """Something is under way that is finished or dropped when the run has to end."""
        self.interrupt: Callable[[], None] = lambda: None
        """Ends what Spark is doing now; a round that is given up was never part of anything."""
        self.break_off: Callable[[], None] = lambda: None
        """Ends the run wherever it is, when even that did not help."""
        self.run = uuid.uuid4().hex
        self.name = definition.name
        self.entry: dict[str, Any] = {
            "name": definition.name,
            "kind": definition.kind,
            "run": self.run,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "master": definition.spark.master,
            "topics": list(getattr(definition, "topics", ())) or [getattr(definition, "topic", "")],
            "target": getattr(definition, "target", ""),
            "started_ms": int(time.time() * 1000),
            "records": 0,
            "bytes": 0,
            "lag": 0,
            "rate": 0,
            "restarts": 0,
        }

    def __enter__(self) -> RunProgress:
        self._heart.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._heart.join()

    def _beat(self) -> None:
        while not self._ended.wait(_POST_SECONDS):
            try:
                with self._one:
                    if "state" in self.entry:
                        self._send({})
                    asked = self._board.is_asked_to_stop(self.name, self.run)
            except HeadraceError:
                # No broker, no board. The run itself notices where it matters.
                continue
            if asked:
                self.ask_to_end()

    def add(self, records: int, size: int, lag: int) -> None:
        self.entry["records"] += records
        self.entry["bytes"] += size
        self.entry["lag"] = lag
        elapsed = time.monotonic() - self._started
        self.entry["rate"] = int(self.entry["records"] / elapsed) if elapsed > 0 else 0
        self._show(self.entry)

    def batch(self, *, number: int, rows: int, total_ms: int, parts_ms: dict[str, int]) -> None:
        """How long one took, for whoever looks: the last few are kept."""
        told = {
            "id": number,
            "at_ms": int(time.time() * 1000),
            "rows": rows,
            "total_ms": total_ms,
            "parts_ms": parts_ms,
        }
        self.entry["batches"] = [*self.entry.get("batches", []), told][-_KEPT_BATCHES:]

    def post(self, state: str, *, now: bool = False, **facts: Any) -> None:
        if not now and state == self.entry.get("state") and time.monotonic() - self._posted < _POST_SECONDS:
            return
        with self._one:
            self._send({"state": state, **facts})

    def _send(self, facts: dict[str, Any]) -> None:
        self._posted = time.monotonic()
        self.entry.update(facts, updated_ms=int(time.time() * 1000))
        self._board.post(self.name, dict(self.entry))

    def ask_to_end(self) -> None:
        """From a signal's handler too: no lock is taken. What is under way may end; after a while it is dropped."""
        if self.stop_asked.is_set():
            return
        self.stop_asked.set()
        threading.Thread(target=self._drop_later, name="pipeline-end", daemon=True).start()

    def _drop_later(self) -> None:
        if self._ended.wait(FINISH_SECONDS):
            return
        if self.in_round:
            self.entry["last_round"] = "dropped"
            self.interrupt()
        if not self._ended.wait(DROP_SECONDS):
            self.break_off()

    def should_stop(self) -> bool:
        if not self.stop_asked.is_set():
            with self._one:
                asked = self._board.is_asked_to_stop(self.name, self.run)
            if asked:
                self.ask_to_end()
        return self.stop_asked.is_set()


def make_session(definition: Kinds, *, quiet: bool = False) -> SparkSession:
    # One failure of a task is no failure of a round: Spark's own default for local masters is a single attempt.
    master = re.sub(
        r"^local(?:\[([^,\]]+)\])?$", lambda found: f"local[{found[1] or 1},4]", definition.spark.master
    )
    settings = dict(STATELESS_SETTINGS) if isinstance(definition, Transform | Redrive) else {}
    session = local_session(
        f"headrace {definition.name}",
        master=master,
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
    tell: Callable[[str], None] = lambda text: None,
    spark: SparkSession | None = None,
    quiet: bool = False,
    leash: Leash | None = None,
) -> dict[str, Any]:
    """Run it to its end (`once`: what is there now) and return its last state. The board learns of everything.

    One that goes on until it is stopped is started again when it fails, after a while that grows; `tell` hears why. `quiet`: a session
    that is made here says nothing of its own. `leash`: a supervisor runs it, and is the one who starts it again."""
    once = once or definition.has_end
    stays = not once and definition.restart != "never" and leash is None
    # Short: nobody waits for the board when the broker is away.
    with SyncClient(definition.access(_BOARD_SECONDS)) as client:
        with RunProgress(definition, PipelineBoard(client), show) as progress, _terminable(progress):
            if leash is not None:
                leash.entry = progress.entry
            restarts = Restarts()
            while True:
                restarts.begin(time.monotonic())
                try:
                    _post_quietly(progress, "starting") if leash else progress.post("starting", now=True)
                    if leash is not None:
                        mark_state(definition, leash)
                    session = spark or make_session(definition, quiet=quiet)
                    if not progress.stop_asked.is_set():
                        _run(definition, progress, once, session, leash.fence if leash else 0)
                    break
                except (KeyboardInterrupt, DefinitionError, OptionError, SparkMissing) as problem:
                    state = "stopped" if isinstance(problem, KeyboardInterrupt) else "failed"
                    if state == "stopped" and progress.in_round:
                        progress.entry["last_round"] = "dropped"
                    _post_quietly(progress, state, error=_told_error(problem))
                    raise
                except Exception as problem:
                    if progress.stop_asked.is_set():
                        break
                    if not stays:
                        _post_quietly(progress, "failed", error=_told_error(problem))
                        raise
                    _back_off(progress, restarts, problem, tell)
                    if progress.stop_asked.is_set():
                        break
            is_cut = progress.stop_asked.is_set()
            if is_cut:
                progress.entry.setdefault("last_round", "finished")
            ended = "finished" if once and not is_cut else "stopped"
            _post_quietly(progress, ended) if leash else progress.post(ended, now=True)
        return progress.entry


def _run(definition: Kinds, progress: RunProgress, once: bool, session: SparkSession, fence: int) -> None:
    progress.interrupt = lambda: _interrupt(session)
    progress.entry["ui"] = _ui_address(session)
    if isinstance(definition, Transform | Aggregate):
        _stream(start(session, definition, once=once), progress)
    elif isinstance(definition, Program):
        _streams(start_program(session, definition, once=once), progress)
    elif isinstance(definition, Redrive):
        _stream(start_redrive(session, definition), progress)
    else:
        _rounds(_in_rounds(definition, session, fence), definition, progress, once)


def _ui_address(session: SparkSession) -> str:
    """Where a browser finds Spark's own pages; empty when spark.ui.enabled is off, or Spark is elsewhere."""
    try:
        return str(session.sparkContext.uiWebUrl or "")
    except Exception:
        return ""


def _interrupt(session: SparkSession) -> None:
    try:
        session.interruptAll()
    except Exception:
        # It may be ending already; the flag is set, and the round's end looks at it.
        return


def _back_off(
    progress: RunProgress, restarts: Restarts, problem: Exception, tell: Callable[[str], None]
) -> None:
    delay = restarts.failed(time.monotonic(), int(progress.run[:4], 16) / 0xFFFF)
    error = _told_error(problem)
    progress.entry["restarts"] += 1
    next_ms = int((time.time() + delay) * 1000)
    _post_quietly(progress, restarts.state, error=error, attempts=restarts.attempts, next_try_ms=next_ms)
    tell(
        f"{progress.name} failed and is tried again in {delay:.0f} s: {error.splitlines()[0] if error else problem!r}"
    )
    progress.stop_asked.wait(delay)


def _told_error(problem: BaseException) -> str:
    hint = problem.hint if isinstance(problem, HeadraceError) else ""
    return (
        f"{str(problem).rstrip('.')}. {hint}"[:_ERROR_CHARACTERS]
        if hint
        else str(problem)[:_ERROR_CHARACTERS]
    )


@contextlib.contextmanager
def _terminable(progress: RunProgress) -> Iterator[None]:
    """SIGTERM ends a run when its round is done, which has `FINISH_SECONDS` for that; Spark's work is then interrupted, and when even that
    does not help in time (a broker that does not answer), or a second SIGTERM comes, the run ends where it is, as with Ctrl-C. What was not
    committed never was, and the board hears of it. Only the main thread may set this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        if progress.stop_asked.is_set():
            raise Stopped
        progress.ask_to_end()

    before = signal.signal(signal.SIGTERM, stop)
    progress.break_off = lambda: os.kill(os.getpid(), signal.SIGTERM)
    try:
        yield
    finally:
        progress.break_off = lambda: None
        signal.signal(signal.SIGTERM, before)


def _post_quietly(progress: RunProgress, state: str, **facts: Any) -> None:
    try:
        progress.post(state, now=True, **facts)
    except HeadraceError:
        # The broker may be what failed; the error itself is on its way up.
        progress.entry.update(facts, state=state)


def _in_rounds(definition: Kinds, session: SparkSession, fence: int) -> InRounds:
    if isinstance(definition, Archive):
        return ArchivePipeline(definition, session)
    if isinstance(definition, Table):
        need_iceberg()
        from headrace.spark.pipelines.table import TablePipeline

        return TablePipeline(definition, session, fence)
    if isinstance(definition, Mirror):
        return MirrorPipeline(definition, session)
    if isinstance(definition, Replay):
        return ReplayPipeline(definition, session)
    assert isinstance(definition, Audit)
    return AuditPipeline(definition, session)


def _rounds(pipeline: InRounds, definition: Kinds, progress: RunProgress, once: bool) -> None:
    rounds = 0
    try:
        while True:
            began = time.monotonic()
            progress.in_round = True
            done = pipeline.round()
            progress.add(done.records, done.bytes, done.lag)
            if done.records:
                rounds += 1
                took_ms = int((time.monotonic() - began) * 1000)
                progress.batch(number=rounds, rows=done.records, total_ms=took_ms, parts_ms={})
            progress.post("running", **pipeline.facts)
            is_time = not done.lag or rounds % _UPKEEP_ROUNDS == 0
            if done.records and is_time and not progress.stop_asked.is_set():
                pipeline.upkeep()
            progress.in_round = False
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


def _wait(duration: float, progress: RunProgress) -> bool:
    """True when somebody wants us to stop."""
    until = time.monotonic() + duration
    while True:
        if progress.should_stop():
            return True
        left = until - time.monotonic()
        if left <= 0:
            return False
        progress.post("running")
        progress.stop_asked.wait(min(left, 1.0))


def _stream(query: StreamingQuery, progress: RunProgress) -> None:
    seen = -1
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            seen = _told(query, progress, seen)
            progress.post("running")
            if progress.should_stop():
                _end_batch(query, progress)
                query.stop()
                break
        _told(query, progress, seen)
    except BaseException:
        query.stop()
        raise


def _are_over(queries: list[StreamingQuery]) -> bool:
    """Each is asked: one that has failed says so."""
    over = [query.awaitTermination(_LOOK_SECONDS) for query in queries]
    return all(over)


def _streams(queries: list[StreamingQuery], progress: RunProgress) -> None:
    """Several at once: the first that fails ends all."""
    seen = dict.fromkeys(range(len(queries)), -1)
    try:
        while not _are_over(queries):
            for at, query in enumerate(queries):
                seen[at] = _told(query, progress, seen[at])
            progress.post("running")
            if progress.should_stop():
                for query in queries:
                    _end_batch(query, progress)
                break
        for at, query in enumerate(queries):
            _told(query, progress, seen[at])
    finally:
        for query in queries:
            query.stop()


def _end_batch(query: StreamingQuery, progress: RunProgress) -> None:
    """The micro-batch under way may end: what is dropped would only be done again."""
    deadline = time.monotonic() + FINISH_SECONDS
    progress.in_round = True
    while query.status["isTriggerActive"]:
        if query.awaitTermination(_LOOK_SECONDS):
            break
        if time.monotonic() >= deadline:
            progress.entry["last_round"] = "dropped"
            return
    progress.in_round = False


def _told(query: StreamingQuery, progress: RunProgress, seen: int) -> int:
    """Add the micro-batches that are new since the last look."""
    for told in query.recentProgress:
        batch = told["batchId"]
        if batch > seen:
            seen = batch
            progress.add(_rows(told), 0, _lag(told))
            progress.entry["skipped"] = _skipped(told)
            progress.entry.update(_state_of(told))
            progress.batch(**_batch(told))
    return seen


def _batch(told: Any) -> dict[str, Any]:
    """A micro-batch as Spark reports it: how long each part of it took."""
    parts = {str(part): int(ms) for part, ms in (told["durationMs"] or {}).items()}
    total = parts.pop("triggerExecution", 0) or sum(parts.values())
    return {"number": told["batchId"], "rows": _rows(told), "total_ms": total, "parts_ms": parts}


def _state_of(told: Any) -> dict[str, Any]:
    """Rows that Spark keeps in its state store, and up to when it takes late ones; nothing for queries without either."""
    operators = told["stateOperators"] or []
    event_time = told["eventTime"] or {}
    found: dict[str, Any] = {}
    if operators:
        found["state_rows"] = sum(int(one["numRowsTotal"] or 0) for one in operators)
    if event_time.get("watermark"):
        found["watermark"] = str(event_time["watermark"])
    return found


def _rows(told: Any) -> int:
    """Spark Connect tells them for each source only."""
    if told["numInputRows"] is not None:
        return int(told["numInputRows"])
    return sum(source["numInputRows"] or 0 for source in told["sources"])


def _skipped(told: Any) -> int:
    """Records that were gone before they were read, as the checkpoint counts them."""
    import json

    count = 0
    for source in told["sources"]:
        try:
            end = source["endOffset"]
            end = json.loads(end) if isinstance(end, str) else end or {}
            count += sum(StreamOffset.from_json(end).skipped.values())
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return count


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
