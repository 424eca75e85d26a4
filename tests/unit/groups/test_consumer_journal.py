"""Consumer and share group records: Kafka's bytes, and round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.plan import JournalRecord
from headrace.groups.assigned import MemberState
from headrace.groups.commands import Protocol
from headrace.groups.consumer import facts
from headrace.groups.consumer import journal as consumer_journal
from headrace.groups.consumer.members import ClassicMetadata, ConsumerSubscription
from headrace.groups.share import facts as share_facts
from headrace.groups.share import journal as share_journal
from headrace.groups.share.members import ShareSubscription

T = bytes(range(16))
TEXT = st.text(max_size=200)
EPOCH = st.integers(-2, 2**31 - 1)
PARTS = st.frozensets(st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1)), max_size=4)
PROTOCOLS = st.lists(st.builds(Protocol, TEXT, st.binary(max_size=20)), max_size=3).map(tuple)
SUBSCRIPTION = st.builds(
    ConsumerSubscription,
    st.lists(TEXT, max_size=3).map(tuple),
    st.none() | TEXT,
    st.none() | TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    st.integers(-1, 2**31 - 1),
    st.none() | TEXT,
    st.none() | st.builds(ClassicMetadata, EPOCH, PROTOCOLS),
)


def test_the_bytes_are_kafkas() -> None:
    (epoch,) = consumer_journal.encode(facts.GroupEpochSet("g", 7, -1, -1))
    assert epoch.key == bytes.fromhex("0003 0001 67")
    assert epoch.value == bytes.fromhex("0000 00000007 01 00 08 ffffffffffffffff")
    given_ = ConsumerSubscription(("t",), None, None, "r", "c", "/h", 1000, "range")
    (member,) = consumer_journal.encode(facts.MemberSubscribed("g", "m", given_))
    assert member.key == bytes.fromhex("0005 0001 67 0001 6d")
    assert member.value == bytes.fromhex("0000 00 0272 0263 032f68 02 0274 00 000003e8 0672616e6765 00")
    target, target_epoch = consumer_journal.encode(facts.TargetsSet("g", 7, (("m", frozenset({(T, 1)})),)))
    assert target.key == bytes.fromhex("0007 0001 67 0001 6d")
    assert target.value == bytes.fromhex("0000 02") + T + bytes.fromhex("02 00000001 00 00")
    assert (target_epoch.key, target_epoch.value) == (
        bytes.fromhex("0006 0001 67"), bytes.fromhex("0000 00000007 00"),
    )  # fmt: skip
    state = MemberState.UNREVOKED
    current_fact = facts.CurrentSet("g", "m", 2, 1, state, frozenset(), frozenset({(T, 1)}))
    (current,) = consumer_journal.encode(current_fact)
    assert current.key == bytes.fromhex("0008 0001 67 0001 6d")
    assert current.value == bytes.fromhex("0000 00000002 00000001 02 01 02") + T + bytes.fromhex(
        "02 00000001 00 00"
    )


FACTS: list[st.SearchStrategy[Any]] = [
    st.builds(facts.GroupEpochSet, TEXT, EPOCH, st.integers(-(2**63), 2**63 - 1), st.integers(-1, 2**62)),
    st.builds(facts.MemberSubscribed, TEXT, TEXT, SUBSCRIPTION),
    st.builds(facts.CurrentSet, TEXT, TEXT, EPOCH, EPOCH, st.sampled_from(MemberState), PARTS, PARTS),
]


@given(st.one_of(FACTS))
def test_round_trips(fact: Any) -> None:
    (record,) = consumer_journal.encode(fact)
    assert consumer_journal.decode(record) == fact
    assert share_journal.decode(record) is None


@given(
    st.one_of(
        st.builds(share_facts.ShareEpochSet, TEXT, EPOCH, st.integers(-(2**63), 2**63 - 1)),
        st.builds(
            share_facts.ShareMemberSubscribed,
            TEXT,
            TEXT,
            st.builds(ShareSubscription, st.lists(TEXT, max_size=3).map(tuple), st.none() | TEXT, TEXT, TEXT),
        ),
        st.builds(share_facts.ShareCurrentSet, TEXT, TEXT, EPOCH, EPOCH, PARTS),
    )
)
def test_share_round_trips(fact: Any) -> None:
    (record,) = share_journal.encode(fact)
    assert share_journal.decode(record) == fact
    assert consumer_journal.decode(record) is None


@given(TEXT, TEXT, PARTS)
def test_targets(group_id: str, member_id: str, parts: Any) -> None:
    target, epoch = consumer_journal.encode(facts.TargetsSet(group_id, 3, ((member_id, parts),)))
    assert consumer_journal.decode(target) == facts.TargetLoaded(group_id, member_id, parts)
    assert consumer_journal.decode(epoch) == facts.TargetsSet(group_id, 3, ())
    target, epoch = share_journal.encode(share_facts.ShareTargetsSet(group_id, 3, ((member_id, parts),)))
    assert share_journal.decode(target) == share_facts.ShareTargetLoaded(group_id, member_id, parts)


@given(st.sampled_from(range(3, 17)), st.binary(max_size=20), st.none() | st.binary(max_size=120))
def test_garbage_is_skipped(kind: int, key: bytes, value: bytes | None) -> None:
    for head in (b"", b"\x00\x01g\x00\x01m"):
        record = JournalRecord(
            kind.to_bytes(2, "big") + head + key, value if value is None else b"\0\0" + value
        )
        consumer_journal.decode(record)
        share_journal.decode(record)


def test_a_newer_version_and_an_unknown_state_are_skipped() -> None:
    (record,) = consumer_journal.encode(
        facts.CurrentSet("g", "m", 2, 1, MemberState.STABLE, frozenset(), frozenset())
    )
    assert record.value is not None
    assert consumer_journal.decode(record._replace(value=b"\x00\x01" + record.value[2:])) is None
    assert (
        consumer_journal.decode(record._replace(value=record.value[:10] + b"\x09" + record.value[11:]))
        is None
    )


@pytest.mark.parametrize("late", ["member", "target", "current", "group"])
def test_tombstones_that_outlive_their_group_bring_nothing_back(world: Any, late: str) -> None:
    left = consumer_journal.encode(facts.MemberLeft("g", "m"))
    gone = consumer_journal.encode(facts.ConsumerGroupDeleted("g"))
    records = {"current": left[0], "target": left[1], "member": left[2], "group": gone[1]}
    world.shard.replay(records[late], 0)
    share_left = share_journal.encode(share_facts.ShareMemberLeft("g", "m"))
    share_gone = share_journal.encode(share_facts.ShareGroupDeleted("g"))
    records = {
        "current": share_left[0],
        "target": share_left[1],
        "member": share_left[2],
        "group": share_gone[1],
    }
    world.shard.replay(records[late], 0)
    assert not world.shard.table.groups
