from __future__ import annotations

import pytest

from headrace.core.ports import File
from headrace.log.aborted import AbortedTxn
from headrace.log.index import (
    NO_TIMESTAMP,
    BadIndex,
    SegmentSummary,
    SparseIndex,
    encode_index,
    read_front,
    read_index,
)
from headrace.log.memory_fs import MemoryFileSystem

SUMMARY = SegmentSummary(100, 190, 5000, 77, 1, 2, 4900, 180, 0xFFFFFFFF, True)
ABORTED = [AbortedTxn(7, 110, 120, 121)]


def _index() -> SparseIndex:
    index = SparseIndex()
    for i in range(9):
        index.add(i * 10, i * 500, NO_TIMESTAMP if i == 0 else 50 + i // 3)
    return index


def _file(data: bytes) -> File:
    fs = MemoryFileSystem()
    fs.make_dirs("/d")
    fs.write_file("/d/i", data)
    return fs.open("/d/i")


def test_round_trip() -> None:
    data = b"".join(encode_index(SUMMARY, ABORTED, _index()))
    assert read_front(_file(data)) == (SUMMARY, ABORTED, 9)
    summary, index = read_index(_file(data))
    assert summary == SUMMARY
    assert (index.offsets, index.positions, index.timestamps) == (
        _index().offsets,
        _index().positions,
        _index().timestamps,
    )


def test_many_aborted_transactions_make_a_long_front() -> None:
    many = [AbortedTxn(i, i, i + 1, i + 2) for i in range(500)]
    assert read_front(_file(b"".join(encode_index(SUMMARY, many, _index()))))[1] == many


def test_s14_all_damage_is_noticed() -> None:
    data = b"".join(encode_index(SUMMARY, ABORTED, _index()))
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x04
        with pytest.raises(BadIndex):
            read_index(_file(bytes(damaged)))
        with pytest.raises(BadIndex):
            read_index(_file(data[:position]))


def test_s14_a_sealed_but_senseless_index_is_refused() -> None:
    index = _index()
    index.add(5, 4600, 60)  # offsets went back
    with pytest.raises(BadIndex):
        read_index(_file(b"".join(encode_index(SUMMARY, [], index))))
    index = _index()
    index.add(85, 5000, 60)  # beyond the log
    with pytest.raises(BadIndex):
        read_index(_file(b"".join(encode_index(SUMMARY, [], index))))


def test_lookups() -> None:
    index = _index()
    assert index.before(0) == (0, 0)
    assert index.before(19) == (10, 500)
    assert index.before(1000) == (80, 4000)
    assert index.before(-5) == (0, 0)
    # timestamps: min, 50, 50, 51, 51, 51, 52, 52, 52
    assert index.before_timestamp(50) == 0
    assert index.before_timestamp(51) == 2
    assert index.before_timestamp(53) == 8
    index.truncate(1000)
    assert len(index) == 2
