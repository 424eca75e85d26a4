"""Records by offset, in any order: lanes take turns, so the offsets of one receive do not ascend."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.broker.queueing.payloads import Payloads
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
