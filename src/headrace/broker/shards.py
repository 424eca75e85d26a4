"""Driver: the one runtime under every stateful coordinator (groups, transactions, queues, schedules).

A shard is a pure Machine plus one partition of an internal topic. Facts are applied at once and journaled;
replies and effects wait at the gate until every fact planned before them is committed. When a journal write
fails, memory is ahead of the log, so the shard throws its memory away and loads again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from headrace.broker.partition import Partition
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.core.plan import JournalRecord, Machine, Plan, Reply
from headrace.core.ports import Buffer
from headrace.records.batch import BatchHeader, read_header, scan
from headrace.records.build import Record, build_batch
from headrace.records.read import read_control, read_records

log = logging.getLogger(__name__)

BARRIER = JournalRecord(b"\xff\xffbarrier", b"")
"""Journaled before an answer that changes nothing, when only the followers can tell whether we still lead (R7): a
coordinator that was replaced without noticing would otherwise answer from the past, for example that a transaction is
committed because the one before it was. No machine knows the key, so it is skipped at load; compaction keeps one.

The lease alone does not tell: leaderships are also moved while it lasts, and news of that may be late (R8). So answers
that a client builds on (`Confirms`) always ask the followers, the others only once the lease is gone."""

LOAD_CHUNK_BYTES = 1024 * 1024
LOAD_WAIT_MS = 60_000
GATHERED_BYTES = 256 * 1024
"""When so much is waiting to be written, the turn is not waited for."""


Confirms = Callable[[Any, Any], bool]
"""(command, answer) -> whether a client may come to harm if a coordinator that was just replaced answers so."""


_AS_A_COORDINATOR_SAYS = {
    ErrorKind.NOT_LEADER_OR_FOLLOWER: ErrorKind.NOT_COORDINATOR,
    ErrorKind.KAFKA_STORAGE_ERROR: ErrorKind.NOT_COORDINATOR,
    ErrorKind.NOT_ENOUGH_REPLICAS: ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorKind.COORDINATOR_NOT_AVAILABLE,
}
"""A journal's troubles in the words that clients of coordinators know and retry, as in Kafka."""


class ShardState(Enum):
    LOADING = "loading"
    READY = "ready"
    CLOSED = "closed"


@runtime_checkable
class TransactionalMachine(Protocol):
    """A machine whose journal may hold facts that count only once their transaction commits (R50)."""

    def replay_transactional(self, record: JournalRecord, producer_id: int, now_ms: int) -> None: ...

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool, now_ms: int) -> None: ...


