from __future__ import annotations

import pytest
from log_bench import marker, produced

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.checkpoints import DamagedFile
from headrace.log.producers import ProducerTable
from headrace.log.results import ACCEPT, UNTOLD, Duplicate
from headrace.log.snapshots import decode_snapshot, encode_snapshot
from headrace.records.batch import MAX_SEQUENCE, BatchHeader, read_header

PID = 7


def _header(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False) -> BatchHeader:
    return read_header(produced(PID, sequence, count, epoch=epoch, transactional=transactional))


def _table(*batches: BatchHeader) -> ProducerTable:
    table = ProducerTable()
    offset = 100
    for header in batches:
        table.record(header, offset, 1, wall_ms=1)
        offset += header.last_offset_delta + 1
    return table


def _kind(verdict: object) -> ErrorKind:
    assert isinstance(verdict, Rejected), verdict
    return verdict.kind


def test_plain_and_unknown_producers_are_accepted_at_any_sequence() -> None:
    table = ProducerTable()
    assert table.check(read_header(produced(-1, -1))) is ACCEPT
    assert table.check(_header(1234)) is UNTOLD  # expired or never seen: kafka.md 5.3 (5)
    assert table.check(_header(0)) is ACCEPT


def test_r38_exact_repeats_of_the_last_five_get_their_first_offset() -> None:
    table = _table(*[_header(i * 2, 2) for i in range(6)])
    for i in range(1, 6):
        assert table.check(_header(i * 2, 2)) == Duplicate(100 + i * 2, 101 + i * 2, 1)
    assert (
        _kind(table.check(_header(0, 2))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    )  # the sixth is forgotten
    assert (
        _kind(table.check(_header(2, 1))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    )  # overlaps, but is no repeat


def test_r39_sequences() -> None:
    table = _table(_header(0, 3))
    assert table.check(_header(3)) is ACCEPT
    assert _kind(table.check(_header(4))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _kind(table.check(_header(1))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert table.check(_header(0, epoch=1)) is ACCEPT
    assert _kind(table.check(_header(3, epoch=1))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _kind(_table(_header(0, epoch=2)).check(_header(1, epoch=1))) is ErrorKind.INVALID_PRODUCER_EPOCH


def test_r39_a_new_epoch_forgets_the_batches_of_the_old() -> None:
    table = _table(_header(0), _header(0, epoch=1))
    assert table.check(_header(0, epoch=1)) == Duplicate(101, 101, 1)
    assert table.check(_header(1, epoch=1)) is ACCEPT


@pytest.mark.parametrize(("first", "count", "following"), [(MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 1, 4, 2)])
def test_r39_sequences_wrap(first: int, count: int, following: int) -> None:
    table = _table(_header(first, count))
    assert table.check(_header(following)) is ACCEPT
    assert table.check(_header(first, count)) == Duplicate(100, 99 + count, 1)
    assert _kind(table.check(_header(following + 1))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_r39_a_plain_batch_in_an_open_transaction() -> None:
    table = _table(_header(0, transactional=True))
    assert _kind(table.check(_header(1))) is ErrorKind.INVALID_TXN_STATE
    table.complete(PID, 0, 0, 101, wall_ms=1)
    assert table.check(_header(1)) is ACCEPT


def test_a_marker_with_a_bumped_epoch_starts_the_sequence_anew() -> None:
    """Transaction version 2: the marker carries the epoch the producer goes on with (R46)."""
    table = _table(_header(0, transactional=True))
    assert table.complete(PID, 1, 0, 101, wall_ms=1) == 100
    assert table.check(_header(0, epoch=1, transactional=True)) is ACCEPT
    assert _kind(table.check(_header(5, epoch=1))) is ErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _kind(table.check(_header(1, epoch=0))) is ErrorKind.INVALID_PRODUCER_EPOCH


def test_r43_markers_of_older_epochs_and_coordinators() -> None:
    table = _table(_header(0, epoch=3, transactional=True))
    assert table.check_marker(99, 0, 0) is ACCEPT
    assert _kind(table.check_marker(PID, 2, 9)) is ErrorKind.INVALID_PRODUCER_EPOCH
    table.complete(PID, 3, 5, 101, wall_ms=1)
    assert _kind(table.check_marker(PID, 3, 4)) is ErrorKind.TRANSACTION_COORDINATOR_FENCED
    assert table.check_marker(PID, 3, 5) is ACCEPT


def test_r48_last_stable_offset() -> None:
    table = ProducerTable()
    assert table.last_stable_offset(50) == 50
    for pid, offset in ((1, 10), (2, 12), (3, 14)):
        table.record(read_header(produced(pid, 0, transactional=True)), offset, 1, wall_ms=1)
    assert (table.first_open_offset, table.last_stable_offset(50)) == (10, 10)
    table.complete(1, 0, 0, marker_offset=20, wall_ms=1)
    assert table.last_stable_offset(20) == 10, "the marker is not replicated yet"
    assert table.last_stable_offset(21) == 12
    table.complete(3, 0, 0, marker_offset=21, wall_ms=1)
    table.complete(2, 0, 0, marker_offset=22, wall_ms=1)
    assert table.last_stable_offset(22) == 12
    assert table.last_stable_offset(23) == 23
    assert table.complete(2, 0, 0, marker_offset=30, wall_ms=1) is None, "nothing was open"


def test_r40_expiry_spares_open_transactions() -> None:
    table = ProducerTable()
    table.record(read_header(produced(1, 0)), 0, 1, wall_ms=1_000)
    table.record(read_header(produced(2, 0, transactional=True)), 1, 1, wall_ms=1_000)
    table.record(read_header(produced(3, 0)), 2, 1, wall_ms=5_000)
    assert table.expire(10_000, expiration_ms=6_000) == 1
    assert [pid for pid, _ in table] == [2, 3]


def test_r40_snapshot_round_trip_and_damage() -> None:
    table = _table(_header(0), _header(1, 3, transactional=True))
    table.record(read_header(produced(3, MAX_SEQUENCE, epoch=9)), 500, 77, wall_ms=9)
    table.complete(11, 2, 6, 501, wall_ms=10)
    data = encode_snapshot(502, table)
    copy = decode_snapshot(data, 502)
    assert encode_snapshot(502, copy) == data
    assert copy.first_open_offset == table.first_open_offset == 101
    assert copy.check(_header(4, transactional=True)) is ACCEPT
    with pytest.raises(DamagedFile):
        decode_snapshot(data, 503)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(DamagedFile):
            decode_snapshot(bytes(damaged), 502)
        with pytest.raises(DamagedFile):
            decode_snapshot(data[:position], 502)


def test_markers_read_back() -> None:
    assert read_header(marker(PID, commit=True)).is_control
