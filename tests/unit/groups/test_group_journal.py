"""The journal speaks Kafka's own formats, skips what it does not know, and rebuilds what was there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ErrorKind
from headrace.core.plan import JournalRecord
from headrace.groups import journal
from headrace.groups.commands import OffsetToCommit, Protocol
from headrace.groups.facts import GroupSnapshot
from headrace.groups.fields import fits
from headrace.groups.members import Member
from headrace.groups.offset_table import CommittedOffset

TEXT = st.text(max_size=12)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def test_offset_commit_bytes_are_kafkas() -> None:
    record = journal.offset_record("grp", "top", 5, CommittedOffset(9, 2, "md", 1_000))
    assert record.key == bytes.fromhex("0001 0003 677270 0003 746f70 00000005")
    assert record.value == bytes.fromhex("0003 0000000000000009 00000002 0002 6d64 00000000000003e8")


def test_the_id_of_the_topic_lies_where_kafkas_readers_do_not_look() -> None:
    """F1: behind version 3 and version 1, whose fields come first and are unchanged."""
    for expiry in (-1, 2_000):
        plain = CommittedOffset(9, -1, "md", 1_000, expiry)
        value = plain._replace(topic_id=bytes(range(16)))
        record = journal.offset_record("g", "t", 0, value)
        before = journal.offset_record("g", "t", 0, plain).value
        assert before is not None and record.value == before + bytes(range(16))
        assert journal.decode(record) == ("g", "t", 0, value)


def test_an_offset_with_its_own_expiry_is_written_as_version_1() -> None:
    record = journal.offset_record("g", "t", 0, CommittedOffset(9, 2, "", 1_000, 2_000))
    assert record.value == bytes.fromhex("0001 0000000000000009 0000 00000000000003e8 00000000000007d0")


def test_group_metadata_bytes_are_kafkas() -> None:
    member = Member("m", "i", "c", "/h", 10_000, 60_000, (Protocol("p", b"\x07"),), b"\x08\x09")
    record = journal.group_record("g", GroupSnapshot("consumer", 3, "p", "m", 5, (member,)))
    assert record.key == bytes.fromhex("0002 0001 67")
    assert record.value == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000003 0001 70 0001 6d 0000000000000005 00000001"
        "0001 6d 0001 69 0001 63 0002 2f68 0000ea60 00002710 00000001 07 00000002 0809"
    )


def test_tombstones() -> None:
    assert journal.decode(journal.offset_record("g", "t", 1, None)) == ("g", "t", 1, None)
    assert journal.decode(journal.group_record("g", None)) == ("g", None)


@given(TEXT, TEXT, INT32, INT64, INT32, TEXT, INT64, st.one_of(st.just(-1), st.integers(0, 2**63 - 1)))
def test_offsets_round_trip(
    g: str, t: str, p: int, offset: int, epoch: int, md: str, at: int, expiry: int
) -> None:
    value = CommittedOffset(offset, epoch if expiry < 0 else -1, md, at, expiry)
    assert journal.decode(journal.offset_record(g, t, p, value)) == (g, t, p, value)


@given(
    TEXT,
    st.builds(
        GroupSnapshot,
        TEXT,
        INT32,
        st.just("proto"),
        st.none() | TEXT,
        INT64,
        st.lists(
            st.builds(
                Member,
                TEXT,
                st.none() | TEXT,
                TEXT,
                TEXT,
                INT32,
                st.integers(0, 2**31 - 1),
                st.tuples(st.builds(Protocol, st.just("proto"), st.binary(max_size=9))),
                st.binary(max_size=9),
                st.just(False),
                st.none(),
                st.none(),
            ),
            max_size=3,
        ).map(tuple),
    ),
)
def test_groups_round_trip(group_id: str, snapshot: GroupSnapshot) -> None:
    assert journal.decode(journal.group_record(group_id, snapshot)) == (group_id, snapshot)


@given(st.binary(max_size=60), st.none() | st.binary(max_size=80))
def test_garbage_is_skipped(key: bytes, value: bytes | None) -> None:
    journal.decode(JournalRecord(key, value))


@given(st.sampled_from([0, 1, 2, 3, 5, 6, 7, 8, 11]), st.binary(max_size=30), st.binary(max_size=80))
def test_garbage_of_known_kinds_is_skipped(kind: int, key: bytes, value: bytes) -> None:
    journal.decode(JournalRecord(kind.to_bytes(2, "big") + key, value))
    journal.decode(JournalRecord(kind.to_bytes(2, "big") + b"\x00\x01g" + key, b"\x00\x00" + value))


def test_unknown_kinds_and_versions_are_skipped(world: Any) -> None:
    known = journal.offset_record("g", "t", 0, CommittedOffset(1, 1, "", 1))
    for record in (
        JournalRecord(b"\x00\x63whatever", b"\x00\x00"),
        JournalRecord(known.key, b"\x00\x63"),
        JournalRecord(b"", None),
    ):
        world.shard.replay(record, 0)
    assert world.committed().offset == -1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_of_older_brokers_are_read(version: int) -> None:
    head = version.to_bytes(2, "big") + bytes.fromhex("0001 63 00000003 0001 70 0001 6d")
    since = b"" if version < 2 else bytes(8)
    rebalance = b"" if version < 1 else (60_000).to_bytes(4, "big")
    member = bytes.fromhex("0001 6d 0001 63 0001 68") + rebalance + (10_000).to_bytes(4, "big")
    value = head + since + b"\x00\x00\x00\x01" + member + bytes(8)
    decoded = journal.decode(JournalRecord(b"\x00\x02\x00\x01g", value))
    assert isinstance(decoded, journal.GroupRecord) and decoded.value is not None
    (loaded,) = decoded.value.members
    assert loaded.rebalance_timeout_ms == (10_000 if version < 1 else 60_000)


# --- reload --------------------------------------------------------------------------------------------------


def test_a_stable_group_is_there_again_with_whole_sessions(world: Any) -> None:
    leader, follower = world.stable("a", "b", assignments={"m1": b"one", "m2": b"two"})
    world.advance(9_000)
    before = {m: world.group().members[m].assignment for m in (leader, follower)}
    world.restart()
    assert world.group().state.value == "Stable"
    world.advance(9_999)
    assert world.beat(leader, 2) is ErrorKind.NONE
    assert world.beat(follower, 2) is ErrorKind.NONE
    assert {m: world.answers[world.sync(m, 2)].assignment for m in (leader, follower)} == before
    world.advance(10_000)
    assert world.group().state.value == "Empty"


def test_r54_a_generation_that_was_announced_is_never_used_again(world: Any) -> None:
    """A crash between JoinGroup and SyncGroup: a delayed assignment of the lost round must not fit the next one."""
    leader, follower = world.stable("a", "b")
    world.join(leader)
    lost = world.answers[world.join(follower)].generation
    world.restart()
    assert world.group().state.value == "PreparingRebalance"
    assert world.beat(leader, lost) is ErrorKind.REBALANCE_IN_PROGRESS, "they keep their ids and come again"
    world.join(leader)
    again = world.answers[world.join(follower)]
    assert again.generation == lost + 1
    late = world.answers[world.sync(leader, lost, assignments=((leader, b"stale"),))]
    assert late.error is ErrorKind.ILLEGAL_GENERATION


def test_r54_members_that_do_not_come_again_after_a_lost_round_are_out(world: Any) -> None:
    leader, follower = world.stable("a", "b")
    world.join(leader)
    world.join(follower)
    world.restart()
    back = world.join(leader)
    world.advance(10_000)
    assert world.answers[back].generation == 4
    assert list(world.group().members) == [leader]


def test_an_empty_group_remembers_its_generation(world: Any) -> None:
    world.leave(*world.stable("a"))
    world.restart()
    assert (world.group().state.value, world.group().generation) == ("Empty", 2)
    assert world.answers[world.join()].generation == 3


def test_what_a_client_chose_must_fit_the_journal(world: Any) -> None:
    long = "x" * 40_000
    assert world.answers[world.join(group_id=long)].error is ErrorKind.INVALID_GROUP_ID
    assert world.answers[world.join(client_id=long)].error is ErrorKind.INVALID_REQUEST
    assert world.commit(OffsetToCommit("t", 0, 1), group_id=long).error is ErrorKind.INVALID_GROUP_ID
    assert fits("é" * 16_383) and not fits("é" * 16_384)
