"""The shard runtime: replies wait for their facts (the gate), a failed journal write means load again, timers fire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from headrace.broker import load as loads
from headrace.broker.commit_listeners import CommitListeners
from headrace.broker.load import Load, ShardState
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import JournalRecord, Plan, Reply
from headrace.records.batch import read_header, scan, stamp
from headrace.records.build import Record, build_batch, build_control_batch
from headrace.testing.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Added:
    number: int
    durable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Seen:
    durable: ClassVar[bool] = False


class Sum:
    """A machine: adds numbers. Commands are (waiter, number); 0 asks for the sum, 13 can't be encoded."""

    def __init__(self) -> None:
        self.total = 0
        self.seen = 0
        self.deadline: int | None = None
        self.fired: list[int] = []

    def decide(self, command: tuple[int, int], now_ms: int) -> Plan:
        waiter, number = command
        if number == 0:
            return Plan((Seen(),), (Reply(waiter, self.total),))
        return Plan((Added(number),), (Reply(waiter, self.total + number),), (f"added {number}",))

    def apply(self, fact: Any, now_ms: int) -> None:
        if isinstance(fact, Added):
            self.total += fact.number
            if fact.number == 99:
                self.deadline = now_ms + 5_000
        else:
            self.seen += 1

    def encode(self, fact: Added) -> list[JournalRecord]:
        if fact.number == 13:
            raise OverflowError("unlucky")
        return [JournalRecord(b"add", str(fact.number).encode())]

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        if record.key != b"add":
            return
        self.total += int(record.value or b"0")

    def loaded(self, now_ms: int) -> Plan:
        return Plan()

    def next_deadline(self) -> int | None:
        return self.deadline

    def expire(self, now_ms: int) -> Plan:
        self.fired.append(now_ms)
        self.deadline = None
        return Plan()


class Partition:
    """A journal whose commits are said by the test."""

    tp = "journal-0"
    leader_epoch = 3
    is_leader = True
    is_trusted_alone = True
    has_rivals = True
    failed = False

    def __init__(self) -> None:
        self.batches = b""
        self.high_watermark = 0
        self.end_offset = 0
        self.start_offset = 0
        self.first_unstable_offset: int | None = None
        self.log = self
        self.on_commit = CommitListeners(Runtime(), TopicPartition("journal", 0))  # type: ignore[arg-type]
        self.waiting: list[tuple[int, Callable[[ErrorKind], None]]] = []
        self.refuses: ErrorKind | None = None
        """It says so before it is tried (too few replicas)."""
        self.fails: ErrorKind | None = None
        """It finds out (no space left)."""

    def refusal(self, acks: int) -> ErrorKind | None:
        assert acks == -1
        return self.refuses

    async def wait_leader_ready(self) -> None:
        pass

    def read_all(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for at, header in scan(self.batches):
            if header.base_offset >= offset and header.next_offset <= self.high_watermark:
                found += self.batches[at : at + header.size]
        return found

    def append_internal(self, batch: bytes, *, urgent: bool) -> int:
        assert urgent, "somebody waits for it"
        problem = self.refuses or self.fails
        if problem is not None:
            raise HeadraceError(problem, "no")
        written = bytearray(batch)
        stamp(written, 0, self.end_offset, self.leader_epoch)
        self.batches += bytes(written)
        self.end_offset += read_header(written).record_count
        return self.end_offset - 1

    def when_committed(self, offset: int, deadline_ms: int, callback: Callable[[ErrorKind], None]) -> None:
        if offset <= self.high_watermark:
            callback(ErrorKind.NONE)
        else:
            self.waiting.append((offset, callback))

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self.on_commit.tell(self.high_watermark)
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback(ErrorKind.NONE)


class Runtime:
    def __init__(self) -> None:
        self.clock = self

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_750_000_000_000

    def unexpected(self, where: str, problem: Exception, what: str) -> None:
        """A listener raised, and somebody is told."""

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)


class Bench:
    def __init__(self, machine: type[Sum] = Sum, *, gathers: bool = False) -> None:
        self.partition = Partition()
        self.performed: list[str] = []
        self.careful = False
        self.shard = Shard(
            Runtime(), self.partition, machine, lambda shard, effect: self.performed.append(effect),  # type: ignore[arg-type]
            lambda command, answer: self.careful, gathers=gathers,
        )  # fmt: skip

    async def ready(self) -> Bench:
        await self.shard.current.load()
        assert self.shard.state is ShardState.READY
        return self

    def ask(self, number: int) -> asyncio.Future[int]:
        return self.shard.submit(lambda waiter: (waiter, number))


