"""One replica that follows, over its real log on a simulated disk: what it does with each answer of its leader (R20-R26)."""

from __future__ import annotations

import asyncio
import errno
from contextlib import nullcontext

import pytest
from replica_bench import EPOCH, Bench, on_a_machine, sent

from headrace.broker.following import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, REFUSED_MS, Following
from headrace.broker.partition import Partition
from headrace.core.errors import ErrorKind
from headrace.log.partition_log import PartitionLog
from headrace.log.results import LogCorrupt
from headrace.replication.follower import FetchPlan
from headrace.testing.sim_disk import DiskFault
from headrace.testing.simulation import SimulationFailed


def follows(bench: Bench, leader: int = 2, epoch: int = EPOCH) -> Following:
    bench.partition.follow(leader, epoch)
    return bench.partition.following


def plan_of(following: Following) -> FetchPlan:
    plan = following.next_fetch()
    assert plan is not None
    return plan


async def holds(bench: Bench, following: Following, count: int, *, high_watermark: int = 0) -> None:
    for offset in range(bench.log.end_offset, bench.log.end_offset + count):
        following.fetched(plan_of(following), sent(offset), high_watermark, 0)
        await synced(following)


async def synced(following: Following) -> None:
    if (waiting := following.sync_pending()) is not None:
        await waiting


async def rested(pause_ms: int) -> None:
    await asyncio.sleep(pause_ms / 1000 + 0.001)


def test_what_is_fetched_is_confirmed_when_it_is_on_disk_and_counts_as_far_as_the_leader_says() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        told: list[int] = []
        bench.partition.on_commit.append(told.append)
        assert (following.leader, following.waits_for_sync) == (2, True)
        assert plan_of(following) == FetchPlan(2, EPOCH, 0, -1)
        following.fetched(plan_of(following), sent(0), 0, 0)
        assert following.next_fetch() is None, "it is not on disk yet"
        assert not told, "nothing is committed"
        await synced(following)
        assert following.sync_pending() is None
        assert plan_of(following) == FetchPlan(2, EPOCH, 1, EPOCH)
        following.fetched(plan_of(following), memoryview(b""), 1, 0)
        assert told == [1] == [following.high_watermark] and bench.partition.high_watermark == 1
        assert plan_of(following) == FetchPlan(2, EPOCH, 1, EPOCH), "it rests for nothing"

    on_a_machine(scenario)


def test_many_wait_for_one_sync() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        following.fetched(plan_of(following), sent(0), 0, 0)
        first = following.sync_pending()
        assert first is not None and first is following.sync_pending()
        await first
        following.fetched(plan_of(following), sent(1), 0, 0)
        second = following.sync_pending()
        assert second is not None and second is not first and not second.done()
        await second

    on_a_machine(scenario)


def test_a_sync_that_reaches_a_part_lets_nobody_go() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        following.fetched(plan_of(following), sent(0), 0, 0)
        waiting = following.sync_pending()
        assert waiting is not None
        following.durable()
        assert not waiting.done() and following.next_fetch() is None
        await waiting

    on_a_machine(scenario)


def test_r22_it_truncates_to_where_the_histories_part_and_looks_again_after_a_moment() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 3)
        following = follows(bench, 3, EPOCH + 1)
        following.diverging(plan_of(following), EPOCH, 1)
        assert (bench.log.end_offset, bench.failures) == (1, [])
        assert following.next_fetch() is None
        await rested(FIRST_PAUSE_MS)
        assert plan_of(following) == FetchPlan(3, EPOCH + 1, 1, EPOCH)

    on_a_machine(scenario)


def test_r24_what_is_committed_is_not_truncated() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 3, high_watermark=3)
        following.diverging(plan_of(following), EPOCH, 1)
        assert bench.failures == [bench.partition] and bench.log.end_offset == 3
        await rested(FIRST_PAUSE_MS)
        assert following.next_fetch() is None

    on_a_machine(scenario)


def test_r26_what_retention_took_is_not_asked_for_any_more() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 2)
        following.out_of_range(plan_of(following), 40)
        assert (bench.log.start_offset, bench.log.end_offset, bench.log.durable_end) == (40, 40, 40)
        assert following.sync_pending() is None, "an empty log keeps no fetcher waiting"
        assert following.next_fetch() is None, "after a moment"
        await rested(FIRST_PAUSE_MS)
        assert plan_of(following) == FetchPlan(2, EPOCH, 40, -1)
        following.fetched(plan_of(following), sent(40), 41, 40)
        assert bench.log.end_offset == 41 and following.high_watermark == 41

    on_a_machine(scenario)


def test_the_leaders_first_offset_is_ours() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 3, high_watermark=3)
        following.fetched(plan_of(following), memoryview(b""), 3, 2)
        assert bench.log.start_offset == 2 and plan_of(following) == FetchPlan(2, EPOCH, 3, EPOCH)

    on_a_machine(scenario)


def test_f23_what_is_not_taken_is_asked_for_again_at_ever_longer_intervals() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 1)
        roomy, bench.disk.capacity_bytes = bench.disk.capacity_bytes, bench.disk.used_bytes
        assert following.trouble() is None
        for turn in range(12):
            pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << turn)
            following.fetched(plan_of(following), sent(1), 0, 0)
            assert following.trouble() == following.stuck and "full" in str(following.stuck)
            assert bench.log.end_offset == 1 and following.sync_pending() is None
            await asyncio.sleep((pause_ms - 2) / 1000)
            assert following.next_fetch() is None
            await rested(2)
            assert plan_of(following) == FetchPlan(2, EPOCH, 1, EPOCH), "from where the log really ends"
        bench.disk.capacity_bytes = roomy
        following.fetched(plan_of(following), sent(1), 0, 0)
        assert following.trouble() is None and bench.log.end_offset == 2
        await synced(following)
        bench.disk.capacity_bytes = bench.disk.used_bytes
        following.fetched(plan_of(following), sent(2), 0, 0)
        await rested(FIRST_PAUSE_MS)
        assert following.next_fetch() is not None, "the next trouble begins with a short pause"
        assert not bench.failures

    on_a_machine(scenario)


