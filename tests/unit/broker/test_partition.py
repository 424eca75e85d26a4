"""One replica with its real log, flusher and leader machine on a simulated disk: what clients and followers get of it (F76)."""

from __future__ import annotations

import asyncio
import errno

import pytest
from replica_bench import EPOCH, Bench, on_a_machine

from headrace.broker.fetch import Got
from headrace.broker.following import FIRST_PAUSE_MS
from headrace.cluster.configs import TopicConfig
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.log.config import LogConfig
from headrace.log.results import AppendResult
from headrace.records.batch import stamp
from headrace.records.build import Record, build_batch
from headrace.testing.sim_disk import DiskFault


def test_f76_a_refused_batch_leaves_the_replica_in_service() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        refused = bench.append(size=8_000)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.RECORD_LIST_TOO_LARGE
        roomy, bench.disk.capacity_bytes = bench.disk.capacity_bytes, bench.disk.used_bytes
        refused = bench.append()
        assert isinstance(refused, Rejected) and "full" in refused.detail
        bench.disk.capacity_bytes = roomy
        assert not bench.partition.failed and not bench.failures
        assert isinstance(bench.append(), AppendResult)

    on_a_machine(scenario)


def test_f76_a_write_that_failed_takes_the_replica_offline() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        answers: list[ErrorKind] = []
        bench.append()
        bench.partition.when_committed(1, 10**9, answers.append)
        bench.disk.arm(DiskFault.APPEND_ERROR, "/p/0", error=errno.EIO)
        refused = bench.append()
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.KAFKA_STORAGE_ERROR
        assert bench.partition.failed and bench.failures == [bench.partition]
        assert answers == [ErrorKind.KAFKA_STORAGE_ERROR], "who waited is told, once (R18)"
        assert bench.partition.refusal(-1) is ErrorKind.KAFKA_STORAGE_ERROR

    on_a_machine(scenario)


def test_f76_r9_an_older_epoch_is_fenced_and_a_newer_one_is_unknown() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead().partition
        for epoch, expected in (
            (EPOCH - 1, ErrorKind.FENCED_LEADER_EPOCH),
            (EPOCH, ErrorKind.NONE),
            (EPOCH + 1, ErrorKind.UNKNOWN_LEADER_EPOCH),
            (-1, ErrorKind.NONE),
        ):
            assert partition.epoch_refusal(epoch) is expected
            assert partition.fetch_refusal(epoch, from_follower=False) is expected
            assert partition.reader_refusal(epoch) is expected
        partition.resign()
        assert partition.fetch_refusal(EPOCH, from_follower=False) is ErrorKind.NOT_LEADER_OR_FOLLOWER

    on_a_machine(scenario)


def test_f76_a_long_poll_is_woken_by_what_it_waits_for() -> None:
    """A consumer by the commit, a follower by the append, both by the end of the leadership."""

    async def scenario(bench: Bench) -> None:
        bench.lead(replicas=(1, 2))
        consumer: list[list[Got]] = []
        follower: list[list[Got]] = []
        bench.poll(consumer)
        bench.poll(follower, replica=2)
        bench.append()
        await asyncio.sleep(1.0)
        assert len(follower) == 1 and follower[0][0].data, "it is what makes the commit happen"
        assert not consumer, "one of two replicas has it"
        late: list[list[Got]] = []
        bench.poll(late, offset=1, replica=2)
        bench.partition.resign()
        await asyncio.sleep(0.1)
        assert late[0][0].error is ErrorKind.NOT_LEADER_OR_FOLLOWER
        assert consumer[0][0].error is ErrorKind.NOT_LEADER_OR_FOLLOWER

    on_a_machine(scenario)


def test_f76_a_consumer_is_woken_by_the_sync_that_commits() -> None:
    async def scenario(bench: Bench) -> None:
        answers: list[list[Got]] = []
        bench.lead().poll(answers)
        bench.append()
        await asyncio.sleep(1.0)
        assert len(answers) == 1, "after a second of the sixty; it is virtual time"
        assert answers[0][0].high_watermark == 1 and answers[0][0].data
        await asyncio.sleep(120.0)
        assert len(answers) == 1, "and not again when its time is up"

    on_a_machine(scenario)