def simulate(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run(_: Any) -> None:
        await scenario()

    Simulation(1).run(run, limit_s=600.0)


def test_replies_and_effects_wait_for_their_facts() -> None:
    """R42, R53: also a reply that only read waits for every fact before it."""

    async def scenario() -> None:
        bench = await Bench().ready()
        first, second, reader = bench.ask(1), bench.ask(2), bench.ask(0)
        await asyncio.sleep(1)
        assert not (first.done() or second.done() or reader.done() or bench.performed)
        bench.partition.commit()
        assert (await first, await second, await reader) == (1, 3, 3)
        assert bench.performed == ["added 1", "added 2"]
        assert await bench.ask(0) == 3, "nothing is pending: answered at once"

    simulate(scenario)


def test_without_the_lease_an_answer_waits_for_the_followers() -> None:
    """R7, R42: a coordinator that was replaced unnoticed must not answer from the past, not even what changes nothing."""

    async def scenario() -> None:
        bench = await Bench().ready()
        bench.ask(4)
        bench.partition.commit()
        bench.partition.is_trusted_alone = False
        reader = bench.ask(0)
        await asyncio.sleep(1)
        assert not reader.done(), "nobody has confirmed that we still lead"
        bench.partition.commit()
        assert await reader == 4

    simulate(scenario)


def test_an_answer_that_a_client_builds_on_waits_for_the_followers_even_under_the_lease() -> None:
    """R7, R8, R42: leaderships are also moved while the lease lasts, and news of it may come late."""

    async def scenario() -> None:
        bench = await Bench().ready()
        bench.careful = True
        reader = bench.ask(0)
        await asyncio.sleep(1)
        assert not reader.done()
        bench.partition.commit()
        assert await reader == 0
        bench.partition.has_rivals = False
        assert await bench.ask(0) == 0, "the only replica has nobody to ask"

    simulate(scenario)


def test_who_can_not_be_confirmed_answers_nobody_and_keeps_its_memory() -> None:
    """R7: fewer in-sync replicas than it takes; nothing was changed, so there is no reason to load again."""

    async def scenario() -> None:
        bench = await Bench().ready()
        bench.careful, bench.partition.refuses = True, ErrorKind.NOT_ENOUGH_REPLICAS
        with pytest.raises(HeadraceError) as refused:
            await bench.ask(0)
        assert refused.value.kind is ErrorKind.COORDINATOR_NOT_AVAILABLE
        assert bench.shard.state is ShardState.READY

    simulate(scenario)


def test_replay_makes_the_same_state() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        for number in (5, 6, 7):
            bench.ask(number)
        bench.partition.commit()
        again = Bench()
        again.partition.batches, again.partition.end_offset = bench.partition.batches, 3
        again.partition.high_watermark = 3
        await again.ready()
        assert await again.ask(0) == 18

    simulate(scenario)


@pytest.mark.parametrize("trouble", ["refused", "unencodable"])
def test_a_fact_that_is_not_journaled_never_was(trouble: str) -> None:
    """Memory is ahead of the log: throw it away, tell everybody who waits that it failed, load again."""

    async def scenario() -> None:
        bench = await Bench().ready()
        waiting = bench.ask(1)
        if trouble == "refused":
            bench.partition.fails = ErrorKind.KAFKA_STORAGE_ERROR
        failed = bench.ask(13 if trouble == "unencodable" else 2)
        for future in (waiting, failed):
            with pytest.raises(HeadraceError):
                await future
        bench.partition.fails = None
        early = bench.ask(0)
        with pytest.raises(HeadraceError) as refused:
            await early
        assert refused.value.kind is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert bench.shard.state is ShardState.LOADING, (
            "the write of 1 is under way and will count: it is waited for"
        )
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert await bench.ask(0) == 1, "what was written is there, what was not is gone"

    simulate(scenario)


def sizes(partition: Partition) -> list[int]:
    """How many records each batch of the journal has."""
    return [header.record_count for _, header in scan(partition.batches)]


def test_what_is_decided_in_one_turn_is_journaled_as_one_batch() -> None:
    """R53: whoever only read waits for the facts before it, also when they are not even written yet."""

    async def scenario() -> None:
        bench = await Bench(gathers=True).ready()
        first, second, reader = bench.ask(1), bench.ask(2), bench.ask(0)
        assert sizes(bench.partition) == [] and not bench.shard.is_settled
        await asyncio.sleep(1)
        assert sizes(bench.partition) == [2]
        assert not (first.done() or second.done() or reader.done() or bench.performed)
        bench.partition.commit()
        assert (await first, await second, await reader) == (1, 3, 3)
        assert bench.performed == ["added 1", "added 2"]
        assert await bench.ask(0) == 3

    simulate(scenario)


def test_what_was_gathered_is_written_before_the_followers_are_asked() -> None:
    """R7: the barrier says that everything before it is ours."""

    async def scenario() -> None:
        bench = await Bench(gathers=True).ready()
        bench.careful = True
        fact, reader = bench.ask(1), bench.ask(0)
        assert sizes(bench.partition) == [1, 1]
        bench.partition.commit()
        assert (await fact, await reader) == (1, 1)

    simulate(scenario)


def test_what_was_gathered_and_can_not_be_written_never_was() -> None:
    async def scenario() -> None:
        bench = await Bench(gathers=True).ready()
        bench.partition.fails = ErrorKind.KAFKA_STORAGE_ERROR
        for future in (bench.ask(1), bench.ask(2), bench.ask(0)):
            with pytest.raises(HeadraceError):
                await future
        bench.partition.fails = None
        await asyncio.sleep(1)
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert await bench.ask(0) == 0, "nobody was told, and nothing is remembered"

    simulate(scenario)


def test_what_was_gathered_is_not_written_after_the_leadership_is_lost() -> None:
    """R18: and nobody is told that it worked."""

    async def scenario() -> None:
        bench = await Bench(gathers=True).ready()
        waiting = bench.ask(1)
        bench.shard.close()
        await asyncio.sleep(1)
        assert sizes(bench.partition) == []
        with pytest.raises(HeadraceError):
            await waiting

    simulate(scenario)


def test_much_is_not_gathered_for_long() -> None:
    async def scenario() -> None:
        bench = await Bench(gathers=True).ready()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loads, "GATHERED_BYTES", 1)
            asked = [bench.ask(number) for number in (1, 2, 3)]
            assert sizes(bench.partition) == [1, 1]
        await asyncio.sleep(1)
        bench.partition.commit()
        assert [await one for one in asked] == [1, 3, 6]

    simulate(scenario)


