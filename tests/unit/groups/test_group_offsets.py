"""OffsetCommit, OffsetFetch, OffsetDelete and retention."""

from __future__ import annotations

from typing import Any

import pytest
from subscriptions import encode_subscription

from headrace.core.errors import ErrorKind
from headrace.core.plan import WallClock
from headrace.groups.commands import (
    AdoptOffsets,
    DeleteGroups,
    DeleteOffsets,
    FetchOffsets,
    OffsetToCommit,
    Protocol,
    TopicDeleted,
)
from headrace.groups.facts import OffsetsCommitted
from headrace.groups.subscription import MemberSubscription

DAY_MS = 86_400_000
T0 = OffsetToCommit("t", 0, 42, 7, "note")
READS_T = {"protocols": (Protocol("range", encode_subscription(MemberSubscription(1, ("t",)))),)}


def test_a_simple_consumer_commits_without_a_group(world: Any) -> None:
    assert world.commit(T0).partitions[0].error is ErrorKind.NONE
    got = world.committed()
    assert (got.offset, got.leader_epoch, got.metadata, got.error) == (42, 7, "note", ErrorKind.NONE)


def test_r53_the_commit_and_its_answer_are_one_plan(world: Any) -> None:
    world.commit(T0)
    assert [type(fact) for fact in world.last.facts if fact.durable] == [OffsetsCommitted]
    assert len(world.last.replies) == 1


def test_null_metadata_is_empty_metadata(world: Any) -> None:
    world.commit(T0._replace(metadata=None))
    assert world.committed().metadata == ""


def test_nothing_known_is_not_an_error(world: Any) -> None:
    """kafka.md trap 3: librdkafka's committed() fails on GROUP_ID_NOT_FOUND."""
    got = world.committed(group_id="nowhere")
    assert (got.offset, got.leader_epoch, got.metadata, got.error) == (-1, -1, "", ErrorKind.NONE)
    everything = world.ask(lambda w: FetchOffsets("nowhere", None, waiter=w))
    assert everything == (ErrorKind.NONE, ())


def test_fetch_of_everything(world: Any) -> None:
    world.commit(T0, T0._replace(partition=1), T0._replace(topic="u"))
    found = world.ask(lambda w: FetchOffsets("g", None, waiter=w)).partitions
    assert sorted((f.topic, f.partition) for f in found) == [("t", 0), ("t", 1), ("u", 0)]


@pytest.mark.parametrize("metadata", ["x" * 4097, "é" * 2049])
def test_metadata_is_bounded_per_partition(world: Any, metadata: str) -> None:
    result = world.commit(T0._replace(metadata=metadata), T0._replace(partition=1))
    assert [p.error for p in result.partitions] == [ErrorKind.OFFSET_METADATA_TOO_LARGE, ErrorKind.NONE]
    assert (world.committed().offset, world.committed(partition=1).offset) == (-1, 42)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "generation": 1}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "m1", "generation": 0}, ErrorKind.ILLEGAL_GENERATION),
        ({"member_id": "m1", "generation": -1}, ErrorKind.ILLEGAL_GENERATION),
        ({"member_id": "m1", "generation": 1, "instance_id": "x"}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "m1", "generation": 1}, ErrorKind.NONE),
    ],
)
def test_r54_only_members_of_this_generation_commit(world: Any, fields: Any, error: ErrorKind) -> None:
    world.stable("a")
    result = world.commit(T0, **fields)
    assert (result.error, result.partitions[0].error) == (error, error)
    assert (world.committed().offset == 42) == (error is ErrorKind.NONE)


def test_a_generation_of_an_unknown_group(world: Any) -> None:
    old = world.commit(T0, generation=3, member_id="m", member_epoch_known=False)
    assert old.error is ErrorKind.ILLEGAL_GENERATION
    assert world.commit(T0, generation=3, member_id="m").error is ErrorKind.GROUP_ID_NOT_FOUND


def test_committing_while_a_rebalance_is_under_way(world: Any) -> None:
    """Before the new generation starts the old one may still save its work; after that it may not (librdkafka 0118)."""
    leader, follower = world.stable("a", "b")
    world.join(leader)
    assert world.commit(T0, member_id=follower, generation=2).error is ErrorKind.NONE
    world.join(follower)
    assert world.commit(T0, member_id=follower, generation=2).error is ErrorKind.ILLEGAL_GENERATION
    assert world.commit(T0, member_id=follower, generation=3).error is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life(world: Any) -> None:
    (member,) = world.stable("a")
    for _ in range(4):
        world.advance(9_000)
        assert world.commit(T0, member_id=member, generation=1).error is ErrorKind.NONE


def test_an_administrator_commits_for_an_empty_group(world: Any) -> None:
    world.leave(*world.stable("a"))
    assert world.commit(T0).error is ErrorKind.NONE


# --- deletion ------------------------------------------------------------------------------------------------


def drop(world: Any, *partitions: tuple[str, int], group_id: str = "g") -> Any:
    return world.ask(lambda w: DeleteOffsets(group_id, partitions, waiter=w))


def test_offset_delete(world: Any) -> None:
    world.commit(T0, T0._replace(partition=1))
    assert [p.error for p in drop(world, ("t", 0), ("t", 9)).partitions] == [ErrorKind.NONE, ErrorKind.NONE]
    assert (world.committed().offset, world.committed(partition=1).offset) == (-1, 42)
    assert drop(world, ("t", 0), group_id="nowhere").error is ErrorKind.GROUP_ID_NOT_FOUND


def test_offsets_that_members_read_from_can_not_be_deleted(world: Any) -> None:
    (member,) = world.stable("a", **READS_T)
    world.commit(T0, T0._replace(topic="u"), member_id=member, generation=1)
    result = drop(world, ("t", 0), ("u", 0))
    assert [p.error for p in result.partitions] == [ErrorKind.GROUP_SUBSCRIBED_TO_TOPIC, ErrorKind.NONE]


