"""Driver: one load of a shard: the life of its machine from the first record that is replayed until it is thrown away.

Whatever is done for the machine belongs to its load and ends with it: who waits for an answer, the gate, what is not
written yet, the timer, and the tasks that effects started (`spawn`). A load that has ended decides, writes, performs and
answers nothing more, whoever still holds it; so nobody acts for memory that is gone
([decision 0018](../../../docs/decisions/0018-a-load-has-a-generation.md)).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from itertools import repeat
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from headrace.broker.partition import Partition
from headrace.broker.replay import JournalReplay
from headrace.broker.runtime import Runtime
from headrace.broker.supervision import Work
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import AnyCommand, Command, JournalRecord, Machine, Plan, R, Rejected, Reply
from headrace.records.build import Record, build_batch

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine[Any])
E = TypeVar("E")

_durable = attrgetter("durable")

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

REFUSED_S = 0.1
"""A timer whose facts can't be written now is tried again after this."""
FIRST_PAUSE_S = 0.05
MAX_PAUSE_S = 2.0


_AS_A_COORDINATOR_SAYS = {
    ErrorKind.NOT_LEADER_OR_FOLLOWER: ErrorKind.NOT_COORDINATOR,
    ErrorKind.KAFKA_STORAGE_ERROR: ErrorKind.NOT_COORDINATOR,
    ErrorKind.NOT_ENOUGH_REPLICAS: ErrorKind.COORDINATOR_NOT_AVAILABLE,
    ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorKind.COORDINATOR_NOT_AVAILABLE,
}
"""A journal's troubles in the words that clients of coordinators know and retry, as in Kafka."""


Confirms = Callable[[AnyCommand | None, object], bool]
"""(command, answer) -> whether a client may come to harm if a coordinator that was just replaced answers so. No command: the
answer to one of long ago."""


class CommandRefused(HeadraceError):
    """The machine refused the command: nothing has happened."""


class ShardState(Enum):
    LOADING = "loading"
    READY = "ready"
    CLOSED = "closed"


class LoadedShard(Protocol[M, E]):
    """What a load has to know of the shard that it is a life of (shards.Shard)."""

    @property
    def runtime(self) -> Runtime: ...

    @property
    def partition(self) -> Partition: ...

    @property
    def gathers(self) -> bool: ...

    @property
    def leads(self) -> bool: ...

    @property
    def perform(self) -> Callable[[Load[M, E], E], None]: ...

    @property
    def confirms(self) -> Confirms: ...

    @property
    def settle(self) -> Callable[[], Awaitable[None]]: ...

    def load_again(self, load: Load[M, E], kind: ErrorKind) -> None: ...


