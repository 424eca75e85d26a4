"""Streams group records: Kafka's bytes, and round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.plan import JournalRecord
from headrace.groups.assigned import MemberState
from headrace.groups.consumer import journal as consumer_journal
from headrace.groups.share import journal as share_journal
from headrace.groups.streams import facts, journal
from headrace.groups.streams.members import MemberProfile, Role, Task
from headrace.groups.streams.topology import Copartition, InternalTopic, Subtopology, Topology

TEXT = st.text(max_size=60)
EPOCH = st.integers(-2, 2**31 - 1)
SMALL = st.integers(0, 2**15 - 1)
TASKS = st.frozensets(st.builds(Task, st.sampled_from(Role), TEXT, EPOCH), max_size=5)
PAIRS = st.lists(st.tuples(TEXT, TEXT), max_size=2).map(tuple)
TOPICS = st.lists(st.builds(InternalTopic, TEXT, EPOCH, SMALL, PAIRS), max_size=2).map(tuple)
NAMES = st.lists(TEXT, max_size=2).map(tuple)
PLACES = st.lists(SMALL, max_size=2).map(tuple)
COPARTITIONS = st.lists(st.builds(Copartition, PLACES, PLACES), max_size=2).map(tuple)
SUBTOPOLOGY = st.builds(Subtopology, TEXT, NAMES, TOPICS, NAMES, TOPICS, COPARTITIONS)
PROFILE = st.builds(
    MemberProfile,
    st.none() | TEXT,
    TEXT,
    TEXT,
    EPOCH,
    EPOCH,
    TEXT,
    st.none() | st.tuples(TEXT, st.integers(0, 65_535)),
    PAIRS,
)


def test_the_bytes_are_kafkas() -> None:
    (epoch,) = journal.encode(facts.StreamsEpochSet("g", 7, -1, 0, 1, -1))
    assert epoch.key == bytes.fromhex("0011 0001 67")
    settings = "02" + "15" + b"num.standby.replicas".hex() + "0231" + "00"
    assert epoch.value == bytes.fromhex("0000 00000007 ffffffffffffffff 02 00 04 00000000 01") + bytes(
        [len(bytes.fromhex(settings))]
    ) + bytes.fromhex(settings)
    profile = MemberProfile("r", "c", "/h", 1000, 0, "p", ("e", 8080), (("k", "v"),))
    (member,) = journal.encode(facts.StreamsMemberSet("g", "m", profile))
    assert member.key == bytes.fromhex("0013 0001 67 0001 6d")
    assert member.value == bytes.fromhex(
        "0000 00 0272 0263 032f68 000003e8 00000000 0270 01 0265 1f90 00 02 026b 0276 00 00"
    )
    tasks = frozenset({Task(Role.ACTIVE, "0", 1), Task(Role.STANDBY, "0", 2)})
    target, target_epoch = journal.encode(facts.StreamsTargetsSet("g", 7, (("m", tasks),), 5))
    assert target.key == bytes.fromhex("0015 0001 67 0001 6d")
    assert target.value == bytes.fromhex("0000 02 0230 02 00000001 00  02 0230 02 00000002 00  01 00")
    assert target_epoch.key == bytes.fromhex("0014 0001 67")
    assert target_epoch.value == bytes.fromhex("0000 00000007 01 00 08 0000000000000005")
    since = {Task(Role.ACTIVE, "0", 1): 6}
    (current,) = journal.encode(
        facts.StreamsCurrentSet("g", "m", 7, 6, MemberState.STABLE, tasks, frozenset(), since)
    )
    assert current.key == bytes.fromhex("0016 0001 67 0001 6d")
    assert current.value == bytes.fromhex(
        "0000 00000007 00000006 01  02 0230 02 00000001 01 00 05 02 00000006  02 0230 02 00000002 00  01  01 01 01 00"
    )
    sub = Subtopology(
        "0", ("s",), (InternalTopic("r", 3, 1),), ("k",), (InternalTopic("c"),), (Copartition((0,), (0,)),)
    )
    (topology,) = journal.encode(facts.TopologySet("g", Topology(4, (sub,))))
    assert topology.key == bytes.fromhex("0017 0001 67")
    assert topology.value == bytes.fromhex(
        "0000 00000004 02 0230 020273 01 02 0263 00000000 0000 01 00 02026b 02 0272 00000003 0001 01 00"
        "02 02 0000 01 02 0000 00 00 00"
    )


@given(
    st.one_of(
        st.builds(facts.StreamsEpochSet, TEXT, EPOCH, EPOCH, st.integers(-1, 9), st.integers(0, 3), st.integers(-1, 9)),
        st.builds(facts.TopologySet, TEXT, st.builds(Topology, EPOCH, st.lists(SUBTOPOLOGY, max_size=2).map(tuple))),
        st.builds(facts.StreamsMemberSet, TEXT, TEXT, PROFILE),
    )
)  # fmt: skip
def test_round_trips(fact: Any) -> None:
    (record,) = journal.encode(fact)
    assert journal.decode(record) == fact
    assert consumer_journal.decode(record) is None and share_journal.decode(record) is None


@given(TEXT, TEXT, EPOCH, st.sampled_from(MemberState), TASKS, TASKS)
def test_tasks(group_id: str, member_id: str, epoch: int, state: Any, tasks: Any, others: Any) -> None:
    since = {task: number for number, task in enumerate(tasks | others) if task.role is Role.ACTIVE}
    fact = facts.StreamsCurrentSet(group_id, member_id, epoch, 1, state, tasks, others - tasks, since)
    (record,) = journal.encode(fact)
    assert journal.decode(record) == fact
    target, epoch_record = journal.encode(facts.StreamsTargetsSet(group_id, 3, ((member_id, tasks),), 9))
    assert journal.decode(target) == facts.StreamsTargetLoaded(group_id, member_id, tasks)
    assert journal.decode(epoch_record) == facts.StreamsTargetsSet(group_id, 3, (), 9)


@given(st.sampled_from(range(17, 24)), st.binary(max_size=20), st.none() | st.binary(max_size=160))
def test_garbage_is_skipped(kind: int, key: bytes, value: bytes | None) -> None:
    for head in (b"", b"\x00\x01g\x00\x01m"):
        stored = value if value is None else b"\0\0" + value
        journal.decode(JournalRecord(kind.to_bytes(2, "big") + head + key, stored))


@pytest.mark.parametrize("late", range(6))
def test_tombstones_that_outlive_their_group_bring_nothing_back(world: Any, late: int) -> None:
    left = journal.encode(facts.StreamsMemberLeft("g", "m"))
    gone = journal.encode(facts.StreamsGroupDeleted("g"))
    world.shard.replay((*left, *gone)[late], world.now_ms)
    assert not world.shard.table.groups
    world.shard.invariants()