@pytest.mark.parametrize("cut", ["diverging", "out of range"])
def test_f23_a_full_disk_puts_a_truncation_off(cut: str) -> None:
    """Torture found a replica that a full disk had taken out of service for good, in the moment of a truncation."""

    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 3, high_watermark=1)
        bench.log.checkpoint()
        following = follows(bench, 3, EPOCH + 1)

        def told() -> None:
            if cut == "diverging":
                following.diverging(plan_of(following), EPOCH, 1)
            else:
                following.out_of_range(plan_of(following), 40)

        roomy, bench.disk.capacity_bytes = bench.disk.capacity_bytes, bench.disk.used_bytes
        for turn in range(5):
            told()
            assert (bench.log.end_offset, bench.log.failed, bench.failures) == (3, None, [])
            assert "full" in str(following.trouble()) and following.high_watermark == 1
            assert following.next_fetch() is None
            await rested(min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << turn))
            assert plan_of(following) == FetchPlan(3, EPOCH + 1, 3, EPOCH), "it asks the same again"
        bench.disk.capacity_bytes = roomy
        told()
        end = 1 if cut == "diverging" else 40
        assert (bench.log.end_offset, following.trouble(), bench.failures) == (end, None, [])

    on_a_machine(scenario)


def test_f17_what_makes_no_sense_is_not_taken() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        torn = bytearray(sent(0))
        torn[-1] ^= 1
        following.fetched(plan_of(following), memoryview(torn), 0, 0)
        assert following.stuck is not None and bench.log.end_offset == 0 and not bench.failures

    on_a_machine(scenario)


def test_f23_trouble_is_told_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        torn = bytearray(sent(0))
        torn[-1] ^= 1
        for _ in range(3):
            following.fetched(plan_of(following), memoryview(torn), 0, 0)
            await rested(LONGEST_PAUSE_MS)
        following.fetched(plan_of(following), sent(0), 0, 0)

    with caplog.at_level("WARNING", "headrace.broker.following"):
        on_a_machine(scenario)
    said = [record.getMessage() for record in caplog.records]
    assert ["not taken" in line for line in said] == [True, False] and "taken again" in said[1]


def test_s7_a_write_that_failed_takes_it_offline() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 1)
        bench.disk.arm(DiskFault.APPEND_ERROR, "/p/0", error=errno.EIO)
        following.fetched(plan_of(following), sent(1), 0, 0)
        assert bench.failures == [bench.partition] and bench.partition.failed
        assert following.stuck is None

    on_a_machine(scenario)


@pytest.mark.parametrize(
    "problem", [OSError(errno.EIO, "no"), LogCorrupt("a.log", 0, 1, "torn"), RuntimeError("a bug")]
)
def test_f17_what_goes_wrong_while_an_answer_is_taken_is_this_replicas_own_trouble(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_bug = isinstance(problem, RuntimeError)
    failures: list[Partition] = []

    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        await holds(bench, following, 2)

        def fails(self: PartitionLog, offset: int) -> None:
            raise problem

        monkeypatch.setattr(PartitionLog, "truncate", fails)
        following.diverging(plan_of(following), EPOCH, 1)
        failures.extend(bench.failures)

    with pytest.raises(SimulationFailed, match="a bug") if is_bug else nullcontext():
        on_a_machine(scenario)
    assert len(failures) == 1


def test_a_leader_that_refuses_for_long_is_trouble_and_one_that_has_just_changed_is_none() -> None:
    async def scenario(bench: Bench) -> None:
        following = follows(bench)
        following.failed(plan_of(following), ErrorKind.UNKNOWN_LEADER_EPOCH)
        await asyncio.sleep((REFUSED_MS - 2) / 1000)
        following.failed(plan_of(following), ErrorKind.NOT_LEADER_OR_FOLLOWER)
        assert following.trouble() is None
        await rested(2)
        assert "NOT_LEADER_OR_FOLLOWER" in str(following.trouble())
        following.fetched(FetchPlan(2, EPOCH, 0, -1), memoryview(b""), 0, 0)
        assert following.trouble() is None
        await rested(FIRST_PAUSE_MS)
        following.failed(plan_of(following), ErrorKind.NOT_LEADER_OR_FOLLOWER)
        await rested(REFUSED_MS)
        assert following.trouble() is not None
        follows(bench, 3, EPOCH + 1)
        assert following.trouble() is None, "another leader has refused nothing yet"

    on_a_machine(scenario)


def test_r20_who_led_goes_on_from_what_it_has_and_knows() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        await asyncio.sleep(1.0)
        assert bench.partition.high_watermark == 1
        bench.partition.resign()
        following = follows(bench, 2, EPOCH + 1)
        assert following.high_watermark == 1
        assert plan_of(following) == FetchPlan(2, EPOCH + 1, 1, EPOCH)
        following.follow(3, EPOCH, -1)
        assert following.leader == 2, "that was before"
        following.diverging(plan_of(following), EPOCH, 0)
        assert bench.failures == [bench.partition], "R24: it knows what was committed"

    on_a_machine(scenario)