@pytest.mark.parametrize("wait_ms", [0, 1, 50])
def test_f76_a_parked_fetch_answers_once_whatever_comes_together(wait_ms: int) -> None:
    """Its time, several commits and the end of the leadership in one turn of the loop."""

    async def scenario(bench: Bench) -> None:
        answers: list[list[Got]] = []
        bench.lead()
        bench.poll(answers, wait_ms=wait_ms)
        await asyncio.sleep(wait_ms / 1000)
        bench.append()
        bench.append()
        bench.partition.resign()
        await asyncio.sleep(10.0)
        assert len(answers) == 1
        assert not bench.partition.fetch_waiters and not bench.partition.replica_waiters

    on_a_machine(scenario)


@pytest.mark.parametrize("ends", ["its time is up", "its client is gone"])
def test_f76_a_fetch_that_ended_while_it_was_being_woken_answers_no_more(ends: str) -> None:
    async def scenario(bench: Bench) -> None:
        answers: list[list[Got]] = []
        parked = bench.lead().poll(answers)
        assert parked is not None
        bench.append()
        await asyncio.sleep(0)
        bench.partition.high_watermark = 1  # as the commit that wakes it does
        parked.wake()
        if ends == "its time is up":
            parked._time_up()
        else:
            parked.cancel()
        expected = len(answers)
        await asyncio.sleep(10.0)
        assert len(answers) == expected == (ends == "its time is up")

    on_a_machine(scenario)


def test_f17_a_follower_that_was_refused_rests_a_moment_unless_its_leader_changes() -> None:
    async def scenario(bench: Bench) -> None:
        following = bench.partition.following
        bench.partition.follow(2, EPOCH)
        plan = following.next_fetch()
        assert plan is not None
        following.failed(plan, ErrorKind.UNKNOWN_SERVER_ERROR)
        assert following.next_fetch() is None
        await asyncio.sleep(FIRST_PAUSE_MS / 1000 + 0.001)
        assert following.next_fetch() is not None
        following.failed(plan, ErrorKind.NOT_LEADER_OR_FOLLOWER)
        bench.partition.follow(3, EPOCH + 1)
        assert following.next_fetch() is not None, "a new leader is asked at once"

    on_a_machine(scenario)


def test_f7_a_shorter_interval_holds_for_what_was_written_before() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        bench.partition.configure(TopicConfig(flush="interval", flush_ms=200), LogConfig())
        await asyncio.sleep(1.0)
        assert bench.log.durable_end == 1, "the minute of flush=os is not waited for"

    on_a_machine(scenario, flush="os")


def test_f7_a_follower_that_need_not_wait_any_more_is_let_go() -> None:
    async def scenario(bench: Bench) -> None:
        bench.disk.hang_until_s = asyncio.get_running_loop().time() + 3_600.0
        following = bench.partition.following
        bench.partition.follow(2, EPOCH)
        plan = following.next_fetch()
        assert plan is not None
        batch = bytearray(build_batch([Record(None, b"x")], wall_ms=1))
        stamp(batch, 0, 0, EPOCH)
        following.fetched(plan, memoryview(batch), 0, 0)
        waiting = following.sync_pending()
        assert waiting is not None and following.next_fetch() is None
        bench.partition.configure(TopicConfig(flush="os"), LogConfig())
        assert waiting.done() and following.next_fetch() is not None
        bench.partition.configure(TopicConfig(flush="commit"), LogConfig())
        assert following.next_fetch() is None, "and the other way round it waits for the disk again"

    on_a_machine(scenario)


def test_who_asks_where_the_log_ends_hears_of_what_was_promised() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.partition.settle_own_writes()  # nobody leads: nothing to wait for
        bench.lead()
        await bench.partition.settle_own_writes()
        bench.append()
        assert bench.partition.high_watermark == 0
        begun = asyncio.get_running_loop().time()
        await bench.partition.settle_own_writes()
        assert bench.partition.high_watermark == 1
        assert asyncio.get_running_loop().time() - begun < 1.0

    on_a_machine(scenario)


def test_what_waits_for_others_is_not_waited_for() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead((1, 2))
        bench.append()
        begun = asyncio.get_running_loop().time()
        await bench.partition.settle_own_writes()
        assert bench.partition.high_watermark == 0 and asyncio.get_running_loop().time() == begun

    on_a_machine(scenario)


