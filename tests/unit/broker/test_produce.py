"""What becomes of one batch: each way in which it is taken or refused, over a real log on a simulated disk."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replica_bench import EPOCH, Bench, on_a_machine

from headrace.broker.batch_opening import open_batch
from headrace.broker.produce import TakenBatch, take
from headrace.core.errors import ErrorKind
from headrace.records.batch import CODEC_MASK, HEADER_BYTES, read_header, scan, seal
from headrace.records.build import Record, build_batch

NOW_MS = 1_750_000_000_000
HOUR_MS = 3_600_000


def batch(*values: bytes, key: bytes | None = None, at_ms: int = NOW_MS, **given: Any) -> memoryview:
    records = [Record(key, value, (), at_ms) for value in values or (b"x",)]
    return memoryview(bytearray(build_batch(records, wall_ms=at_ms, **given)))


def put(bench: Bench, records: memoryview, **given: Any) -> TakenBatch:
    return take(bench.partition, records, **{"acks": -1, "version": 9, "wall_ms": NOW_MS, **given})


def test_a_batch_that_is_taken_says_where_it_is_and_what_must_be_committed() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        assert put(bench, batch(b"a", b"b")) == TakenBatch(ErrorKind.NONE, 0, -1, 2)
        assert put(bench, batch(b"c"), acks=1) == TakenBatch(ErrorKind.NONE, 2, -1, 3)
        assert bench.partition.messages_in == 3

    on_a_machine(scenario)


def test_who_does_not_lead_or_has_no_room_takes_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        assert put(bench, batch()).error is ErrorKind.NOT_LEADER_OR_FOLLOWER
        bench.lead()
        room: Any = SimpleNamespace(is_low=True, refusal="the disk is nearly full")
        bench.partition.room = room
        assert put(bench, batch()) == TakenBatch(ErrorKind.KAFKA_STORAGE_ERROR, message=room.refusal)
        room.is_low = False
        assert put(bench, batch()).error is ErrorKind.NONE
        bench.partition.resign()
        bench.partition.follow(2, EPOCH + 1)
        assert put(bench, batch()).error is ErrorKind.NOT_LEADER_OR_FOLLOWER
        assert bench.log.end_offset == 1

    on_a_machine(scenario)


def test_a_producers_time_is_held_to_the_topics_bounds() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for at_ms in (NOW_MS - HOUR_MS - 1, NOW_MS + HOUR_MS + 1):
            assert put(bench, batch(at_ms=at_ms)).error is ErrorKind.INVALID_TIMESTAMP
        for at_ms in (NOW_MS - HOUR_MS, NOW_MS + HOUR_MS):
            assert put(bench, batch(at_ms=at_ms)).error is ErrorKind.NONE

    on_a_machine(scenario, message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=HOUR_MS)


def test_the_brokers_time_has_no_bounds() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        assert put(bench, batch(at_ms=1)).error is ErrorKind.NONE

    on_a_machine(scenario, message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=HOUR_MS)


def test_a_batch_that_is_torn_is_refused_with_the_reason() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        torn = batch()
        torn[-1] ^= 1
        taken = put(bench, torn)
        assert taken.error is ErrorKind.CORRUPT_MESSAGE and taken.message
        assert bench.log.end_offset == 0

    on_a_machine(scenario)


def test_r38_a_repetition_is_told_where_the_original_is() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()

        def produced(sequence: int) -> memoryview:
            return batch(b"a", b"b", producer_id=0, producer_epoch=0, base_sequence=sequence)

        assert put(bench, produced(0)) == TakenBatch(ErrorKind.NONE, 0, -1, 2)
        assert put(bench, produced(2)) == TakenBatch(ErrorKind.NONE, 2, -1, 4)
        assert put(bench, produced(0)) == TakenBatch(ErrorKind.NONE, 0, -1, 2)
        gap = put(bench, produced(9))
        assert gap.error is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER and gap.message
        assert bench.log.end_offset == 4

    on_a_machine(scenario)


def test_a_compacted_topic_takes_keys_only_and_names_the_records_without() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        taken = put(bench, batch(b"a", b"b"))
        assert taken.error is ErrorKind.INVALID_RECORD and taken.message
        assert [index for index, _ in taken.record_errors] == [0, 1]
        assert put(bench, batch(b"a", key=b"k")).error is ErrorKind.NONE

    on_a_machine(scenario, cleanup_policy=("compact",))


def test_a_batch_is_stored_in_the_topics_codec() -> None:
    async def scenario(bench: Bench) -> None:
        bench.lead()
        for opened in (None, open_batch(batch(b"x" * 500), bench.partition.config)):
            taken = put(bench, batch(b"x" * 500), opened=opened)
            assert taken.error is ErrorKind.NONE
        stored = bench.partition.read_all(0, 1 << 20) or bench.log.read(0, 1 << 20, 2)
        headers = [header for _, header in scan(stored)]  # type: ignore[arg-type]
        assert len(headers) == 2 and all(header.attributes & CODEC_MASK == 1 for header in headers)
        assert all(header.size < read_header(batch(b"x" * 500)).size for header in headers)

    on_a_machine(scenario, compression_type="gzip")


def test_f9_records_that_can_not_be_read_are_refused_unless_the_topic_says_otherwise() -> None:
    def flawed() -> memoryview:
        spoilt = batch(b"abc")
        spoilt[HEADER_BYTES] = 0x7E  # the length of the record
        seal(spoilt, 0, len(spoilt))
        return spoilt

    async def refused(bench: Bench) -> None:
        bench.lead()
        taken = put(bench, flawed())
        assert taken.error is ErrorKind.INVALID_RECORD and taken.message
        assert [index for index, _ in taken.record_errors] == [0]
        assert put(bench, batch(), trusted=True).error is ErrorKind.NONE

    async def stored(bench: Bench) -> None:
        bench.lead()
        assert put(bench, flawed()).error is ErrorKind.NONE

    on_a_machine(refused)
    on_a_machine(stored, record_validation="off")
