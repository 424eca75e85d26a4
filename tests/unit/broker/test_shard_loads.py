"""Loads of a shard: when one begins and ends, what belongs to it, and what it does in odd moments (F5, F16, F18, F71, F76, F83)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shard_bench import Add, Added, Bench, Sum, simulate

from headrace.broker.load import CommandRefused, Load, ShardState
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import JournalRecord, Plan
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch, build_control_batch


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
        bench.partition.when_committed = (  # type: ignore[method-assign]
            lambda offset, deadline_ms, callback: bench.partition.commit() or callback(ErrorKind.NONE)
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
        assert not load.tell(Add(5))
        with pytest.raises(HeadraceError):
            await load.submit(Add(5))
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
        bench.shard.tell(Add(3))
        assert bench.shard.state is ShardState.LOADING
        bench.partition.commit()
        await asyncio.sleep(0.1)
        assert bench.shard.state is ShardState.READY
        bench.partition.commit()
        assert await bench.ask(0) == 4
        bench.partition.refuses = ErrorKind.NOT_ENOUGH_REPLICAS
        bench.shard.tell(Add(4))
        assert bench.shard.state is ShardState.LOADING, "it is nobody's to repeat"
        bench.shard.tell(Add(5))
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
        answered = bench.shard.current.submit(Add(5), (7, 2))
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
        old.shard.current.submit(Add(5), (7, 2))
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
                shard.machine.replay_marker(7, 2, True, 0)

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
        assert bench.shard.machine.seen == 0, "and nothing was done"
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

        def committed_at_once(batch: bytes, *, urgent: bool, wall_ms: int | None = None) -> int:
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
        bench.shard.perform = lambda load, effect: {}[effect]  # type: ignore[index]
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


def test_a_refusal_is_raised_at_whoever_asked_and_changes_nothing() -> None:
    async def scenario() -> None:
        bench = await Bench().ready()
        bench.ask(2)
        bench.partition.commit()
        with pytest.raises(CommandRefused) as refused:
            await bench.ask(-1)
        assert refused.value.kind is ErrorKind.INVALID_REQUEST
        assert refused.value.detail == "sums only grow"
        assert await bench.ask(0) == 2

    simulate(scenario)