def test_s9_so_many_messages_are_synced_before_their_time() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for _ in range(2):
            bench.append()
        await asyncio.sleep(1.0)
        assert bench.log.durable_end == 0, "two may wait for their time"
        bench.append()
        await asyncio.sleep(1.0)
        assert bench.log.durable_end == 3
        bench.append()
        await asyncio.sleep(58.0)
        assert bench.log.durable_end == 3
        await asyncio.sleep(3.0)
        assert bench.log.durable_end == 4, "and alone it waits for its time"

    on_a_machine(scenario, flush="interval", flush_messages=3, flush_ms=60_000)


def test_kip_392_a_near_replica_is_read_while_it_follows_somebody() -> None:
    async def scenario(bench: Bench) -> None:
        def refusal(epoch: int = -1, *, near: bool = True) -> ErrorKind:
            return bench.partition.fetch_refusal(epoch, from_follower=near)

        assert refusal() is ErrorKind.NOT_LEADER_OR_FOLLOWER, "it follows nobody"
        bench.partition.follow(2, EPOCH)
        assert refusal() is refusal(EPOCH) is ErrorKind.NONE
        assert refusal(EPOCH + 1) is refusal(near=False) is ErrorKind.NOT_LEADER_OR_FOLLOWER
        bench.partition.follow(0, EPOCH)
        assert refusal() is ErrorKind.NONE, "a broker may be called 0"
        bench.partition.mark_failed()
        assert refusal() is ErrorKind.KAFKA_STORAGE_ERROR

    on_a_machine(scenario)


def test_a_new_leader_is_ready_when_its_epoch_is_committed_and_never_when_it_is_none() -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(HeadraceError):
            await bench.partition.wait_leader_ready()
        bench.lead()
        bench.append()
        await asyncio.sleep(1.0)
        bench.lead((1, 2))
        bench.partition.high_watermark = 0
        waiting = asyncio.ensure_future(bench.partition.wait_leader_ready())
        await asyncio.sleep(1.0)
        assert not waiting.done()
        bench.partition.resign()
        with pytest.raises(HeadraceError) as refused:
            await waiting
        assert refused.value.kind is ErrorKind.NOT_LEADER_OR_FOLLOWER

    on_a_machine(scenario)


def test_what_takes_no_writes_says_so_to_its_own_broker() -> None:
    async def scenario(bench: Bench) -> None:
        with pytest.raises(HeadraceError) as refused:
            bench.partition.append_internal(build_batch([Record(None, b"x")], wall_ms=1), urgent=True)
        assert refused.value.kind is ErrorKind.NOT_LEADER_OR_FOLLOWER
        bench.lead()
        assert bench.partition.append_internal(build_batch([Record(None, b"x")], wall_ms=1), urgent=True) == 0
        await asyncio.sleep(1.0)
        assert bench.partition.read_all(0, 1 << 20)
        bench.disk.arm(DiskFault.READ_ERROR, "/p/0", error=errno.EIO)
        with pytest.raises(HeadraceError) as refused:
            bench.partition.read_all(0, 1 << 20)
        assert refused.value.kind is ErrorKind.KAFKA_STORAGE_ERROR

    on_a_machine(scenario)


def test_deleted_records_wake_who_waits_and_unreadable_ones_are_counted() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for _ in range(3):
            bench.append()
        await asyncio.sleep(1.0)
        woken: list[str] = []

        class Waiter:
            def wake(self) -> None:
                woken.append("consumer")

        bench.partition.fetch_waiters[Waiter()] = None
        assert bench.partition.delete_records(2) == 2
        assert woken == ["consumer"]
        for offset in (2, 2, 1):
            bench.partition.step_over(offset, "torn")
        assert bench.partition.unreadable_batches == 3

    on_a_machine(scenario)


def test_one_who_waits_is_somebody() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead((1, 2))
        bench.append()
        answers: list[ErrorKind] = []
        assert not bench.partition.has_waiting
        bench.partition.when_committed(1, bench.runtime.clock.now_ms() + 10, answers.append)
        assert bench.partition.has_waiting and not answers
        bench.partition.expire_waiting(bench.runtime.clock.now_ms() + 11)
        assert answers == [ErrorKind.REQUEST_TIMED_OUT] and not bench.partition.has_waiting

    on_a_machine(scenario)
