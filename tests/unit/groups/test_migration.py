"""A group changes protocols while it works: classic to consumer and back (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from subscriptions import encode_subscription

from headrace.core.errors import ErrorKind
from headrace.groups.commands import MemberIdentity, OffsetToCommit, Protocol
from headrace.groups.config import Migration
from headrace.groups.consumer.commands import ConsumerGroupDescribe, ConsumerGroupHeartbeat, TopicsChanged
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.state import ClassicGroup
from headrace.groups.subscription import (
    MemberSubscription,
    encode_assignment,
    parse_assignment,
)
from headrace.groups.topics import TopicInfo

T = b"t" * 16


def protocols(*owned: int, topics: tuple[str, ...] = ("t",)) -> tuple[Protocol, ...]:
    metadata = encode_subscription(MemberSubscription(1, topics, (("t", owned),) if owned else ()))
    return (Protocol("cooperative-sticky", metadata),)


def use_topics(world: Any, count: int = 4) -> None:
    world.ask(lambda w: TopicsChanged({"t": TopicInfo(T, count)}, waiter=w))


def consumer(world: Any, member_id: str, epoch: int, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "owned": (), "topics": ("t",), **fields}
    return world.ask(lambda w: ConsumerGroupHeartbeat("g", member_id, epoch, **fields, waiter=w))


def assigned(world: Any, member_id: str, generation: int) -> list[int]:
    answer = world.answers[world.sync(member_id, generation)]
    assert answer.error is ErrorKind.NONE
    return list(dict(parse_assignment(answer.assignment) or ()).get("t", ()))


@pytest.fixture
def classic(make_world: Any) -> Any:
    """A stable classic group of two: m1 has 0 and 1, m2 has 2 and 3."""
    world = make_world(initial_rebalance_delay_ms=1_000)
    use_topics(world)
    world.join(protocols=protocols())
    world.join(protocols=protocols())
    world.advance(2_000)
    given = tuple((m, encode_assignment(1, (("t", p),))) for m, p in (("m1", (0, 1)), ("m2", (2, 3))))
    world.sync("m1", 1, assignments=given)
    world.sync("m2", 1)
    return world


def test_the_first_new_consumer_upgrades_the_group(classic: Any) -> None:
    answer = consumer(classic, "c", 0)
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorKind.NONE, 2, ())
    group = classic.group()
    assert isinstance(group, ConsumerGroup)
    assert group.members["m1"].assigned == {(T, 0), (T, 1)}, "nobody loses anything by the change itself"


def test_r55_a_classic_member_gives_up_before_the_new_one_gets(classic: Any) -> None:
    consumer(classic, "c", 0)
    assert classic.beat("m1", 1) is ErrorKind.REBALANCE_IN_PROGRESS
    joined = classic.answers[classic.join("m1", protocols=protocols(0, 1))]
    losing = joined.generation == 1
    mine = assigned(classic, "m1", joined.generation)
    other = classic.answers[classic.join("m2", protocols=protocols(2, 3))]
    theirs = assigned(classic, "m2", other.generation)
    assert sorted(len(p) for p in (mine, theirs)) == [1, 2], "one of them gives one up"
    consumer_part = consumer(classic, "c", 2).assignment
    assert consumer_part is None
    loser, kept, epoch = ("m1", mine, joined.generation) if losing else ("m2", theirs, other.generation)
    assert classic.beat(loser, epoch) is ErrorKind.REBALANCE_IN_PROGRESS, "it has to confirm"
    again = classic.answers[classic.join(loser, protocols=protocols(*kept))]
    assert again.generation == 2
    assert assigned(classic, loser, 2) == kept
    ((_, got),) = consumer(classic, "c", 2).assignment
    assert sorted((*mine, *theirs, *got)) == [0, 1, 2, 3]
    assert classic.beat("m1", 2) is classic.beat("m2", 2) is ErrorKind.NONE


def test_an_eager_classic_member_owns_nothing_when_it_joins(classic: Any) -> None:
    consumer(classic, "c", 0)
    first = classic.answers[classic.join("m1", protocols=protocols())]
    second = classic.answers[classic.join("m2", protocols=protocols())]
    assert {first.generation, second.generation} == {2}
    consumer(classic, "c", 2)
    everything = assigned(classic, "m1", 2) + assigned(classic, "m2", 2)
    assert len(everything) == 3


def test_parked_joins_are_sent_to_the_new_group(classic: Any) -> None:
    parked = classic.join("m1", protocols=protocols(0, 1))
    assert parked not in classic.answers
    consumer(classic, "c", 0)
    assert classic.answers[parked].error is ErrorKind.REBALANCE_IN_PROGRESS


def test_parked_syncs_are_sent_to_the_new_group(classic: Any) -> None:
    classic.join("m1", protocols=protocols(0, 1))
    classic.join("m2", protocols=protocols(2, 3))
    parked = classic.sync("m2", 2)
    consumer(classic, "c", 0)
    assert classic.answers[parked].error is ErrorKind.REBALANCE_IN_PROGRESS
    assert classic.group().members["m2"].assigned == {(T, 2), (T, 3)}, (
        "R55: a cooperative member still has them"
    )


@pytest.mark.parametrize("metadata", [b"", b"\x00"])
def test_a_group_that_is_not_ours_to_read_is_not_upgraded(make_world: Any, metadata: bytes) -> None:
    world = make_world()
    use_topics(world)
    world.stable("a", protocols=(Protocol("range", metadata),))
    assert consumer(world, "c", 0).error is ErrorKind.GROUP_ID_NOT_FOUND
    assert isinstance(world.group(), ClassicGroup)


def test_connect_groups_are_not_upgraded(make_world: Any) -> None:
    world = make_world()
    use_topics(world)
    world.stable("a", protocol_type="connect", protocols=protocols())
    assert consumer(world, "c", 0).error is ErrorKind.GROUP_ID_NOT_FOUND


def test_the_policy_can_forbid_it(make_world: Any) -> None:
    world = make_world(consumer_migration=Migration.DISABLED)
    use_topics(world)
    world.stable("a", protocols=protocols())
    assert consumer(world, "c", 0).error is ErrorKind.GROUP_ID_NOT_FOUND


def test_an_assignment_that_was_handed_out_twice_has_one_owner_afterwards(make_world: Any) -> None:
    world = make_world()
    use_topics(world, 2)
    same = encode_assignment(1, (("t", (0, 1)), ("gone", (0,)), ("t", (99,))))
    world.stable("a", "b", protocols=protocols(), assignments={"m1": same, "m2": same})
    consumer(world, "c", 0)
    held = [m.assigned for m in world.group().members.values()]
    assert sorted(map(len, held)) == [0, 0, 2]


def test_the_last_new_consumer_downgrades_the_group(classic: Any) -> None:
    consumer(classic, "c", 0)
    consumer(classic, "c", -1)
    group = classic.group()
    assert isinstance(group, ClassicGroup)
    assert (group.state.value, group.generation) == ("PreparingRebalance", 2)
    first = classic.join("m1", protocols=protocols(0, 1))
    classic.join("m2", protocols=protocols(2, 3))
    assert classic.answers[first].generation == 3, "R54: it goes on counting"
    classic.restart()
    assert isinstance(classic.group(), ClassicGroup)


def test_who_is_up_to_date_is_told_to_rejoin(classic: Any) -> None:
    consumer(classic, "c", 0)
    classic.join("m1", protocols=protocols())
    consumer(classic, "c", -1)
    assert classic.beat("m1", 2) is ErrorKind.REBALANCE_IN_PROGRESS, (
        "not ILLEGAL_GENERATION: it may keep its partitions"
    )


def test_a_silent_last_consumer_downgrades_it_too(make_world: Any) -> None:
    world = make_world()
    use_topics(world)
    world.stable("a", protocols=protocols(), session_timeout_ms=60_000)
    consumer(world, "c", 0)
    world.join("m1", protocols=protocols(), session_timeout_ms=60_000, rebalance_timeout_ms=600_000)
    world.advance(45_000)
    assert isinstance(world.group(), ClassicGroup)
    assert world.group().members["m1"].session_timeout_ms == 60_000


def test_downgrade_can_be_forbidden(make_world: Any) -> None:
    world = make_world(consumer_migration=Migration.UPGRADE)
    use_topics(world)
    world.stable("a", protocols=protocols())
    consumer(world, "c", 0)
    consumer(world, "c", -1)
    assert isinstance(world.group(), ConsumerGroup)
    assert world.beat("m1", 1) is ErrorKind.REBALANCE_IN_PROGRESS


def test_a_static_member_switches_protocols_both_ways(make_world: Any) -> None:
    world = make_world()
    use_topics(world)
    world.join(instance_id="i", protocols=protocols())
    world.sync("m1", 1, assignments=(("m1", encode_assignment(1, (("t", (0, 1, 2, 3)),))),))
    up = consumer(world, "c", 0, instance_id="i")
    assert (up.error, up.assignment) == (ErrorKind.NONE, ((T, (0, 1, 2, 3)),))
    assert list(world.group().members) == ["c"]
    assert world.beat("m1", 1, "i") is ErrorKind.FENCED_INSTANCE_ID
    down = world.answers[world.join(instance_id="i", protocols=protocols())]
    assert (down.error, isinstance(world.group(), ClassicGroup)) == (ErrorKind.NONE, True)
    assert (down.leader, down.member_id) == (down.member_id, "m2")
    assert down.generation > up.member_epoch


def test_classic_requests_in_a_consumer_group_are_checked(classic: Any) -> None:
    consumer(classic, "c", 0)
    assert classic.beat("m1", 9) is ErrorKind.ILLEGAL_GENERATION
    assert classic.beat("x", 1) is ErrorKind.UNKNOWN_MEMBER_ID
    assert classic.beat("c", 2) is ErrorKind.UNKNOWN_MEMBER_ID, "it does not speak this protocol"
    assert classic.answers[classic.sync("m1", 9)].error is ErrorKind.ILLEGAL_GENERATION
    assert classic.answers[classic.sync("m1", 1)].error is ErrorKind.REBALANCE_IN_PROGRESS
    wrong = classic.sync("m1", 1, protocol_type="connect")
    assert classic.answers[wrong].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    alien = classic.join(protocols=(Protocol("range", protocols()[0].metadata),))
    assert classic.answers[alien].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    garbage = classic.join(protocols=(Protocol("cooperative-sticky", b"\x00"),))
    assert classic.answers[garbage].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    commit = classic.commit(OffsetToCommit("t", 0, 1), member_id="m1", generation=9)
    assert commit.error is ErrorKind.ILLEGAL_GENERATION
    commit = classic.commit(OffsetToCommit("t", 0, 1), member_id="m1", generation=1, member_epoch_known=False)
    assert commit.error is ErrorKind.NONE


def test_a_new_classic_member_joins_a_consumer_group(classic: Any) -> None:
    consumer(classic, "c", 0)
    first = classic.answers[classic.join(protocols=protocols(), member_id_required=True)]
    assert first.error is ErrorKind.MEMBER_ID_REQUIRED
    second = classic.answers[classic.join(first.member_id, protocols=protocols(), member_id_required=True)]
    assert (second.error, second.generation, second.leader, second.protocol_name) == (
        ErrorKind.NONE, 3, "", "cooperative-sticky",
    )  # fmt: skip
    assert assigned(classic, first.member_id, 3) == []


def test_a_classic_member_that_is_told_to_rejoin_and_does_not_is_out(classic: Any) -> None:
    consumer(classic, "c", 0)
    for _ in range(16):
        classic.advance(4_000)
        consumer(classic, "c", 2)
        classic.beat("m1", 1)
        classic.beat("m2", 1)
    assert list(classic.group().members) == ["c"]


def test_classic_members_leave_a_consumer_group(classic: Any) -> None:
    consumer(classic, "c", 0, instance_id="s")
    left = classic.leave("m1", "m1", "x", "c", MemberIdentity("", "s"))
    errors = [m.error for m in left.members]
    assert errors == [
        ErrorKind.NONE,
        ErrorKind.UNKNOWN_MEMBER_ID,
        ErrorKind.UNKNOWN_MEMBER_ID,
        ErrorKind.UNKNOWN_MEMBER_ID,
        ErrorKind.NONE,
    ]
    assert isinstance(classic.group(), ClassicGroup) and list(classic.group().members) == ["m2"]


def test_a_full_consumer_group(make_world: Any) -> None:
    world = make_world(consumer_max_size=2)
    use_topics(world)
    consumer(world, "c", 0)
    consumer(world, "d", 0)
    assert world.answers[world.join(protocols=protocols())].error is ErrorKind.GROUP_MAX_SIZE_REACHED


def test_empty_groups_change_hands_without_ceremony(make_world: Any) -> None:
    world = make_world()
    use_topics(world)
    world.leave(*world.stable("a", protocol_type="connect"))
    up = consumer(world, "c", 0)
    assert (up.error, up.member_epoch) == (ErrorKind.NONE, 3), "R54: one count for both"
    consumer(world, "c", -1)
    down = world.answers[world.join(protocol_type="connect")]
    assert (down.error, down.generation) == (ErrorKind.NONE, 5)
    world.restart()
    assert isinstance(world.group(), ClassicGroup)


def test_a_refused_join_leaves_an_empty_consumer_group_alone(make_world: Any) -> None:
    world = make_world()
    use_topics(world)
    consumer(world, "c", 0)
    consumer(world, "c", -1)
    assert world.answers[world.join(protocols=())].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL
    assert isinstance(world.group(), ConsumerGroup)


def test_an_upgraded_group_survives_a_restart(classic: Any) -> None:
    consumer(classic, "c", 0)
    classic.join("m1", protocols=protocols(0, 1))
    before = classic.group()
    classic.restart()
    assert (
        classic.answers[classic.join("m1", protocols=protocols(0))].error
        is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS
    )
    assert classic.answers[classic.sync("m1", 1)].error is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS
    after = classic.group()
    assert (after.members, after.targets, after.epoch) == (before.members, before.targets, before.epoch)
    use_topics(classic)
    (described,) = classic.ask(lambda w: ConsumerGroupDescribe(("g",), waiter=w))
    assert [m.is_classic for m in described.members] == [True, True, False]