def test_losing_the_leadership_fails_everybody_who_waits() -> None:
    """R18."""

    async def scenario() -> None:
        bench = await Bench().ready()
        waiting = bench.ask(1)
        bench.shard.close()
        with pytest.raises(HeadraceError) as lost:
            await waiting
        assert lost.value.kind is ErrorKind.NOT_COORDINATOR
        bench.partition.commit()
        assert not bench.performed
        with pytest.raises(HeadraceError):
            await bench.ask(0)

    simulate(scenario)


def test_timers_fire_on_time_and_once() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.ask(99)
        bench.partition.commit()
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(4.9)
        machine: Any = bench.shard.machine
        assert machine.fired == []
        await asyncio.sleep(60)
        assert [round(ms / 1000 - started, 2) for ms in machine.fired] == [5.0]

    simulate(scenario)


def test_timers_are_armed_again_after_a_reload() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.ask(99)
        bench.partition.commit()
        before: Any = bench.shard.machine
        deadline = before.deadline
        bench.shard.current.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)
        after: Any = bench.shard.machine
        after.deadline = deadline
        await asyncio.sleep(0.1)
        bench.partition.commit()
        await asyncio.sleep(60)
        assert after.fired and not before.fired

    simulate(scenario)


# -- loads -------------------------------------------------------------------------------------------------------------------


