"""ConsumerGroupHeartbeat: validation, epochs, reconciliation, static members, timeouts (KIP-848, kafka.md 6.2)."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.groups.commands import (
    DeleteGroups,
    DescribeGroups,
    FetchOffsets,
    OffsetToCommit,
    TxnCommitOffsets,
)
from headrace.groups.consumer.commands import ConsumerGroupDescribe, ConsumerGroupHeartbeat, TopicsChanged
from headrace.groups.topics import TopicInfo

T, U = b"t" * 16, b"u" * 16


class Consumers:
    """Clients of the new protocol, which do what they are told and remember it."""

    def __init__(self, world: Any, **topics: int) -> None:
        self.world = world
        self.epochs: dict[str, int] = {}
        self.owned: dict[str, Any] = {}
        self.set_topics(**(topics or {"t": 4}))

    def set_topics(self, **counts: int) -> None:
        ids = {name: TopicInfo((name[0] * 16).encode(), count) for name, count in counts.items()}
        self.world.ask(lambda w: TopicsChanged(ids, waiter=w))

    def send(self, member_id: str, epoch: int, **fields: Any) -> Any:
        base = {"group_id": "g", "client_id": "client", "client_host": "/127.0.0.1"}
        answer = self.world.ask(
            lambda w: ConsumerGroupHeartbeat(
                member_id=member_id, member_epoch=epoch, **{**base, **fields}, waiter=w
            )
        )
        if answer.error is ErrorKind.NONE:
            self.epochs[answer.member_id] = answer.member_epoch
            if answer.assignment is not None:
                self.owned[answer.member_id] = answer.assignment
        return answer

    def join(self, member_id: str, topics: tuple[str, ...] | None = ("t",), **fields: Any) -> Any:
        base = {"rebalance_timeout_ms": 60_000, "owned": (), "topics": topics}
        return self.send(member_id, 0, **{**base, **fields})

    def beat(self, member_id: str, **fields: Any) -> Any:
        return self.send(member_id, self.epochs[member_id], **fields)

    def obey(self, member_id: str) -> Any:
        """Report what it was told to own."""
        return self.beat(member_id, owned=self.owned[member_id])

    def settle(self, *member_ids: str) -> None:
        for _ in range(4):
            for member_id in member_ids:
                self.obey(member_id)

    def partitions(self, member_id: str, topic_id: bytes = T) -> list[int]:
        return list(dict(self.owned[member_id]).get(topic_id, ()))


@pytest.fixture
def consumers(world: Any) -> Consumers:
    return Consumers(world)


def test_the_first_member_gets_everything_at_once(consumers: Consumers) -> None:
    answer = consumers.join("a")
    assert (answer.error, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (
        ErrorKind.NONE, "a", 1, 5_000,
    )  # fmt: skip
    assert answer.assignment == ((T, (0, 1, 2, 3)),)


def test_a_version_0_client_is_given_an_id(consumers: Consumers) -> None:
    answer = consumers.join("", new_member_id="drawn")
    assert answer.member_id == "drawn"


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields"),
    [
        ("a", 0, {"group_id": ""}),
        ("a", 0, {"instance_id": ""}),
        ("a", 0, {"rack_id": ""}),
        ("a", 0, {"rebalance_timeout_ms": -1}),
        ("a", 0, {"owned": None}),
        ("a", 0, {"owned": ((T, (0,)),)}),  # trap 22: who joins owns nothing
        ("a", 0, {"topics": None}),
        ("a", 0, {"topics": ()}),
        ("", 0, {"member_id_required": True}),
        ("", 1, {}),
        ("", -1, {}),
        ("a", -2, {}),
        ("a", -3, {}),
        ("a", 0, {"client_id": "x" * 40_000}),
    ],
)
def test_malformed_requests(consumers: Consumers, member_id: str, epoch: int, fields: Any) -> None:
    base = {"rebalance_timeout_ms": 60_000, "owned": (), "topics": ("t",)} if epoch == 0 else {}
    answer = consumers.send(member_id, epoch, **{**base, **fields})
    assert answer.error is ErrorKind.INVALID_REQUEST and answer.message
    assert not consumers.world.shard.table.groups


def test_unknown_assignors_and_patterns(consumers: Consumers) -> None:
    assert consumers.join("a", assignor="magic").error is ErrorKind.UNSUPPORTED_ASSIGNOR
    assert consumers.join("a", None, pattern="(").error is ErrorKind.INVALID_REGULAR_EXPRESSION
    assert not consumers.world.shard.table.groups


def test_an_unknown_group_or_member(consumers: Consumers) -> None:
    assert consumers.send("a", 1).error is ErrorKind.GROUP_ID_NOT_FOUND
    assert consumers.send("a", -1).error is ErrorKind.GROUP_ID_NOT_FOUND
    consumers.join("a")
    assert consumers.send("b", 1).error is ErrorKind.UNKNOWN_MEMBER_ID
    assert consumers.send("b", -1).error is ErrorKind.UNKNOWN_MEMBER_ID


def test_no_assignment_is_made_before_the_topics_are_known(world: Any) -> None:
    answer = world.ask(
        lambda w: ConsumerGroupHeartbeat(
            "g", "a", 0, rebalance_timeout_ms=1, owned=(), topics=("t",), waiter=w
        )
    )
    assert answer.error is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS


def test_an_empty_view_of_the_cluster_is_no_view(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.obey("a")
    consumers.world.ask(lambda w: TopicsChanged({}, waiter=w))
    assert consumers.beat("a").assignment is None
    consumers.world.restart()
    consumers.world.ask(lambda w: TopicsChanged({}, waiter=w))
    assert consumers.join("b").error is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS


def test_a_full_group(make_world: Any) -> None:
    consumers = Consumers(make_world(consumer_max_size=1))
    consumers.join("a")
    assert consumers.join("b").error is ErrorKind.GROUP_MAX_SIZE_REACHED
    assert consumers.join("a").error is ErrorKind.NONE


def test_keep_alive_says_nothing_new(consumers: Consumers) -> None:
    consumers.join("a")
    assert consumers.obey("a").assignment is None, "it has heard"
    answer = consumers.beat("a")
    assert (answer.error, answer.member_epoch, answer.assignment) == (ErrorKind.NONE, 1, None)
    full = consumers.beat("a", rebalance_timeout_ms=60_000, topics=("t",), owned=((T, (0, 1, 2, 3)),))
    assert full.assignment == ((T, (0, 1, 2, 3)),), "a full request gets a full answer"


def test_trap_22_an_empty_assignment_is_not_null(consumers: Consumers) -> None:
    assert consumers.join("a", ("absent",)).assignment == ()


def test_r55_the_new_member_waits_until_the_old_one_lets_go(consumers: Consumers) -> None:
    consumers.join("a")
    assert consumers.join("b").assignment == ()
    told = consumers.beat("a")
    assert (told.member_epoch, told.assignment) == (1, ((T, (0, 1)),)), (
        "asked to give two up; its epoch stays"
    )
    assert consumers.beat("b").assignment is None
    assert consumers.beat("a").member_epoch == 1, "trap 22: a keep-alive confirms nothing"
    assert consumers.beat("b").assignment is None
    confirmed = consumers.obey("a")
    assert (confirmed.member_epoch, confirmed.assignment) == (2, None)
    assert consumers.beat("b").assignment == ((T, (2, 3)),)


def test_who_has_not_heard_is_told_again(consumers: Consumers) -> None:
    """librdkafka drops an answer that takes longer than a heartbeat interval, and goes on as if it had said nothing."""
    consumers.join("a")
    assert consumers.beat("a").assignment == ((T, (0, 1, 2, 3)),), "given to it, and nobody else will read it"
    consumers.obey("a")
    consumers.join("b")
    for _ in range(2):
        assert consumers.beat("a").assignment == ((T, (0, 1)),), "asked for it until it lets go"
    consumers.obey("a")
    assert consumers.beat("a").assignment is None
    for _ in range(2):
        assert consumers.beat("b").assignment == ((T, (2, 3)),)
    consumers.obey("b")
    assert consumers.beat("b").assignment is None
    consumers.world.restart()
    consumers.set_topics(t=4)
    assert consumers.beat("b").assignment == ((T, (2, 3)),), "a new coordinator does not know who has heard"


def test_r55_a_partial_report_is_not_enough(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.join("b")
    consumers.beat("a")
    consumers.beat("a", owned=((T, (0, 1, 2)),))
    assert consumers.beat("b").assignment is None
    consumers.beat("a", owned=((T, (0, 1)),))
    assert consumers.beat("b").assignment == ((T, (2, 3)),)


def test_who_does_not_let_go_in_time_is_out(consumers: Consumers) -> None:
    consumers.join("a", rebalance_timeout_ms=20_000)
    consumers.join("b")
    consumers.beat("a")
    for _ in range(3):
        consumers.world.advance(5_000)
        consumers.beat("a")
        consumers.beat("b")
    consumers.world.advance(5_000)
    assert consumers.beat("a").error is ErrorKind.UNKNOWN_MEMBER_ID
    assert consumers.beat("b").assignment == ((T, (0, 1, 2, 3)),)


def test_a_silent_member_is_out_after_the_session(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.join("b")
    consumers.settle("a", "b")
    consumers.world.advance(44_999)
    consumers.beat("b")
    consumers.world.advance(1)
    assert consumers.beat("b").assignment == ((T, (0, 1, 2, 3)),)
    assert consumers.beat("a").error is ErrorKind.UNKNOWN_MEMBER_ID


def test_r54_member_epochs_are_checked(consumers: Consumers) -> None:
    consumers.join("a")
    assert consumers.send("a", 2).error is ErrorKind.FENCED_MEMBER_EPOCH
    consumers.join("b")
    consumers.settle("a", "b")
    assert consumers.epochs["a"] == 2
    lost = consumers.send("a", 1, owned=((T, (0, 1)),))
    assert (lost.error, lost.member_epoch) == (ErrorKind.NONE, 2), (
        "the answer with epoch 2 may have been lost"
    )
    assert consumers.send("a", 1).error is ErrorKind.FENCED_MEMBER_EPOCH, "it has to say what it owns"
    assert consumers.send("a", 1, owned=((T, (0, 1, 2)),)).error is ErrorKind.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_starts_from_what_it_is_told(consumers: Consumers) -> None:
    consumers.join("a")
    again = consumers.join("a")
    assert (again.error, again.assignment) == (ErrorKind.NONE, ((T, (0, 1, 2, 3)),))


def test_leaving_frees_everything(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.join("b")
    consumers.settle("a", "b")
    left = consumers.send("a", -1)
    assert (left.error, left.member_id, left.member_epoch) == (ErrorKind.NONE, "a", -1)
    assert consumers.beat("b").assignment == ((T, (0, 1, 2, 3)),)


def test_a_changed_subscription_is_a_new_epoch(consumers: Consumers) -> None:
    consumers.set_topics(t=2, u=2)
    consumers.join("a")
    answer = consumers.beat("a", topics=("t", "u"))
    assert (answer.member_epoch, answer.assignment) == (2, ((T, (0, 1)), (U, (0, 1))))
    same = consumers.beat("a", topics=("u", "t"))
    assert same.member_epoch == 2, "the order of topics means nothing"


def test_topics_that_grow_come_and_go(consumers: Consumers) -> None:
    consumers.join("a", ("t", "u"))
    consumers.set_topics(t=5)
    assert consumers.beat("a").assignment == ((T, (0, 1, 2, 3, 4)),)
    consumers.set_topics(t=5, u=1)
    assert consumers.beat("a").assignment == ((T, (0, 1, 2, 3, 4)), (U, (0,)))
    consumers.set_topics(u=1, v=7)
    assert consumers.beat("a").assignment == ((U, (0,)),)
    epoch = consumers.world.group().epoch
    consumers.set_topics(u=1, v=8)
    assert consumers.world.group().epoch == epoch, "v is nobody's business here"


def test_patterns_follow_the_topics(consumers: Consumers) -> None:
    consumers.join("a", None, pattern="t.*")
    consumers.set_topics(t=1, u=1)
    consumers.set_topics(t=1, u=1, tea=1)
    assert consumers.beat("a").assignment == ((T, (0,)),)
    consumers.beat("a", pattern="")
    dropped = consumers.obey("a")
    assert dropped.member_epoch > 1 and consumers.owned["a"] == ()


def test_internal_topics_match_no_pattern(consumers: Consumers) -> None:
    consumers.set_topics(t=1, __consumer_offsets=50)
    assert consumers.join("a", None, pattern=".*").assignment == ((T, (0,)),)


def test_the_group_uses_what_most_members_ask_for(consumers: Consumers) -> None:
    consumers.set_topics(t=2, u=2)
    for member in ("a", "b"):
        consumers.join(member, ("t", "u"), assignor="range")
    consumers.settle("a", "b")
    assert (consumers.partitions("a", T), consumers.partitions("a", U)) == ([0], [0])
    (described,) = consumers.world.ask(lambda w: ConsumerGroupDescribe(("g",), waiter=w))
    assert described.assignor == "range"


# --- static members ------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_partitions(consumers: Consumers) -> None:
    consumers.join("a", instance_id="i")
    consumers.join("b")
    consumers.settle("a", "b")
    mine = consumers.owned["a"]
    assert consumers.join("a2", instance_id="i").error is ErrorKind.UNRELEASED_INSTANCE_ID
    left = consumers.send("a", -2, instance_id="i")
    assert (left.error, left.member_epoch) == (ErrorKind.NONE, -2)
    epoch = consumers.world.group().epoch
    consumers.world.advance(40_000)
    consumers.beat("b")
    back = consumers.join("a2", instance_id="i")
    assert (back.assignment, consumers.world.group().epoch) == (mine, epoch), "no rebalance"
    assert consumers.send("a", 2, instance_id="i").error is ErrorKind.FENCED_INSTANCE_ID
    assert consumers.send("a", -2, instance_id="i").error is ErrorKind.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_loses_its_place(consumers: Consumers) -> None:
    consumers.join("a", instance_id="i")
    consumers.join("b")
    consumers.settle("a", "b")
    consumers.send("a", -2, instance_id="i")
    for _ in range(9):
        consumers.world.advance(5_000)
        consumers.beat("b")
    assert consumers.partitions("b") == [0, 1, 2, 3]


def test_a_static_member_that_comes_back_under_its_own_name(consumers: Consumers) -> None:
    consumers.join("a", instance_id="i")
    consumers.send("a", -2, instance_id="i")
    assert consumers.join("a", instance_id="i").assignment == ((T, (0, 1, 2, 3)),)


def test_an_unknown_instance(consumers: Consumers) -> None:
    consumers.join("a")
    assert consumers.send("a", -2, instance_id="i").error is ErrorKind.UNKNOWN_MEMBER_ID


# --- offsets -------------------------------------------------------------------------------------------------

OFFSET = OffsetToCommit("t", 0, 5)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "a", "generation": 1}, ErrorKind.NONE),
        ({"member_id": "a", "generation": 0}, ErrorKind.STALE_MEMBER_EPOCH),
        ({"member_id": "a", "generation": 9}, ErrorKind.STALE_MEMBER_EPOCH),
        ({"member_id": "x", "generation": 1}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "a", "generation": 1, "member_epoch_known": False}, ErrorKind.UNSUPPORTED_VERSION),
    ],
)
def test_r54_commits_carry_the_member_epoch(consumers: Consumers, fields: Any, error: ErrorKind) -> None:
    consumers.join("a")
    assert consumers.world.commit(OFFSET, **fields).error is error


def test_fetches_carry_it_too(consumers: Consumers) -> None:
    consumers.join("a")

    def fetch(member_id: str | None, epoch: int) -> ErrorKind:
        return consumers.world.ask(
            lambda w: FetchOffsets("g", None, member_id=member_id, member_epoch=epoch, waiter=w)
        ).error

    assert fetch("a", 1) is ErrorKind.NONE
    assert fetch("a", 2) is ErrorKind.STALE_MEMBER_EPOCH
    assert fetch("x", 1) is ErrorKind.UNKNOWN_MEMBER_ID
    assert fetch(None, -1) is ErrorKind.NONE


def test_transactions_of_consumer_groups(consumers: Consumers) -> None:
    consumers.join("a")

    def commit(**fields: Any) -> ErrorKind:
        return consumers.world.ask(lambda w: TxnCommitOffsets("g", 5, 0, (OFFSET,), **fields, waiter=w)).error

    assert commit(member_id="a", generation=1) is ErrorKind.NONE
    assert commit() is ErrorKind.NONE
    assert commit(member_id="a", generation=7) is ErrorKind.ILLEGAL_GENERATION
    assert commit(member_id="x", generation=1) is ErrorKind.UNKNOWN_MEMBER_ID


# --- describe, delete, reload --------------------------------------------------------------------------------


def test_describe(consumers: Consumers) -> None:
    consumers.join("a", instance_id="i", rack_id="r")
    consumers.join("b", None, pattern="t")
    (group,) = consumers.world.ask(lambda w: ConsumerGroupDescribe(("g",), waiter=w))
    assert (group.error, group.state, group.group_epoch, group.target_epoch, group.assignor) == (
        ErrorKind.NONE, "Reconciling", 2, 2, "uniform",
    )  # fmt: skip
    a, b = group.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.is_classic) == ("a", "i", "r", 1, False)
    assert a.assignment == ((T, "t", (0, 1, 2, 3)),) and a.target == ((T, "t", (0, 1)),)
    assert (b.pattern, b.topics, b.assignment, b.target) == ("t", (), (), ((T, "t", (2, 3)),))
    consumers.settle("a", "b")
    (group,) = consumers.world.ask(lambda w: ConsumerGroupDescribe(("g",), waiter=w))
    assert group.state == "Stable"
    consumers.set_topics(t=5)
    (group,) = consumers.world.ask(lambda w: ConsumerGroupDescribe(("g",), waiter=w))
    assert group.state == "Assigning"


def test_each_describe_knows_its_own_kind(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.world.stable("x", group_id="classic")
    found = consumers.world.ask(lambda w: ConsumerGroupDescribe(("classic", "nowhere", ""), waiter=w))
    assert [g.error for g in found] == [
        ErrorKind.GROUP_ID_NOT_FOUND, ErrorKind.GROUP_ID_NOT_FOUND, ErrorKind.INVALID_GROUP_ID,
    ]  # fmt: skip
    (old,) = consumers.world.ask(lambda w: DescribeGroups(("g",), missing_is_error=False, waiter=w))
    assert old.state == "Dead"


def test_only_empty_groups_are_deleted(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.world.commit(OFFSET, member_id="a", generation=1)
    (refused,) = consumers.world.ask(lambda w: DeleteGroups(("g",), waiter=w))
    assert refused.error is ErrorKind.NON_EMPTY_GROUP
    consumers.send("a", -1)
    consumers.world.ask(lambda w: DeleteGroups(("g",), waiter=w))
    consumers.world.restart()
    assert not consumers.world.shard.table.groups and not consumers.world.shard.table.offsets.committed


def test_an_empty_group_is_forgotten_with_its_offsets(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.world.commit(OFFSET, member_id="a", generation=1)
    for _ in range(2):
        consumers.world.advance(40_000)
        consumers.beat("a")
    consumers.send("a", -1)
    consumers.world.restart()
    consumers.world.advance(7 * 86_400_000 - 1)
    assert consumers.world.committed().offset == 5
    consumers.world.advance(600_001)
    assert "g" not in consumers.world.shard.table.groups
    assert consumers.world.committed().offset == -1


@pytest.mark.parametrize("steps", range(5))
def test_a_new_coordinator_goes_on_where_the_old_one_was(consumers: Consumers, steps: int) -> None:
    consumers.join("a")
    consumers.join("b", instance_id="i")
    script = [
        lambda: consumers.beat("a"),
        lambda: consumers.obey("a"),
        lambda: consumers.beat("b"),
        lambda: None,
    ]
    for step in script[:steps]:
        step()
    before = consumers.world.group()
    consumers.world.restart()
    after = consumers.world.group()
    for name in ("epoch", "target_epoch", "fingerprint", "members", "statics", "targets", "owners"):
        assert getattr(after, name) == getattr(before, name), name
    epoch = after.epoch
    consumers.set_topics(t=4)
    assert consumers.world.group().epoch == epoch, "nothing changed meanwhile, so nothing is assigned anew"
    consumers.settle("a", "b")
    assert (consumers.partitions("a"), consumers.partitions("b")) == ([0, 1], [2, 3])


def test_a_new_coordinator_notices_what_it_missed(consumers: Consumers) -> None:
    consumers.join("a")
    consumers.world.restart()
    consumers.set_topics(t=6)
    assert consumers.beat("a").assignment == ((T, (0, 1, 2, 3, 4, 5)),)
