"""Records by offset, in any order: lanes take turns, so the offsets of one receive do not ascend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.queueing.local.payloads import HELD_BYTES, MAX_SENT_BYTES, Payloads
from headrace.records.build import Record, build_batch


class OneLog:
    """A partition that holds batches of two records each."""

    def __init__(self, batches: int) -> None:
        self.data = b"".join(
            build_batch(
                [Record(None, b"%d" % (base * 2 + place), (), 1) for place in range(2)], base_offset=base * 2, wall_ms=1
            )
            for base in range(batches)
        )  # fmt: skip
        self.last_stable_offset = batches * 2
        self.log = SimpleNamespace(start_offset=0)
        self.reads = 0

    def read(self, offset: int, max_bytes: int, upto: int) -> bytes:
        from headrace.records.batch import scan

        self.reads += 1
        at = next(position for position, header in scan(self.data) if header.next_offset > offset)
        return self.data[at:]


def test_offsets_that_do_not_ascend_are_all_found() -> None:
    """A FIFO receive over two groups asked for 1, 5, 0, 4; the last two were once taken for gaps and lost (R57)."""
    partition: Any = OneLog(3)
    found = Payloads(partition).get([1, 5, 0, 4])
    assert {offset: record.value for offset, record in found.items()} == {0: b"0", 1: b"1", 4: b"4", 5: b"5"}


def test_what_is_not_there_is_left_out() -> None:
    partition: Any = OneLog(2)
    payloads = Payloads(partition)
    assert set(payloads.get([3, 4, 99])) == {3}
    reads = partition.reads
    assert set(payloads.get([2, 0])) == {0, 2} or partition.reads > reads


maybe_bytes = st.none() | st.binary(max_size=9)
headers = st.lists(st.tuples(st.text(max_size=4), maybe_bytes), max_size=3).map(tuple)
sent_records = st.lists(
    st.builds(Record, maybe_bytes, maybe_bytes, headers, st.integers(-1, 2**40), st.just(-1)),
    min_size=1,
    max_size=6,
)


@given(sent_records, st.data())
def test_what_comes_from_memory_is_what_lies_in_the_log(sent: list[Record], data: st.DataObject) -> None:
    """In every field, whoever asks for whichever of them, and again when it is handed out once more."""
    partition: Any = OneLog(0)
    partition.data, partition.last_stable_offset = build_batch(sent, wall_ms=77, base_offset=0), len(sent)
    payloads = Payloads(partition)
    payloads.get([])  # somebody receives
    payloads.sent(0, sent)
    asked = data.draw(st.lists(st.integers(0, len(sent) + 1), unique=True))
    everything = list(range(len(sent) + 2))
    assert payloads.get(asked) == Payloads(partition).get(asked)
    assert payloads.get(everything) == Payloads(partition).get(everything)
    assert not payloads._sent and payloads._sent_bytes == 0


def test_what_was_sent_is_not_read_and_is_kept_once() -> None:
    partition: Any = OneLog(2)
    payloads = Payloads(partition)
    payloads.sent(0, [Record(None, b"0", (), 1)])
    assert payloads.get([0])[0].value == b"0" and partition.reads == 1, "nobody had received before"
    payloads.sent(8, [Record(None, b"8", (), 1), Record(None, b"9", (), 1)])
    assert [record.value for record in payloads.get([9, 8]).values()] == [b"9", b"8"] and partition.reads == 1
    assert not payloads.get([8]), "once: the log has it"


def test_what_nobody_receives_is_kept_up_to_a_limit() -> None:
    """Attributes count: they may be most of a message."""
    partition: Any = OneLog(0)
    payloads = Payloads(partition)
    large = Record(b"k" * 1_000, b"v" * 1_000, (("attribute", b"a" * 8_000), ("none", None)), 1)
    payloads.get([])
    for offset in range(100):
        payloads.sent(offset, [large])
        size = len(payloads._sent) * (HELD_BYTES + 10_000)
        assert size <= payloads._sent_bytes <= MAX_SENT_BYTES
    assert payloads._sent == {}, "whoever lags that far behind reads the log"
    payloads.get([])
    payloads.sent(100, [large])
    assert list(payloads._sent) == [100]


def test_who_only_looks_takes_nothing_from_those_who_receive() -> None:
    """Ages of queues are looked at every second."""
    partition: Any = OneLog(2)
    payloads = Payloads(partition)
    sent = [Record(None, b"8", (), 5)]
    payloads.sent(8, sent)
    assert not payloads._sent, "nobody receives"
    first = payloads.look(0)
    assert first is not None and first.value == b"0" and payloads.look(99) is None
    payloads.sent(8, sent)
    assert not payloads._sent, "looking is not receiving"
    payloads.get([])
    payloads.sent(8, sent)
    looked = payloads.look(8)
    assert looked is not None and looked.value == b"8" and list(payloads._sent) == [8]