def test_f18_a_leader_that_still_leads_loads_until_it_has() -> None:
    """While it waits for its last writes the ISR becomes too small once more, and whoever waits is told so."""

    async def scenario() -> None:
        bench = await Bench().ready()
        bench.ask(1).add_done_callback(lambda future: future.exception())
        bench.shard.current.distrust(ErrorKind.NOT_ENOUGH_REPLICAS)
        for _ in range(3):
            await asyncio.sleep(1)
            waiting, bench.partition.waiting = bench.partition.waiting, []
            assert waiting, "the load waits for what was written before it"
            for _, callback in waiting:
                callback(ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        await asyncio.sleep(5)
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert await bench.ask(0) == 1

    simulate(scenario)


def test_f18_who_leads_no_more_does_not_load_again() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.partition.is_leader = False
        bench.shard.current.distrust(ErrorKind.NOT_LEADER_OR_FOLLOWER)
        await asyncio.sleep(5)
        assert bench.shard.state is ShardState.CLOSED
        with pytest.raises(HeadraceError) as refused:
            await bench.ask(0)
        assert refused.value.kind is ErrorKind.NOT_COORDINATOR

    simulate(scenario)


def test_f83_what_the_journal_refuses_is_not_applied_and_nothing_is_loaded_again() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        first = bench.ask(1)
        bench.partition.refuses = ErrorKind.NOT_ENOUGH_REPLICAS
        with pytest.raises(HeadraceError) as refused:
            await bench.ask(2)
        assert refused.value.kind is ErrorKind.COORDINATOR_NOT_AVAILABLE
        bench.partition.refuses = None
        bench.partition.commit()
        assert (await first, await bench.ask(0)) == (1, 1)
        assert bench.shard.current.generation == 1

    simulate(scenario)


def test_f83_a_journal_that_fails_is_not_read_again_before_it_takes_a_write() -> None:
    """And nobody makes it begin anew meanwhile."""

    async def scenario() -> None:
        bench = await Bench().ready()
        reads = 0
        read_all = bench.partition.read_all

        def counted(offset: int, max_bytes: int) -> bytes:
            nonlocal reads
            reads += 1
            return read_all(offset, max_bytes)

        bench.partition.read_all = counted  # type: ignore[method-assign]
        bench.partition.fails = ErrorKind.KAFKA_STORAGE_ERROR
        for _ in range(100):
            with pytest.raises(HeadraceError) as refused:
                await bench.ask(1)
            assert refused.value.kind.info.retriable
            await asyncio.sleep(0.1)
        assert reads == 0 and bench.shard.current.generation == 2
        bench.partition.fails = None
        await asyncio.sleep(5)
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert await bench.ask(0) == 0 and reads == 1

    simulate(scenario)


def test_f83_what_is_due_stays_due_until_it_can_be_written() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        machine: Any = bench.shard.machine
        machine.deadline = asyncio.get_running_loop().time() * 1000 + 1_000
        machine.expire = lambda now_ms: Plan((Added(5),)) if machine.total == 0 else Plan()
        bench.ask(0)
        bench.partition.refuses = ErrorKind.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(3)
        assert machine.total == 0
        bench.partition.refuses, machine.deadline = None, None
        await asyncio.sleep(1)
        assert machine.total == 5 and bench.shard.machine is machine

    simulate(scenario)


def test_troubles_that_follow_each_other_are_paused_for() -> None:
    """A fact that can't be encoded ends each load; the loop is not to be busy with nothing else."""

    async def scenario() -> None:
        bench = await Bench().ready()
        bench.partition.when_committed = lambda offset, deadline_ms, callback: (
            bench.partition.commit()
            or callback(  # type: ignore[func-returns-value,method-assign]
                ErrorKind.NONE
            )
        )
        for _ in range(1_000):
            bench.ask(13).add_done_callback(lambda future: future.exception())
            await asyncio.sleep(0.01)
        assert 4 <= bench.shard.current.generation <= 20

    simulate(scenario)


def test_what_a_load_started_ends_with_it() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        load = bench.shard.current
        worked: list[int] = []

        async def work() -> None:
            while True:
                await asyncio.sleep(1)
                worked.append(load.generation)

        load.spawn(work(), "work")
        await asyncio.sleep(2.5)
        load.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)
        await asyncio.sleep(0.1)
        bench.partition.commit()
        await asyncio.sleep(5)
        assert bench.shard.state is ShardState.READY and bench.shard.current is not load
        assert worked == [1, 1]
        load.spawn(work(), "too late")
        assert not load.tell((0, 5))
        with pytest.raises(HeadraceError):
            await load.submit(lambda waiter: (waiter, 5))
        with pytest.raises(HeadraceError):
            load.check()
        load.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)
        await asyncio.sleep(5)
        assert worked == [1, 1] and bench.shard.current.generation == 2
        assert await bench.ask(0) == 0

    simulate(scenario)


