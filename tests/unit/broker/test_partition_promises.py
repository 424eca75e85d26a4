"""What a leader may promise: to producers it knows and doesn't know, without its lease, with too few copies (R7, R17, R39, R45)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from replica_bench import EPOCH, Bench, on_a_machine

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.log.results import AppendResult, Duplicate
from headrace.records.batch import read_header
from headrace.records.build import Record, build_batch
from headrace.replication.events import PartitionRead, RereadPartition, StepDown

PRODUCER: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}


def put(bench: Bench, sequence: int, *, ticket: int = 0, **given: Any) -> Any:
    batch = build_batch([Record(None, b"x")], wall_ms=1, **{**PRODUCER, "base_sequence": sequence, **given})
    view = memoryview(bytearray(batch))
    return bench.partition.append(view, read_header(view), urgent=True, ticket=ticket)


def test_r39_out_of_order_is_said_at_once_where_nobody_else_could_lead() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        assert isinstance(put(bench, 0), AppendResult)
        refused = put(bench, 7)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert not bench.delegated and not bench.partition.has_rivals

    on_a_machine(scenario)


def test_r39_out_of_order_waits_for_the_coordinators_word_where_another_could_lead() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead((1, 2)).partition
        assert partition.has_rivals and partition.replicas == (1, 2)
        assert isinstance(put(bench, 0), AppendResult)
        refused = put(bench, 7)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.NOT_LEADER_OR_FOLLOWER
        assert bench.delegated == [RereadPartition()]
        partition.doubts.settle(partition.doubts.until_now())
        refused = put(bench, 7)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert isinstance(put(bench, 0), Duplicate), "what is known needs nobody's word"
        assert bench.log.end_offset == 1
        partition.resign()
        assert partition.replicas == () and not partition.has_rivals

    on_a_machine(scenario)


def test_r45_a_transactions_first_batch_needs_the_ticket_it_asked_with() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead().partition
        first = {"transactional": True}
        for ticket in (0, 1):
            refused = put(bench, 0, ticket=ticket, **first)
            assert isinstance(refused, Rejected) and refused.kind is ErrorKind.INVALID_TXN_STATE
        ticket = partition.verifications.begin(5, 0)
        assert isinstance(put(bench, 0, ticket=ticket, **first), AppendResult)
        assert not partition.verifications.holds(5, 0, ticket), "it is used up"
        assert isinstance(put(bench, 1, **first), AppendResult), "open now: nobody is asked again"
        refused = put(bench, 2)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.INVALID_TXN_STATE
        with pytest.raises(HeadraceError) as problem:
            bench.partition.append_internal(
                build_batch([Record(None, b"x")], wall_ms=1, **PRODUCER, base_sequence=9), urgent=True
            )
        assert problem.value.kind is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER

    on_a_machine(scenario)


def test_r7_without_its_lease_a_leader_s_own_word_is_not_enough() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.partition
        assert not partition.is_trusted_alone
        bench.lead((1, 2))
        assert partition.is_trusted_alone and partition.refusal(1) is None
        bench.lease_held = False
        assert not partition.is_trusted_alone
        assert partition.refusal(1) is partition.refusal(0) is ErrorKind.NOT_LEADER_OR_FOLLOWER
        assert partition.refusal(-1) is None, "R36: what replicas vouch for goes on"
        assert partition.fetch_refusal(EPOCH, from_follower=False) is ErrorKind.NOT_LEADER_OR_FOLLOWER
        assert partition.fetch_refusal(EPOCH, from_follower=False, is_replica=True) is ErrorKind.NONE
        assert partition.reader_refusal(EPOCH) is ErrorKind.NOT_LEADER_OR_FOLLOWER

    on_a_machine(scenario)


def test_r17_who_waits_for_copies_that_are_gone_is_told_and_new_writes_are_refused() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead((1, 2), min_isr=2).partition
        answers: list[ErrorKind] = []
        put(bench, 0)
        partition.when_committed(1, 10**9, answers.append)
        assert partition.refusal(-1) is None and answers == []
        partition.tell_leader(PartitionRead(2, EPOCH, (1, 2), (1,), ()))
        assert answers == [ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
        assert partition.refusal(-1) is ErrorKind.NOT_ENOUGH_REPLICAS

    on_a_machine(scenario)


def test_r31_a_leader_that_hears_of_a_later_epoch_leaves_the_rest_to_its_broker() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead((1, 2)).partition
        answers: list[ErrorKind] = []
        put(bench, 0)
        partition.when_committed(1, 10**9, answers.append)
        partition.tell_leader(PartitionRead(2, EPOCH + 1, (1, 2), (2,), ()))
        assert answers == [ErrorKind.NOT_LEADER_OR_FOLLOWER]
        assert [type(effect) for effect in bench.delegated] == [StepDown, RereadPartition]

    on_a_machine(scenario)


def test_what_is_committed_already_is_answered_at_once() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead().partition
        answers: list[ErrorKind] = []
        put(bench, 0)
        partition.when_committed(1, 10**9, answers.append)
        assert answers == [] and partition.has_waiting
        await asyncio.sleep(1.0)
        assert answers == [ErrorKind.NONE] and not partition.has_waiting
        partition.when_committed(1, 10**9, answers.append)
        assert answers == [ErrorKind.NONE] * 2
        await partition.wait_leader_ready()

    on_a_machine(scenario)


def test_f16_who_cant_take_its_answer_does_not_keep_others_from_theirs() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead().partition
        answers: list[ErrorKind] = []

        def broken(kind: ErrorKind) -> None:
            raise RuntimeError("gone")

        put(bench, 0)
        for callback in (broken, answers.append):
            partition.when_committed(1, 10**9, callback)
        told: list[str] = []
        bench.runtime.unexpected = lambda where, problem, about="": told.append(f"{where}: {problem}")
        await asyncio.sleep(1.0)
        assert answers == [ErrorKind.NONE]
        assert told == ["answer to a produce: gone"]

    on_a_machine(scenario)


def test_r19_a_leader_is_ready_when_the_start_of_its_epoch_is_committed() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        bench.append()
        partition = bench.lead().partition
        assert partition.high_watermark == 0, "not synced yet"
        waiting = asyncio.ensure_future(partition.wait_leader_ready())
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.wait_for(waiting, 60)
        assert partition.high_watermark == 1

    on_a_machine(scenario)


def test_what_was_read_is_counted_and_a_refusal_is_not() -> None:
    async def scenario(bench: Bench) -> None:
        partition = bench.lead().partition
        bench.append()
        await asyncio.sleep(1.0)
        data = partition.read(0, 1 << 20, partition.high_watermark)
        assert not isinstance(data, Rejected) and partition.bytes_out == len(data) > 0
        refused = partition.read(7, 1 << 20, partition.high_watermark)
        assert isinstance(refused, Rejected) and refused.kind is ErrorKind.OFFSET_OUT_OF_RANGE
        assert partition.bytes_out == len(data)

    on_a_machine(scenario)


def test_each_sync_is_measured() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        assert sum(bench.flusher.seconds.counts) == 0
        bench.append()
        await asyncio.sleep(1.0)
        assert sum(bench.flusher.seconds.counts) == 1

    on_a_machine(scenario)
