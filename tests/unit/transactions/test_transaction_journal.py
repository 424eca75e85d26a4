"""The journal speaks Kafka's `__transaction_state` format."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transaction_world import P0, P1, World

from headrace.core.ids import TopicPartition
from headrace.core.plan import JournalRecord
from headrace.transactions import journal
from headrace.transactions.state import Transaction, TransactionState

SAMPLE = Transaction(
    "txn-é", 123456789, 7, TransactionState.PREPARE_COMMIT, 60_000,
    frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)}),
    6, 55, 66, True, 1_000, 2_000,
)  # fmt: skip

# TransactionLogKey v0 and TransactionLogValue v1, byte by byte from Kafka's schema.
KEY = bytes.fromhex("0000 0006") + "txn-é".encode()
VALUE = (
    bytes.fromhex("0001")
    + struct.pack(">qhib", 123456789, 7, 60_000, 2)
    + b"\x03"  # two topics, plus one
    + b"\x02a\x03" + struct.pack(">ii", 0, 2) + b"\x00"
    + b"\x02b\x02" + struct.pack(">i", 1) + b"\x00"
    + struct.pack(">qq", 2_000, 1_000)
    + b"\x04"  # tagged fields: previous id, next id, client version, and ours
    + b"\x00\x08" + struct.pack(">q", 55)
    + b"\x01\x08" + struct.pack(">q", 66)
    + b"\x02\x02" + struct.pack(">h", 2)
    + b"\x90\x4e\x02" + struct.pack(">h", 6)
)  # fmt: skip


def test_bytes_are_kafkas() -> None:
    assert journal.transaction_record(SAMPLE) == JournalRecord(KEY, VALUE)
    assert journal.decode(JournalRecord(KEY, VALUE)) == ("txn-é", SAMPLE)


def test_version_0_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 9, 3, 60_000, 1)
        + struct.pack(">ih1si", 1, 1, b"a", 2) + struct.pack(">ii", 0, 2)
        + struct.pack(">qq", 2_000, 1_000)
    )  # fmt: skip
    _, found = journal.decode(JournalRecord(KEY, value)) or ("", None)
    partitions = frozenset({TopicPartition("a", 0), TopicPartition("a", 2)})
    expected = Transaction("txn-é", 9, 3, TransactionState.ONGOING, 60_000, partitions)
    assert found == expected._replace(start_wall_ms=1_000, updated_wall_ms=2_000)


def test_null_partitions_are_none() -> None:
    value = struct.pack(">hqhib", 0, 9, 3, 60_000, 0) + struct.pack(">iqq", -1, 1, -1)
    decoded = journal.decode(JournalRecord(KEY, value))
    assert decoded is not None and decoded[1] is not None and decoded[1].partitions == frozenset()


def test_tombstones() -> None:
    assert journal.tombstone("txn-é") == JournalRecord(KEY, None)
    assert journal.decode(JournalRecord(KEY, None)) == ("txn-é", None)


@pytest.mark.parametrize(
    "record",
    [
        JournalRecord(b"", VALUE),
        JournalRecord(b"\x00\x01" + KEY[2:], VALUE),
        JournalRecord(KEY[:-1], VALUE),
        JournalRecord(KEY, b""),
        JournalRecord(KEY, b"\x00\x02" + VALUE[2:]),
        JournalRecord(KEY, VALUE[:-1]),
        JournalRecord(KEY, VALUE + b"\x00"),
        JournalRecord(KEY, VALUE[:16] + b"\x63" + VALUE[17:]),  # a state nobody knows
    ],
)
def test_what_is_not_understood_is_skipped(record: JournalRecord) -> None:
    assert journal.decode(record) is None
    world = World()
    world.shard.replay(record, 0)
    assert not world.shard.table.entries


def test_unknown_tagged_fields_are_skipped() -> None:
    value = VALUE.replace(b"\x04\x00\x08", b"\x05\x00\x08", 1) + b"\x91\x4e\x03abc"
    assert journal.decode(JournalRecord(KEY, value)) == ("txn-é", SAMPLE)


transactions = st.builds(
    Transaction,
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.sampled_from(TransactionState),
    st.integers(1, 2**31 - 1),
    st.frozensets(
        st.builds(TopicPartition, st.text("ab.c", min_size=1, max_size=3), st.integers(0, 99)), max_size=8
    ),
    st.integers(-1, 32767),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.booleans(),
    st.integers(-1, 2**62),
    st.integers(-1, 2**62),
)


@given(transactions)
def test_round_trip(transaction: Transaction) -> None:
    record = journal.transaction_record(transaction)
    assert journal.decode(record) == (transaction.transactional_id, transaction)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_noise_never_raises(key: bytes, value: bytes | None) -> None:
    journal.decode(JournalRecord(key, value))
    journal.decode(JournalRecord(KEY, b"\x00\x01" + (value or b"")))


def test_the_newest_record_of_each_id_is_enough() -> None:
    """Compaction leaves only that one, and a reload comes to the same state."""
    world = World()
    producer = world.init()
    world.add(producer, P0)
    world.add(producer, P1)
    world.end(producer, bump=True)
    before = world.transaction()
    world.restart(compacted=True)
    assert world.transaction() == before
    assert len(world.effects) == 1
