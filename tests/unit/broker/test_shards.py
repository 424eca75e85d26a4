"""The shard runtime: replies wait for their facts (the gate), a failed journal write means load again, timers fire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from shard_bench import Bench, simulate, sizes

from headrace.broker import load as loads
from headrace.broker.load import ShardState
from headrace.core.errors import ErrorKind, HeadraceError


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