def test_offsets_of_members_nobody_understands_can_not_be_deleted(world: Any) -> None:
    world.stable("a", protocols=(Protocol("range", b"\x00"),))
    assert drop(world, ("t", 0)).partitions[0].error is ErrorKind.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_live_group_of_another_kind_can_not_be_deleted(world: Any) -> None:
    world.stable("a", protocol_type="connect")
    assert drop(world, ("t", 0)).error is ErrorKind.NON_EMPTY_GROUP


def test_a_deleted_topic_takes_its_offsets_along(world: Any) -> None:
    world.commit(T0, T0._replace(topic="u"))
    world.commit(T0, group_id="h")
    world.ask(lambda w: TopicDeleted("t", waiter=w))
    assert world.committed().offset == world.committed(group_id="h").offset == -1
    assert world.committed("u").offset == 42
    world.restart()
    assert world.committed().offset == world.committed(group_id="h").offset == -1
    assert "h" not in world.shard.table.offsets.group_ids()


def test_f1_a_deletion_takes_the_offsets_of_one_life_along(world: Any) -> None:
    """Told late, when the name is taken again: what was committed for the new topic stays."""
    old, new = b"o" * 16, b"n" * 16
    world.commit(T0._replace(topic_id=old))
    assert world.committed().topic_id == old
    world.restart()
    assert world.committed().topic_id == old, "it is journaled"
    world.commit(T0._replace(topic_id=new, offset=7))
    world.ask(lambda w: TopicDeleted("t", old, waiter=w))
    assert (world.committed().offset, world.committed().topic_id) == (7, new)
    world.ask(lambda w: TopicDeleted("t", new, waiter=w))
    assert world.committed().offset == -1


def test_f1_offsets_from_before_there_were_ids_belong_to_the_topic_that_is_there(world: Any) -> None:
    world.commit(T0, T0._replace(topic="gone"))
    adopted = b"a" * 16
    world.ask(lambda w: AdoptOffsets({"t": adopted}, waiter=w))
    world.restart()
    assert (world.committed().offset, world.committed().topic_id) == (42, adopted)
    assert world.committed("gone").topic_id == b""
    world.ask(lambda w: AdoptOffsets({"t": b"b" * 16}, waiter=w))
    assert world.committed().topic_id == adopted, "once"


# --- retention -----------------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_a_week_after_the_commit(world: Any) -> None:
    world.commit(T0)
    world.advance(7 * DAY_MS - 1)
    assert world.committed().offset == 42
    world.advance(1)
    assert world.committed().offset == -1
    assert world.shard.next_deadline() is None, "nothing is left to watch"


def test_offsets_of_a_group_expire_a_week_after_it_became_empty(world: Any) -> None:
    (member,) = world.stable("a")
    world.commit(T0, member_id=member, generation=1)
    for _ in range(10 * DAY_MS // 1_800_000):
        world.advance(1_800_000 - 9_000)
        (member,) = world.stable("a") if not world.group().members else [member]
    world.advance(9_000)
    world.leave(*world.group().members)
    assert world.committed().offset == 42, "in use for longer than a week"
    world.advance(7 * DAY_MS - 1)
    assert world.committed().offset == 42
    world.advance(2)
    assert world.committed().offset == -1
    assert "g" not in world.shard.table.groups, "the group went with its last offset"


def test_offsets_nobody_reads_expire_in_a_live_group(make_world: Any) -> None:
    world = make_world(max_session_timeout_ms=20 * DAY_MS)
    (member,) = world.stable("a", session_timeout_ms=20 * DAY_MS, **READS_T)
    world.commit(T0, T0._replace(topic="u"), member_id=member, generation=1)
    world.advance(8 * DAY_MS)
    assert (world.committed().offset, world.committed("u").offset) == (42, -1)


def test_a_client_may_ask_for_its_own_retention(world: Any) -> None:
    world.commit(T0, retention_ms=1_000)
    world.advance(999)
    assert world.committed().offset == 42
    world.restart()
    world.advance(world.config.cleanup_interval_ms)
    assert world.committed().offset == -1


def test_time_spent_down_counts(world: Any) -> None:
    world.commit(T0)
    world.restart(down_ms=8 * DAY_MS)
    world.advance(world.config.cleanup_interval_ms)
    assert world.committed().offset == -1


def test_a_step_of_the_wall_clock_is_noticed(world: Any) -> None:
    world.commit(T0)
    wall_ms = world.shard.table.wall_ms(world.now_ms) - DAY_MS
    world.ask(lambda w: WallClock(wall_ms, waiter=w))
    world.advance(7 * DAY_MS)
    assert world.committed().offset == 42
    world.advance(DAY_MS)
    assert world.committed().offset == -1


def test_an_empty_group_without_offsets_is_forgotten_soon(world: Any) -> None:
    world.leave(*world.stable("a"))
    world.advance(world.config.cleanup_interval_ms)
    assert not world.shard.table.groups
    world.restart()
    assert not world.shard.table.groups


def test_deleting_a_group_takes_everything(world: Any) -> None:
    world.commit(T0)
    world.leave(*world.stable("a"))
    world.stable("b", group_id="busy")
    result = world.ask(lambda w: DeleteGroups(("g", "busy", "nowhere", ""), waiter=w))
    assert [d.error for d in result] == [
        ErrorKind.NONE,
        ErrorKind.NON_EMPTY_GROUP,
        ErrorKind.GROUP_ID_NOT_FOUND,
        ErrorKind.INVALID_GROUP_ID,
    ]
    world.restart()
    assert world.committed().offset == -1 and set(world.shard.table.groups) == {"busy"}
