"""Records that wait in the log: which are hidden, and that nothing else is touched (Q7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.queueing.local.delayed import (
    due_ms,
    has_released,
    has_waiting,
    mark_released,
    mark_waiting,
    without_waiting,
)
from headrace.core.limits import MIB
from headrace.records.batch import crc_matches, read_header, scan, stamp_log_append_time
from headrace.records.build import Record, build_batch
from headrace.records.read import plain_body, read_records

NOW = 1_700_000_000_000
HEADERS = (
    (),
    (("a", b"1"),),
    (("headrace-delay-ms", b"10"),),
    (("headrace-delay-ms", b"0"),),
    (("headrace-delay-ms", b"soon"),),
    (("headrace-delay-level", b"10s"), ("b", None)),
    (("headrace-deliver-at", str(NOW + 5).encode()),),
    (("headrace-deliver-at", str(NOW - 5).encode()),),
)
HIDDEN = {2, 5, 6}


def batch_of(kinds: list[int], codec: int = 0, base_offset: int = 0) -> bytes:
    records = [Record(b"k%d" % at, b"v%d" % at, HEADERS[kind], NOW) for at, kind in enumerate(kinds)]
    return build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        wall_ms=NOW,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
    )


def marked_batch(raw: memoryview) -> memoryview:
    header = read_header(raw)
    return mark_waiting(raw, header, plain_body(raw, 0, header, max_bytes=MIB))


@given(
    kinds=st.lists(st.integers(0, len(HEADERS) - 1), min_size=1, max_size=12),
    codec=st.sampled_from([0, 1, 3, 4]),
)
def test_readers_see_exactly_what_does_not_wait(kinds: list[int], codec: int) -> None:
    raw = memoryview(bytearray(batch_of(kinds, codec)))
    marked = marked_batch(raw)
    header = read_header(marked)
    assert has_waiting(header) == any(kind in HIDDEN for kind in kinds)
    assert crc_matches(marked, 0, header)
    assert read_records(marked, max_bytes=MIB) == read_records(raw, max_bytes=MIB), "the log keeps everything"
    shown = without_waiting(marked)
    seen = read_header(shown)
    assert not has_waiting(seen)
    assert crc_matches(shown, 0, seen)
    assert seen.next_offset == header.next_offset, (
        "a reader goes on behind the batch, also when nothing is left"
    )
    assert (seen.producer_id, seen.base_sequence, seen.last_sequence) == (7, 3, header.last_sequence)
    assert [record.offset for record in read_records(shown, max_bytes=MIB)] == [
        at for at, kind in enumerate(kinds) if kind not in HIDDEN
    ]


def test_batches_around_are_the_same_bytes() -> None:
    plain = batch_of([0, 1])
    waiting = bytes(marked_batch(memoryview(bytearray(batch_of([0, 2], base_offset=2)))))
    data = plain + waiting + plain
    shown = bytes(without_waiting(data))
    assert shown.startswith(plain)
    assert shown.endswith(plain)
    assert len(list(scan(shown))) == 3
    assert without_waiting(plain) is plain, "without a mark nothing is copied"


def test_a_delay_counts_from_the_time_of_the_append_where_the_log_says_that() -> None:
    raw = bytearray(batch_of([6]))
    marked = bytearray(marked_batch(memoryview(raw)))
    stamp_log_append_time(marked, 0, read_header(marked), NOW + 6)
    assert len(read_records(without_waiting(marked), max_bytes=MIB)) == 1, (
        "its time had come when it was written"
    )


def test_marks_are_not_the_senders_to_set() -> None:
    """Else a producer could say that what others wait for has been let go."""
    forged = mark_released(batch_of([0]))
    assert has_released(read_header(forged))
    taken = marked_batch(forged)
    assert not has_released(read_header(taken))
    assert crc_matches(taken, 0, read_header(taken))


def test_readers_do_not_see_that_it_is_a_copy() -> None:
    batch = batch_of([0, 1])
    assert bytes(without_waiting(bytes(mark_released(batch)))) == batch


@pytest.mark.parametrize(("kind", "due"), [(0, 0), (2, NOW + 10), (4, 0), (5, NOW + 10_000), (6, NOW + 5)])
def test_due_times(kind: int, due: int) -> None:
    assert due_ms(HEADERS[kind], NOW) == due