class Shard:
    """One partition of coordinator state on this broker, for as long as it leads that partition."""

    def __init__(
        self,
        runtime: Runtime,
        partition: Partition,
        make_machine: Callable[[], Machine],
        perform: Callable[[Shard, Any], None],
        confirms: Confirms = lambda command, answer: False,
        *,
        gathers: bool = False,
    ) -> None:
        """`gathers`: what is decided in one turn of the loop is journaled as one batch. For machines whose replay does not
        depend on whether a transaction's marker comes before or after such a fact."""
        self.partition = partition
        self._gathers = gathers
        self._unwritten: list[JournalRecord] = []
        self._unwritten_bytes = 0
        self._held: list[tuple[Sequence[Reply], Sequence[Any]]] = []
        """What waits for them to be written, and then at the gate."""
        self._writes_soon = False
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self.machine = make_machine()
        self._make_machine = make_machine
        self._runtime = runtime
        self._perform = perform
        self._confirms = confirms
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._next_waiter = 1
        self._gate: deque[tuple[int, Sequence[Reply], Sequence[Any]]] = deque()
        self._gate_offset = 0
        self._undecided: dict[int, list[JournalRecord]] = {}
        """While loading: facts of transactions whose marker has not come yet, by producer."""
        self.settle: Callable[[], Awaitable[None]] = _settled
        """Before each load: ends what an earlier life left open in the journal."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called after each load, before anybody is answered from it."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        partition.on_commit.append(self._committed, self._broke)

    # -- life ------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the committed log (R21): only what is below the high watermark of our own epoch counts."""
        try:
            await self._load()
        except HeadraceError as problem:
            # Somebody else leads by now; should it be us again, a new shard loads.
            log.info("%s: not loaded: %s", self.partition.tp, problem.detail)

    async def _load(self) -> None:
        await self.partition.wait_leader_ready()
        await self.settle()
        self._undecided.clear()
        position = self.partition.log.start_offset
        end = self.partition.log.end_offset
        # After a reload our own last writes may still be on their way: they will count, so they must be seen.
        await self._wait_committed(end)
        while position < end and self.state is ShardState.LOADING:
            data = self.partition.read_all(position, LOAD_CHUNK_BYTES)
            if not data:
                break
            for at, header in scan(data):
                self._replay_batch(data, at)
                position = header.next_offset
            await asyncio.sleep(0)
        if self.state is not ShardState.LOADING:
            return
        self._gate_offset = position
        self.state = ShardState.READY
        self.on_ready()
        self._execute(self.machine.loaded(self._runtime.clock.now_ms()))

    async def _wait_committed(self, end: int) -> None:
        while self.partition.high_watermark < end:
            settled: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
            deadline_ms = self._runtime.clock.now_ms() + LOAD_WAIT_MS
            self.partition.when_committed(end, deadline_ms, settled.set_result)
            kind = await settled
            if kind not in (ErrorKind.NONE, ErrorKind.REQUEST_TIMED_OUT):
                raise HeadraceError(kind, "the journal was not committed")

    def _replay_batch(self, data: Buffer, at: int) -> None:
        header = read_header(data, at)
        now_ms = self._runtime.clock.now_ms()
        if header.is_control:
            marker = read_control(data, at)
            if marker is not None:
                self._replay_marker(header, marker.commit, now_ms)
            return
        for record in read_records(data, at, max_bytes=MAX_DECOMPRESSED_BYTES):
            if record.key is None:
                continue
            journaled = JournalRecord(record.key, record.value)
            if not header.is_transactional:
                self.machine.replay(journaled, now_ms)
            elif isinstance(self.machine, TransactionalMachine):
                self.machine.replay_transactional(journaled, header.producer_id, now_ms)
            else:
                self._undecided.setdefault(header.producer_id, []).append(journaled)

    def _replay_marker(self, header: BatchHeader, commit: bool, now_ms: int) -> None:
        if isinstance(self.machine, TransactionalMachine):
            self.machine.replay_marker(header.producer_id, header.producer_epoch, commit, now_ms)
            return
        for journaled in self._undecided.pop(header.producer_id, ()):
            if commit:
                self.machine.replay(journaled, now_ms)

    def close(self, kind: ErrorKind = ErrorKind.NOT_COORDINATOR) -> None:
        """Leadership is gone, or memory can't be trusted: nobody who waits may be told that it worked (R18)."""
        self.state = ShardState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._gate.clear()
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._held.clear()
        if self._committed in self.partition.on_commit:
            self.partition.on_commit.remove(self._committed)
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            if not future.done():
                future.set_exception(HeadraceError(kind))

    @property
    def is_settled(self) -> bool:
        """Everything memory says is committed in the journal, and nothing waits for a transaction's end."""
        journal = self.partition
        is_written = not self._unwritten and self._gate_offset <= journal.high_watermark
        return is_written and journal.log.first_unstable_offset is None

    # -- commands --------------------------------------------------------------------------------------------

    def submit(self, make_command: Callable[[int], Any]) -> asyncio.Future[Any]:
        """Decide one command now. The future resolves when the machine has answered and the answer is durable."""
        return self.submit_as(None, make_command)

    def submit_as(
        self, producer: tuple[int, int] | None, make_command: Callable[[int], Any]
    ) -> asyncio.Future[Any]:
        """As `submit`, with the facts in `producer`'s open transaction: they count when it commits (R60)."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.state is not ShardState.READY:
            loading = self.state is ShardState.LOADING
            kind = ErrorKind.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorKind.NOT_COORDINATOR
            future.set_exception(HeadraceError(kind))
            return future
        waiter = self._next_waiter
        self._next_waiter += 1
        self._waiters[waiter] = future
        command = make_command(waiter)
        plan = self.machine.decide(command, self._runtime.clock.now_ms())
        if not self._must_ask_followers(plan, command) or self._append_barrier(plan):
            self._execute(plan, producer)
        return future

    def _must_ask_followers(self, plan: Plan, command: Any) -> bool:
        """Whether we have to be sure that we still lead before this leaves (R7). Durable facts ask by themselves."""
        if any(fact.durable for fact in plan.facts) or not any(
            reply.waiter in self._waiters for reply in plan.replies
        ):
            return False
        if not self.partition.is_trusted_alone:
            return True
        return self.partition.has_rivals and any(self._confirms(command, value) for _, value in plan.replies)

    def _append_barrier(self, plan: Plan) -> bool:
        """Shuts the gate until the followers have confirmed us. Where that can't be had, nobody is answered."""
        self._write_out()
        if self.state is not ShardState.READY:
            return False
        try:
            self._append([BARRIER], None)
        except HeadraceError as problem:
            for waiter, _ in plan.replies:
                future = self._waiters.pop(waiter, None)
                if future is not None and not future.done():
                    kind = _AS_A_COORDINATOR_SAYS.get(problem.kind, problem.kind)
                    future.set_exception(HeadraceError(kind, problem.detail))
            return False
        return True

    def tell(self, command: Any) -> None:
        """A command nobody waits for."""
        if self.state is ShardState.READY:
            plan = self.machine.decide(command, self._runtime.clock.now_ms())
            self._execute(plan, barrier=self._must_ask_followers(plan, command))

    def _execute(self, plan: Plan, of_all: tuple[int, int] | None = None, *, barrier: bool = False) -> None:
        machine = self.machine
        now_ms = self._runtime.clock.now_ms()
        journal: list[JournalRecord] = [BARRIER] if barrier else []
        transactional: dict[tuple[int, int], list[JournalRecord]] = {}
        try:
            for fact in plan.facts:
                machine.apply(fact, now_ms)
                if fact.durable:
                    producer = of_all or getattr(fact, "producer", None)
                    target = journal if producer is None else transactional.setdefault(producer, [])
                    target.extend(machine.encode(fact))
            if journal and self._gathers and not transactional:
                self._gather(journal)
            elif journal or transactional:
                self._append_unwritten()
                if journal:
                    self._append(journal, None)
                for producer, records in transactional.items():
                    self._append(records, producer)
                self._committed(self.partition.high_watermark)
        except Exception as problem:
            self._not_written(problem)
            return
        if plan.replies or plan.effects:
            if self._unwritten:
                self._held.append((plan.replies, plan.effects))
            elif self._gate_offset <= self.partition.high_watermark:
                self._release(plan.replies, plan.effects)
            else:
                self._gate.append((self._gate_offset, plan.replies, plan.effects))
        self._arm()

    def _gather(self, journal: list[JournalRecord]) -> None:
        """Facts of one plan stay together: a batch is written whole or not at all."""
        if self._unwritten_bytes >= GATHERED_BYTES:
            self._append_unwritten()
        self._unwritten += journal
        self._unwritten_bytes += sum(len(entry.key) + len(entry.value or b"") for entry in journal)
        if not self._writes_soon:
            self._writes_soon = True
            asyncio.get_running_loop().call_soon(self._write_soon)

    def _write_soon(self) -> None:
        self._writes_soon = False
        self._write_out()

    def _write_out(self) -> None:
        try:
            self._append_unwritten()
        except Exception as problem:
            self._not_written(problem)
        else:
            self._committed(self.partition.high_watermark)

    def _append_unwritten(self) -> None:
        if not self._unwritten:
            return
        journal, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        held, self._held = self._held, []
        self._append(journal, None)
        self._gate.extend((self._gate_offset, replies, effects) for replies, effects in held)

    def _not_written(self, problem: Exception) -> None:
        if isinstance(problem, HeadraceError):
            log.error("journal %s: %s; loading it again", self.partition.tp, problem.detail)
            self.reload(problem.kind)
        else:
            # A bug: but whatever it was, memory may hold what the log does not, and nobody may be told of it.
            log.error(
                "journal %s: a fact could not be written; loading it again",
                self.partition.tp,
                exc_info=problem,
            )
            self.reload(ErrorKind.UNKNOWN_SERVER_ERROR)

    def _append(self, journal: list[JournalRecord], producer: tuple[int, int] | None) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        records = [Record(entry.key, entry.value, (), wall_ms) for entry in journal]
        pid, epoch = producer if producer is not None else (-1, -1)
        batch = build_batch(
            records,
            wall_ms=wall_ms,
            producer_id=pid,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        last_offset = self.partition.append_internal(batch, urgent=True)
        self._gate_offset = last_offset + 1

    def reload(self, kind: ErrorKind) -> None:
        """Memory can't be trusted: throw it away and begin again from the log."""
        self.close(_AS_A_COORDINATOR_SAYS.get(kind, kind))
        if self.partition.is_leader and not self.partition.failed:
            self.machine = self._make_machine()
            self.state = ShardState.LOADING
            self.partition.on_commit.append(self._committed, self._broke)
            self._runtime.spawn(self.load(), f"load {self.partition.tp}")

    def _broke(self, problem: Exception) -> None:
        """Somebody at the gate raised: what was let go and what was not is unknown (F16)."""
        self.reload(ErrorKind.UNKNOWN_SERVER_ERROR)

    # -- the gate and the clock ------------------------------------------------------------------------------

    def _committed(self, high_watermark: int) -> None:
        gate = self._gate
        while gate and gate[0][0] <= high_watermark:
            _, replies, effects = gate.popleft()
            self._release(replies, effects)

    def _release(self, replies: Sequence[Reply], effects: Sequence[Any]) -> None:
        for waiter, value in replies:
            future = self._waiters.pop(waiter, None)
            if future is not None and not future.done():
                future.set_result(value)
        for effect in effects:
            self._perform(self, effect)

    def _arm(self) -> None:
        at = self.machine.next_deadline()
        if at == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at is not None:
            delay_s = max(0, at - self._runtime.clock.now_ms()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._timer_at = None
        if self.state is ShardState.READY:
            plan = self.machine.expire(self._runtime.clock.now_ms())
            self._execute(plan, barrier=self._must_ask_followers(plan, None))


async def _settled() -> None:
    """Nothing was left open."""