class Load(Generic[M, E]):
    """`M` is the kind of machine, `E` what it may want done."""

    def __init__(self, shard: LoadedShard[M, E], generation: int, machine: M) -> None:
        self.shard = shard
        self.generation = generation
        """The first load of a shard is 1. Every later one follows trouble with its journal."""
        self.machine = machine
        self.state = ShardState.LOADING
        self.began_ms = shard.runtime.clock.now_ms()
        self._runtime = shard.runtime
        self._partition = shard.partition
        self._unwritten: list[JournalRecord] = []
        self._unwritten_bytes = 0
        self._held: list[tuple[Sequence[Reply], Sequence[E]]] = []
        """What waits for them to be written, and then at the gate."""
        self._writes_soon = False
        self._waiters: dict[int, asyncio.Future[Any]] = {}
        self._next_waiter = 1
        self._gate: deque[tuple[int, Sequence[Reply], Sequence[E]]] = deque()
        self._gate_offset = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._tasks: dict[asyncio.Task[object], None] = {}

    # -- life ------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.state is ShardState.CLOSED

    def check(self) -> None:
        """Raises when this load is over."""
        if self.ended:
            raise HeadraceError(ErrorKind.NOT_COORDINATOR, f"{self._partition.tp} was loaded anew meanwhile")

    def spawn(self, coro: Work, name: str) -> None:
        """A task that is cancelled when this load ends."""
        if self.ended:
            coro.close()
            return
        task = self._runtime.spawn(coro, name)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def load(self) -> None:
        """Replay the committed log (R21): only what is below the high watermark of our own epoch counts."""
        partition = self._partition
        await partition.wait_leader_ready()
        await self.shard.settle()
        if self.generation > 1:
            await self._until_it_takes_writes()
        # After a reload our own last writes may still be on their way: they will count, so they must be seen.
        await self._wait_committed(partition.log.end_offset)
        replay, position = JournalReplay(self.machine), partition.log.start_offset
        while (data := partition.read_all(position, LOAD_CHUNK_BYTES)) and not self.ended:
            position = replay.read(data, self._runtime.clock.now_ms())
            if position >= partition.high_watermark:
                break
            await asyncio.sleep(0)
        # Nothing awaits from the last read on: what is committed later is told to a load that is ready (F5).
        if not self.ended:
            self._gate_offset = position
            self.state = ShardState.READY
            now_ms = self._runtime.clock.now_ms()
            self._execute(self.machine.loaded(now_ms), now_ms)

    async def _until_it_takes_writes(self) -> None:
        """A journal that has just refused a write is not read all over again only to be refused once more (F83)."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                self._append([BARRIER], None)
                return
            except HeadraceError as problem:
                if not self.shard.leads:
                    raise
                log.info("journal %s takes no writes yet: %s", self._partition.tp, problem.detail)
            await asyncio.sleep(pause_s)
            pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    async def _wait_committed(self, end: int) -> None:
        while self._partition.high_watermark < end:
            settled: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
            deadline_ms = self._runtime.clock.now_ms() + LOAD_WAIT_MS
            self._partition.when_committed(end, deadline_ms, setter(settled))
            kind = await settled
            if kind not in (ErrorKind.NONE, ErrorKind.REQUEST_TIMED_OUT):
                raise HeadraceError(kind, f"the journal was not committed: {kind.name}")

    def end(self, kind: ErrorKind) -> None:
        """Leadership is gone, or memory can't be trusted: nobody who waits may be told that it worked (R18)."""
        self.state = ShardState.CLOSED
        self._stop_timer()
        self._gate.clear()
        self._unwritten.clear()
        self._unwritten_bytes = 0
        self._held.clear()
        for task in list(self._tasks):
            task.cancel()
        waiters, self._waiters = self._waiters, {}
        for future in waiters.values():
            _fail(future, kind)

    def distrust(self, kind: ErrorKind) -> None:
        """This memory may not be what the log says: begin again from the log. Nothing happens when it is gone already."""
        self.shard.load_again(self, kind)

    @property
    def is_settled(self) -> bool:
        """Everything memory says is committed in the journal, and nothing waits for a transaction's end."""
        journal = self._partition
        is_written = not self._unwritten and self._gate_offset <= journal.high_watermark
        return is_written and journal.log.first_unstable_offset is None

    # -- commands --------------------------------------------------------------------------------------------

    def submit(self, command: Command[R], producer: tuple[int, int] | None = None) -> asyncio.Future[R]:
        """Decide one command now. The future resolves when the machine has answered and the answer is durable; a refusal is
        raised. With a `producer`: the facts go into its open transaction, and count when it commits (R60)."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        if self.state is not ShardState.READY:
            loading = self.state is ShardState.LOADING
            _fail(future, ErrorKind.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorKind.NOT_COORDINATOR)
            return future
        command.waiter = waiter = self._next_waiter
        self._next_waiter += 1
        self._waiters[waiter] = future
        now_ms = self._runtime.clock.now_ms()
        plan = self.machine.decide(command, now_ms)
        durable = any(map(_durable, plan.facts))
        asks = not durable and self._must_ask_followers(plan, command)
        if (durable or asks) and (refusal := self._partition.refusal(-1)) is not None:
            # Nothing was applied yet, so nothing has to be undone (F83).
            self._waiters.pop(waiter, None)
            _fail(future, refusal, f"{self._partition.tp} takes no writes: {refusal.name}")
        elif not asks or self._append_barrier(plan):
            self._execute(plan, now_ms, producer)
        return future

    def tell(self, command: AnyCommand) -> bool:
        """A command of this load that nobody waits for; false when it was not heard: not ready, or no more.

        What can't be written would be missing in memory, and is no client's to repeat: then the shard loads again.
        """
        if self.state is not ShardState.READY:
            return False
        now_ms = self._runtime.clock.now_ms()
        plan = self.machine.decide(command, now_ms)
        durable = any(map(_durable, plan.facts))
        asks = not durable and bool(plan.replies) and self._must_ask_followers(plan, command)
        if (durable or asks) and (refusal := self._partition.refusal(-1)) is not None:
            self.distrust(refusal)
        else:
            self._execute(plan, now_ms, barrier=asks)
        return not self.ended

    def _must_ask_followers(self, plan: Plan[E], command: AnyCommand | None) -> bool:
        """Whether we have to be sure that we still lead before this leaves (R7). Durable facts ask by themselves."""
        for reply in plan.replies:
            if reply.waiter in self._waiters:
                break
        else:
            return False
        if not self._partition.is_trusted_alone:
            return True
        confirms = self.shard.confirms
        return self._partition.has_rivals and any(confirms(command, value) for _, value in plan.replies)

    def _append_barrier(self, plan: Plan[E]) -> bool:
        """Shuts the gate until the followers have confirmed us. Where that can't be had, nobody is answered."""
        self._write_out()
        if self.state is not ShardState.READY:
            return False
        try:
            self._append([BARRIER], None)
        except HeadraceError as problem:
            for waiter, _ in plan.replies:
                _fail(self._waiters.pop(waiter, None), problem.kind, problem.detail)
            return False
        return True

    def _execute(
        self, plan: Plan[E], now_ms: int, of_all: tuple[int, int] | None = None, *, barrier: bool = False
    ) -> None:
        machine = self.machine
        journal: list[JournalRecord] = [BARRIER] if barrier else []
        transactional: dict[tuple[int, int], list[JournalRecord]] = {}
        try:
            for fact in plan.facts:
                machine.apply(fact, now_ms)
                if fact.durable:
                    producer = of_all or getattr(fact, "producer", None)
                    target = journal if producer is None else transactional.setdefault(producer, [])
                    target.extend(machine.encode(fact))
            if journal and self.shard.gathers and not transactional:
                self._gather(journal)
            elif journal or transactional:
                self._append_unwritten()
                if journal:
                    self._append(journal, None)
                for producer, records in transactional.items():
                    self._append(records, producer)
                self.committed(self._partition.high_watermark)
        except Exception as problem:
            self._not_written(problem)
        if self.state is ShardState.CLOSED:
            return
        if plan.replies or plan.effects:
            if self._unwritten:
                self._held.append((plan.replies, plan.effects))
            elif self._gate_offset <= self._partition.high_watermark:
                self._release(plan.replies, plan.effects)
            else:
                self._gate.append((self._gate_offset, plan.replies, plan.effects))
        self._arm()

    # -- the journal -----------------------------------------------------------------------------------------

    def _gather(self, journal: list[JournalRecord]) -> None:
        """Facts of one plan stay together: a batch is written whole or not at all."""
        if self._unwritten_bytes >= GATHERED_BYTES:
            self._append_unwritten()
        self._unwritten += journal
        for key, value in journal:
            self._unwritten_bytes += len(key) + len(value or b"")
        if not self._writes_soon:
            self._writes_soon = True
            asyncio.get_running_loop().call_soon(self._write_out)

    def _write_out(self) -> None:
        self._writes_soon = False
        try:
            self._append_unwritten()
        except Exception as problem:
            self._not_written(problem)
        else:
            if self._gate and self._gate[0][0] <= self._partition.high_watermark:
                self.committed(self._partition.high_watermark)

    def _append_unwritten(self) -> None:
        if not self._unwritten:
            return
        journal, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        held, self._held = self._held, []
        self._append(journal, None)
        for replies, effects in held:
            self._gate.append((self._gate_offset, replies, effects))

    def _append(self, journal: list[JournalRecord], producer: tuple[int, int] | None) -> None:
        wall_ms = self._runtime.clock.wall_ms()
        records = list(map(Record, *zip(*journal, strict=True), repeat(()), repeat(wall_ms)))
        pid, epoch = producer if producer is not None else (-1, -1)
        batch = build_batch(
            records,
            wall_ms=wall_ms,
            producer_id=pid,
            producer_epoch=epoch,
            transactional=producer is not None,
        )
        last_offset = self._partition.append_internal(batch, urgent=True, wall_ms=wall_ms)
        self._gate_offset = last_offset + 1

    def _not_written(self, problem: Exception) -> None:
        """Memory is ahead of the log: throw it away."""
        if isinstance(problem, HeadraceError):
            log.error("journal %s: %s; loading it again", self._partition.tp, problem.detail)
            self.distrust(problem.kind)
        else:
            # A bug: but whatever it was, memory may hold what the log does not, and nobody may be told of it.
            log.error(
                "journal %s: a fact could not be written; loading it again",
                self._partition.tp,
                exc_info=problem,
            )
            self.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)

    # -- the gate and the clock ------------------------------------------------------------------------------

    def committed(self, high_watermark: int) -> None:
        gate = self._gate
        while gate and gate[0][0] <= high_watermark:
            _, replies, effects = gate.popleft()
            self._release(replies, effects)

    def _release(self, replies: Sequence[Reply], effects: Sequence[E]) -> None:
        for waiter, value in replies:
            future = self._waiters.pop(waiter, None)
            if future is None or future.done():
                continue
            if type(value) is Rejected:
                future.set_exception(CommandRefused(value.kind, value.detail))
            else:
                future.set_result(value)
        for effect in effects:
            if self.ended:
                return
            self.shard.perform(self, effect)

    def _arm(self) -> None:
        at = self.machine.next_deadline()
        if at is None or (self._timer is not None and self._timer_at is not None and self._timer_at <= at):
            return  # it rings early at most, and is set anew then: most leases end before their time
        self._stop_timer()
        self._timer_at = at
        delay_s = max(0, at - self._runtime.clock.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        self._timer_at = None
        at = self.machine.next_deadline()
        if at is None or at > self._runtime.clock.now_ms():
            self._arm()  # what it was set for has ended before its time
        else:
            self._expire()

    def _expire(self) -> None:
        self._timer = None
        now_ms = self._runtime.clock.now_ms()
        try:
            plan = self.machine.expire(now_ms)
        except Exception as problem:
            self._not_written(problem)  # else time would stand still for this shard
            return
        durable = any(map(_durable, plan.facts))
        asks = not durable and self._must_ask_followers(plan, None)
        if (durable or asks) and self._partition.refusal(-1) is not None:
            # Nothing is lost: what is due stays due.
            self._timer = asyncio.get_running_loop().call_later(REFUSED_S, self._expire)
        else:
            self._execute(plan, now_ms, barrier=asks)


def setter(future: asyncio.Future[ErrorKind]) -> Callable[[ErrorKind], None]:
    """A callback for whoever waits with `future`, unless it has gone."""
    return lambda kind: None if future.done() else future.set_result(kind)


def _fail(future: asyncio.Future[R] | None, kind: ErrorKind, detail: str = "") -> None:
    if future is not None and not future.done():
        future.set_exception(HeadraceError(_AS_A_COORDINATOR_SAYS.get(kind, kind), detail))