def test_an_effect_is_performed_for_the_load_that_asked() -> None:
    async def scenario() -> None:
        loads_seen: list[Load] = []
        bench = Bench()
        bench.shard.perform = lambda load, effect: loads_seen.append(load)
        await bench.ready()
        load = bench.shard.current
        answered = bench.ask(1)
        bench.partition.commit()
        assert await answered == 1 and loads_seen == [load]

    simulate(scenario)


def test_news_that_come_while_it_loads_are_heard_when_it_has() -> None:
    """F5: in order, once, and before anybody is answered; also those that could not be written."""

    async def scenario() -> None:
        bench = Bench()
        written = build_batch([Record(b"add", b"1")], wall_ms=1_000)
        bench.partition.append_internal(written, urgent=True)  # by an earlier leader
        bench.shard.start()
        await asyncio.sleep(0.1)
        bench.shard.tell((0, 3))
        assert bench.shard.state is ShardState.LOADING
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert bench.shard.state is ShardState.READY
        bench.partition.commit()
        assert await bench.ask(0) == 4
        bench.partition.refuses = ErrorKind.NOT_ENOUGH_REPLICAS
        bench.shard.tell((0, 4))
        assert bench.shard.state is ShardState.LOADING, "it is nobody's to repeat"
        bench.shard.tell((0, 5))
        bench.partition.refuses = None
        for _ in range(5):
            await asyncio.sleep(1)
            bench.partition.commit()
        assert await bench.ask(0) == 13

    simulate(scenario)


class Ledger(Sum):
    """Transactional facts count when their marker comes."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[int, int] = {}

    def replay_transactional(self, record: JournalRecord, producer_id: int, now_ms: int) -> None:
        self.pending[producer_id] = self.pending.get(producer_id, 0) + int(record.value or b"0")

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool, now_ms: int) -> None:
        amount = self.pending.pop(producer_id, 0)
        self.total += amount if commit else 0


@pytest.mark.parametrize("machine", [Sum, Ledger])
@pytest.mark.parametrize("commit", [True, False])
def test_f71_transactional_facts_are_journaled_in_their_transaction(machine: Any, commit: bool) -> None:
    """R50, R60: a failover finds them, and they count if the marker says so."""

    async def scenario() -> None:
        bench = await Bench().ready()
        answered = bench.shard.current.submit(lambda waiter: (waiter, 5), (7, 2))
        bench.partition.commit()
        assert await answered == 5
        ((_, header),) = scan(bench.partition.batches)
        assert (header.producer_id, header.producer_epoch, header.is_transactional) == (7, 2, True)
        assert header.record_count == 1
        bench.partition.append_internal(build_control_batch(commit, 7, 2, 0, 1_000), urgent=True)
        bench.partition.commit()
        again = Bench(machine)
        again.partition.batches, again.partition.end_offset = bench.partition.batches, 2
        again.partition.high_watermark = 2
        await again.ready()
        assert await again.ask(0) == (5 if commit else 0)

    simulate(scenario)


def test_f5_a_marker_that_is_committed_while_it_finishes_loading_is_not_missed() -> None:
    """With uvloop what arrives is handled between `sleep(0)` and the next step: here a marker's commit, right after the last
    read. Told to a shard that is not ready, it was heard by nobody."""

    async def scenario() -> None:
        old = Bench(Ledger)
        await old.ready()
        old.shard.current.submit(lambda waiter: (waiter, 5), (7, 2))
        old.partition.commit()
        bench = Bench(Ledger)
        partition, shard = bench.partition, bench.shard
        partition.batches, partition.end_offset, partition.high_watermark = old.partition.batches, 1, 1
        read_all, told = partition.read_all, []

        def marker() -> None:
            partition.append_internal(build_control_batch(True, 7, 2, 0, 1_000), urgent=True)
            partition.commit()
            told.append(shard.state)
            if shard.state is ShardState.READY:
                shard.machine.replay_marker(7, 2, True, 0)  # type: ignore[attr-defined]

        def read_and_be_interrupted(offset: int, max_bytes: int) -> bytes:
            if not told:
                asyncio.get_running_loop().call_soon(marker)
            return read_all(offset, max_bytes)

        partition.read_all = read_and_be_interrupted  # type: ignore[method-assign]
        await bench.ready()
        await asyncio.sleep(0.1)
        assert told and await bench.ask(0) == 5

    simulate(scenario)


def test_f76_a_timer_is_armed_earlier_when_something_becomes_due_earlier() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        machine: Any = bench.shard.machine
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        machine.deadline = now_ms + 60_000
        await bench.ask(0)
        machine.deadline = now_ms + 1_000
        await bench.ask(0)
        await asyncio.sleep(2)
        assert [ms - now_ms for ms in machine.fired] == [1_000]
        machine.deadline = now_ms + 5_000
        await bench.ask(0)
        machine.deadline = now_ms + 9_000
        await bench.ask(0)
        await asyncio.sleep(6)
        assert len(machine.fired) == 1, "and later when it is due later"
        machine.deadline = None
        await bench.ask(0)
        await asyncio.sleep(60)
        assert len(machine.fired) == 1

    simulate(scenario)


def test_f76_a_timer_rings_early_at_most_and_never_late() -> None:
    """It is left as it is while what it was set for ends before its time, and set anew when it rings."""

    async def scenario() -> None:
        bench = await Bench().ready()
        machine: Any = bench.shard.machine
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        machine.deadline = now_ms + 1_000
        await bench.ask(0)
        armed = bench.shard.current._timer
        for later_ms in (2_000, 7_000, 3_000):
            machine.deadline = now_ms + later_ms
            await bench.ask(0)
        assert bench.shard.current._timer is armed
        await asyncio.sleep(60)
        assert [ms - now_ms for ms in machine.fired] == [3_000]
        machine.deadline = now_ms + 61_000
        await bench.ask(0)
        machine.deadline = None
        await bench.ask(0)
        await asyncio.sleep(5)
        machine.deadline = now_ms + 70_000
        await bench.ask(0)
        await asyncio.sleep(60)
        assert [ms - now_ms for ms in machine.fired] == [3_000, 70_000], (
            "also after there was nothing to wait for"
        )

    simulate(scenario)


def test_f76_settled_is_what_is_committed_and_decided() -> None:
    """`retention=delivered` believes it: what only memory knows could come back after a crash."""

    async def scenario() -> None:
        for gathers in (True, False):
            bench = await Bench(gathers=gathers).ready()
            assert bench.shard.is_settled
            bench.ask(1)
            assert not bench.shard.is_settled, "not written, or not committed"
            await asyncio.sleep(0.1)
            assert not bench.shard.is_settled, "written and not committed"
            bench.partition.commit()
            assert bench.shard.is_settled
            bench.partition.first_unstable_offset = 0
            assert not bench.shard.is_settled, "a transaction is open"

    simulate(scenario)


# -- what one load does in odd moments ---------------------------------------------------------------------------------------


def test_an_answer_whose_barrier_can_not_be_written_is_refused_and_nothing_is_loaded_again() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.partition.is_trusted_alone = False
        bench.partition.fails = ErrorKind.KAFKA_STORAGE_ERROR
        with pytest.raises(HeadraceError) as refused:
            await bench.ask(0)
        assert refused.value.kind is ErrorKind.NOT_COORDINATOR and refused.value.detail == "no"
        assert bench.shard.state is ShardState.READY and bench.shard.current.generation == 1
        assert not bench.shard.current._waiters, "nobody is left behind"
        assert bench.shard.machine.seen == 0, "and nothing was done"  # type: ignore[attr-defined]
        bench.partition.fails = None
        answered = bench.ask(0)
        bench.partition.commit()
        assert await answered == 0

    simulate(scenario)


def test_what_is_committed_as_it_is_written_is_answered_in_order() -> None:
    """A journal with one replica on a disk that is synced at once: earlier answers leave before later ones."""

    async def scenario() -> None:
        bench = await Bench().ready()
        order: list[int] = []
        append = bench.partition.append_internal

        def committed_at_once(batch: bytes, *, urgent: bool) -> int:
            last_offset = append(batch, urgent=urgent)
            bench.partition.high_watermark = bench.partition.end_offset
            return last_offset

        bench.ask(1).add_done_callback(lambda done: order.append(done.result()))
        bench.partition.append_internal = committed_at_once  # type: ignore[method-assign]
        bench.ask(2).add_done_callback(lambda done: order.append(done.result()))
        await asyncio.sleep(0.01)
        assert order == [1, 3] and bench.performed == ["added 1", "added 2"]

    simulate(scenario)


def test_a_long_journal_is_read_in_pieces_and_others_have_their_turn() -> None:
    async def scenario() -> None:
        bench = Bench()
        for number in (1, 2, 3):
            batch = build_batch([Record(b"add", str(number).encode())], wall_ms=1)
            bench.partition.append_internal(batch, urgent=True)
        bench.partition.append_internal(build_batch([Record(None, b"?")], wall_ms=1), urgent=True)
        bench.partition.high_watermark = 4
        read_all, turns = bench.partition.read_all, []

        def one_batch(offset: int, max_bytes: int) -> bytes:
            assert max_bytes > 0
            data = read_all(offset, max_bytes)
            turns.append(offset)
            return data[: next(header.size for _, header in scan(data))] if data else b""

        bench.partition.read_all = one_batch  # type: ignore[method-assign]
        others: list[int] = []
        bench.shard.start()
        while bench.shard.state is ShardState.LOADING:
            await asyncio.sleep(0)
            others.append(len(turns))
        assert turns == [0, 1, 2, 3] and len(set(others)) > 2
        assert await bench.ask(0) == 6

    simulate(scenario)


def test_a_load_that_raises_is_begun_again() -> None:
    async def scenario() -> None:
        bench = Bench()
        settled: list[int] = []

        async def settle() -> None:
            settled.append(1)
            if len(settled) == 1:
                raise RuntimeError("a bug")

        bench.shard.settle = settle
        bench.shard.start()
        await asyncio.sleep(1.0)
        bench.partition.commit()
        await asyncio.sleep(1.0)
        assert bench.shard.state is ShardState.READY and bench.shard.current.generation == 2
        assert settled == [1, 1]

    simulate(scenario)


def test_a_journal_that_is_lost_while_it_takes_no_writes_is_not_loaded_again() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.partition.fails = ErrorKind.KAFKA_STORAGE_ERROR
        with pytest.raises(HeadraceError):
            await bench.ask(1)
        assert bench.shard.state is ShardState.LOADING and bench.shard.current.generation == 2
        await asyncio.sleep(1.0)
        bench.partition.is_leader = False
        await asyncio.sleep(10.0)
        assert bench.shard.state is ShardState.CLOSED and bench.shard.current.generation == 2

    simulate(scenario)


def test_f16_a_listener_that_raises_makes_it_load_again() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.shard.perform = lambda load, effect: {}[effect]
        await bench.ready()
        answered = bench.ask(1)
        bench.partition.commit()
        assert await answered == 1
        assert bench.shard.state is ShardState.LOADING and bench.shard.current.generation == 2

    simulate(scenario)


def test_effects_behind_one_that_ended_the_load_are_not_performed() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        seen: list[Any] = []

        def perform(load: Load, effect: Any) -> None:
            seen.append(effect)
            load.distrust(ErrorKind.UNKNOWN_SERVER_ERROR)

        bench.shard.perform = perform
        first, second = bench.ask(1), bench.ask(2)
        bench.partition.commit()
        assert await first == 1 and seen == ["added 1"]
        with pytest.raises(HeadraceError):
            await second

    simulate(scenario)


class Broken(Sum):
    """What is due can't be worked out."""

    def expire(self, now_ms: int) -> Plan:
        self.deadline = None
        raise RuntimeError("a bug")


def test_a_timer_that_raises_makes_it_load_again() -> None:
    async def scenario() -> None:
        bench = await Bench(Broken).ready()
        bench.ask(99)
        bench.partition.commit()
        await asyncio.sleep(4.9)
        assert bench.shard.current.generation == 1
        await asyncio.sleep(0.2)
        assert bench.shard.current.generation == 2
        bench.partition.commit()
        await asyncio.sleep(1.0)
        assert bench.shard.state is ShardState.READY

    simulate(scenario)
