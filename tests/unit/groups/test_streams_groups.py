"""Streams groups (KIP-1071, F37): joins with topologies, epochs, tasks that move, offsets, describe, reload."""

from __future__ import annotations

from typing import Any

import pytest
from streams_apps import AT_ONCE, COUNT, INTERNAL, JOIN, beat, join, use_topics

from headrace.core.errors import ErrorKind
from headrace.groups.commands import (
    CommitOffsets,
    DeleteGroups,
    DeleteOffsets,
    DescribeGroups,
    FetchOffsets,
    ListGroups,
    OffsetToCommit,
    TxnCommitOffsets,
)
from headrace.groups.config import StreamsSettings
from headrace.groups.consumer.commands import ConsumerGroupHeartbeat
from headrace.groups.share.commands import ShareGroupHeartbeat
from headrace.groups.streams.commands import StreamsGroupDescribe, TasksByRole
from headrace.groups.streams.members import Role, Task
from headrace.groups.streams.topology import Status, Subtopology, Topology

ALL = TasksByRole((("0", (0, 1, 2, 3)), ("1", (0, 1, 2, 3))))


@pytest.fixture
def apps(world: Any) -> Any:
    use_topics(world, words=4, **INTERNAL)
    return world


def statuses(answer: Any) -> list[Status]:
    return [notice.status for notice in answer.notices]


def test_a_member_joins_works_and_leaves(apps: Any) -> None:
    first = join(apps, "a")
    assert (first.error, first.member_id, first.heartbeat_interval_ms) == (ErrorKind.NONE, "a", 5_000)
    assert first.tasks == ALL and not first.notices and not first.missing
    again = beat(apps, "a", first.member_epoch, owned=ALL)
    assert (again.member_epoch, again.tasks) == (first.member_epoch, None)
    left = beat(apps, "a", -1)
    assert (left.error, left.member_epoch) == (ErrorKind.NONE, -1)
    assert apps.group("app").state_name == "Empty"
    assert beat(apps, "a", first.member_epoch).error is ErrorKind.UNKNOWN_MEMBER_ID


def test_active_tasks_move_only_when_they_were_let_go(apps: Any) -> None:
    """R55."""
    first = join(apps, "a")
    second = join(apps, "b")
    assert second.tasks == TasksByRole() and second.member_epoch > first.member_epoch
    asked = beat(apps, "a", first.member_epoch, owned=first.tasks)
    assert asked.member_epoch == first.member_epoch, "it has not let go yet"
    assert sum(len(numbers) for _, numbers in asked.tasks.active) == 4
    assert beat(apps, "b", second.member_epoch).tasks is None
    freed = beat(apps, "a", first.member_epoch, owned=asked.tasks)
    assert freed.member_epoch == second.member_epoch
    given = beat(apps, "b", second.member_epoch)
    assert sum(len(numbers) for _, numbers in given.tasks.active) == 4
    assert apps.group("app").state_name == "Stable"


def test_internal_topics_are_asked_for_and_then_the_tasks_come(world: Any) -> None:
    use_topics(world, words=4)
    first = join(world, "a")
    assert statuses(first) == [Status.MISSING_INTERNAL_TOPICS]
    assert [(topic.name, topic.partitions) for topic in first.missing] == list(INTERNAL.items())
    assert first.tasks == TasksByRole() and world.group("app").state_name == "NotReady"
    use_topics(world, words=4, **INTERNAL)
    then = beat(world, "a", first.member_epoch)
    assert then.tasks == ALL and not then.notices and then.member_epoch > first.member_epoch


def test_tasks_are_taken_back_when_a_source_goes_away(apps: Any) -> None:
    first = join(apps, "a")
    use_topics(apps, **INTERNAL)
    asked = beat(apps, "a", first.member_epoch, owned=first.tasks)
    assert statuses(asked) == [Status.MISSING_SOURCE_TOPICS] and asked.tasks == TasksByRole()
    assert not asked.missing


def test_a_source_that_grows_leaves_the_internal_topics_too_narrow(apps: Any) -> None:
    first = join(apps, "a")
    use_topics(apps, words=6, **INTERNAL)
    told = beat(apps, "a", first.member_epoch, owned=first.tasks)
    assert statuses(told) == [Status.INCORRECTLY_PARTITIONED_TOPICS]


def test_the_first_assignment_waits_for_more_members(apps: Any) -> None:
    patient = StreamsSettings(assignment_interval_ms=0)
    first = join(apps, "a", settings=patient)
    assert statuses(first) == [Status.ASSIGNMENT_DELAYED] and first.tasks == TasksByRole()
    assert first.member_epoch > 0, "0 would tell it that it never joined"
    second = join(apps, "b", settings=patient)
    apps.advance(3_000)
    found = [beat(apps, "a", first.member_epoch, settings=patient)]
    found.append(beat(apps, "b", second.member_epoch, settings=patient))
    assert [sum(len(numbers) for _, numbers in answer.tasks.active) for answer in found] == [4, 4]
    assert not any(answer.notices for answer in found)


def test_assignments_do_not_follow_each_other_too_soon(apps: Any) -> None:
    slow = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=1_000)
    first = join(apps, "a", settings=slow)
    assert first.tasks == ALL
    second = join(apps, "b", settings=slow)
    assert statuses(second) == [Status.ASSIGNMENT_DELAYED]
    apps.advance(1_000)
    asked = beat(apps, "a", first.member_epoch, settings=slow, owned=first.tasks)
    assert sum(len(numbers) for _, numbers in asked.tasks.active) == 4 and not asked.notices


def test_standbys(apps: Any) -> None:
    """A config that changes is followed without anybody joining."""
    spare = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0, standby_replicas=1)
    first = join(apps, "a")
    second = join(apps, "b")
    asked = beat(apps, "a", first.member_epoch, owned=first.tasks)
    freed = beat(apps, "a", first.member_epoch, owned=asked.tasks)
    beat(apps, "b", second.member_epoch)
    told = beat(apps, "a", freed.member_epoch, settings=spare)
    other = beat(apps, "b", second.member_epoch, settings=spare)
    for answer in (told, other):
        mine = dict(answer.tasks.active).get("1", ())
        assert sorted(mine + dict(answer.tasks.standby).get("1", ())) == [0, 1, 2, 3]
        assert not {"0"} & dict(answer.tasks.standby).keys(), "nothing to stand by for without state"


def test_a_standby_becomes_active_when_its_task_is_let_go(apps: Any) -> None:
    """And gives the standby up first: one process has a task once."""
    spare = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0, standby_replicas=1)
    held: dict[str, Any] = {}
    epochs: dict[str, int] = {}

    def go(member_id: str) -> None:
        answer = (
            beat(apps, member_id, epochs[member_id], settings=spare, owned=held[member_id])
            if member_id in epochs
            else join(apps, member_id, settings=spare)
        )
        assert answer.error is ErrorKind.NONE, answer
        epochs[member_id] = answer.member_epoch
        held[member_id] = answer.tasks if answer.tasks is not None else held[member_id]

    for _ in range(4):
        go("a"), go("b")
    assert apps.group("app").state_name == "Stable"
    beat(apps, "a", -1)
    del epochs["a"]
    for _ in range(4):
        go("b")
    assert held["b"].active == ALL.active and held["b"].standby == ()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"group_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorKind.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorKind.INVALID_REQUEST),
        ({"owned": ALL}, ErrorKind.INVALID_REQUEST),
        ({"owned": None}, ErrorKind.INVALID_REQUEST),
        ({"topology": None}, ErrorKind.INVALID_REQUEST),
        ({"client_id": "x" * 40_000}, ErrorKind.INVALID_REQUEST),
        ({"unsupported": "Static membership is not supported."}, ErrorKind.INVALID_REQUEST),
        ({"topology": Topology(0, (Subtopology("0"),))}, ErrorKind.STREAMS_INVALID_TOPOLOGY),
    ],
)
def test_malformed_joins(apps: Any, fields: dict[str, Any], error: ErrorKind) -> None:
    member_id = fields.pop("member_id", "a")
    answer = join(apps, member_id, **fields)
    assert answer.error is error and answer.message


def test_malformed_heartbeats(apps: Any) -> None:
    first = join(apps, "a")
    assert beat(apps, "a", -2).error is ErrorKind.INVALID_REQUEST
    assert beat(apps, "a", first.member_epoch, topology=COUNT).error is ErrorKind.INVALID_REQUEST
    strange = TasksByRole((("9", (0,)),))
    assert beat(apps, "a", first.member_epoch, owned=strange).error is ErrorKind.INVALID_REQUEST
    strange = TasksByRole((("0", (4,)),))
    assert beat(apps, "a", first.member_epoch, owned=strange).error is ErrorKind.INVALID_REQUEST


def test_epochs_fence(apps: Any) -> None:
    """R54."""
    first = join(apps, "a")
    epoch = first.member_epoch
    assert beat(apps, "a", epoch + 1).error is ErrorKind.FENCED_MEMBER_EPOCH
    assert beat(apps, "b", epoch).error is ErrorKind.UNKNOWN_MEMBER_ID
    use_topics(apps, words=4, other=1, **INTERNAL)
    join(apps, "b", process_id="process-of-a")
    asked = beat(apps, "a", epoch, owned=first.tasks)
    freed = beat(apps, "a", epoch, owned=asked.tasks)
    assert freed.member_epoch > epoch
    lost = beat(apps, "a", epoch, owned=asked.tasks)
    assert (lost.error, lost.member_epoch) == (ErrorKind.NONE, freed.member_epoch), "the answer was lost"
    assert beat(apps, "a", epoch, owned=first.tasks).error is ErrorKind.FENCED_MEMBER_EPOCH
    assert beat(apps, "a", epoch).error is ErrorKind.FENCED_MEMBER_EPOCH


def test_a_silent_member_loses_its_tasks(apps: Any) -> None:
    join(apps, "a")
    second = join(apps, "b")
    apps.advance(40_000)
    beat(apps, "b", second.member_epoch)
    apps.advance(6_000)
    assert list(apps.group("app").members) == ["b"]
    assert beat(apps, "b", second.member_epoch).tasks == ALL


def test_a_member_that_does_not_let_go_in_time_is_out(apps: Any) -> None:
    first = join(apps, "a", rebalance_timeout_ms=10_000)
    join(apps, "b")
    beat(apps, "a", first.member_epoch, owned=first.tasks)
    apps.advance(9_999)
    beat(apps, "a", first.member_epoch)
    apps.advance(1)
    assert list(apps.group("app").members) == ["b"]


def test_everybody_is_told_to_shut_down(apps: Any) -> None:
    first = join(apps, "a")
    second = join(apps, "b")
    assert statuses(beat(apps, "a", first.member_epoch, shutdown=True)) == [Status.SHUTDOWN_APPLICATION]
    assert Status.SHUTDOWN_APPLICATION in statuses(beat(apps, "b", second.member_epoch))
    beat(apps, "a", -1)
    assert Status.SHUTDOWN_APPLICATION in statuses(beat(apps, "b", second.member_epoch))
    beat(apps, "b", -1)
    assert not statuses(join(apps, "c")), "the application was started anew"


def test_another_topology_has_to_wait_until_nobody_runs_the_old_one(apps: Any) -> None:
    use_topics(apps, words=4, left=2, right=2, app_join_changelog=2, **INTERNAL)
    join(apps, "a")
    refused = join(apps, "b", JOIN)
    assert refused.error is ErrorKind.INVALID_REQUEST and "application.id" in refused.message
    beat(apps, "a", -1)
    accepted = join(apps, "b", JOIN)
    assert accepted.tasks == TasksByRole((("0", (0, 1)),))


def test_a_member_with_an_older_topology_is_told(apps: Any) -> None:
    join(apps, "a", COUNT._replace(epoch=3))
    old = join(apps, "b", COUNT._replace(epoch=2))
    assert Status.STALE_TOPOLOGY in statuses(old)


def test_endpoints_for_interactive_queries(apps: Any) -> None:
    first = join(apps, "a", endpoint=("host", 8080))
    assert first.endpoints is not None
    (found,) = first.endpoints.table
    assert (found.host, found.port) == ("host", 8080)
    second = beat(apps, "a", first.member_epoch, endpoint_epoch=first.endpoint_epoch)
    found = (second.endpoints or first.endpoints).table[0]
    assert found.active == (("app-by-word-repartition", (0, 1, 2, 3)), ("words", (0, 1, 2, 3)))
    assert beat(apps, "a", first.member_epoch, endpoint_epoch=second.endpoint_epoch).endpoints is None
    epoch = second.endpoint_epoch
    apps.restart()
    use_topics(apps, words=4, **INTERNAL)
    again = beat(apps, "a", first.member_epoch, endpoint_epoch=epoch)
    assert (again.endpoint_epoch, again.endpoints) == (epoch, None), "it means the same to every coordinator"


def commit(apps: Any, member_id: str, epoch: int, *offsets: OffsetToCommit, **fields: Any) -> Any:
    given = offsets or (OffsetToCommit("words", 0, 5),)
    return apps.ask(lambda w: CommitOffsets("app", given, member_id, epoch, **fields, waiter=w)).error


def txn_commit(apps: Any, member_id: str, epoch: int) -> Any:
    given = (OffsetToCommit("words", 0, 5),)
    return apps.ask(lambda w: TxnCommitOffsets("app", 7, 0, given, member_id, epoch, waiter=w)).error


def test_offsets_are_committed_with_member_epochs(apps: Any) -> None:
    first = join(apps, "a")
    epoch = first.member_epoch
    assert commit(apps, "a", epoch) is ErrorKind.NONE
    assert commit(apps, "a", epoch + 1) is ErrorKind.STALE_MEMBER_EPOCH
    assert commit(apps, "x", epoch) is ErrorKind.UNKNOWN_MEMBER_ID
    assert commit(apps, "", -1) is ErrorKind.UNKNOWN_MEMBER_ID, "only members, while there are any"
    assert commit(apps, "a", epoch, member_epoch_known=False) is ErrorKind.UNSUPPORTED_VERSION
    assert txn_commit(apps, "a", epoch) is ErrorKind.NONE
    assert txn_commit(apps, "a", epoch + 1) is ErrorKind.ILLEGAL_GENERATION
    assert txn_commit(apps, "", -1) is ErrorKind.NONE
    topics = (("words", (0,)),)
    read = apps.ask(lambda w: FetchOffsets("app", topics, member_id="a", member_epoch=epoch, waiter=w))
    assert (read.error, read.partitions[0].offset) == (ErrorKind.NONE, 5)
    late = apps.ask(lambda w: FetchOffsets("app", topics, member_id="a", member_epoch=epoch + 1, waiter=w))
    assert late.error is ErrorKind.STALE_MEMBER_EPOCH


def test_a_commit_that_was_under_way_when_the_epoch_rose_counts_for_tasks_it_still_has(apps: Any) -> None:
    first = join(apps, "a")
    old = first.member_epoch
    join(apps, "b")
    asked = beat(apps, "a", old, owned=first.tasks)
    freed = beat(apps, "a", old, owned=asked.tasks)
    assert freed.member_epoch > old
    kept, *_ = dict(asked.tasks.active)["0"]
    gone, *_ = set(range(4)) - set(dict(asked.tasks.active)["0"])
    assert commit(apps, "a", old, OffsetToCommit("words", kept, 5)) is ErrorKind.NONE
    assert commit(apps, "a", old, OffsetToCommit("words", gone, 5)) is ErrorKind.STALE_MEMBER_EPOCH
    assert commit(apps, "a", old, OffsetToCommit("else", 0, 5)) is ErrorKind.STALE_MEMBER_EPOCH
    since = apps.group("app").members["a"].since[Task(Role.ACTIVE, "0", kept)]
    assert commit(apps, "a", since - 1, OffsetToCommit("words", kept, 5)) is ErrorKind.STALE_MEMBER_EPOCH


def test_an_administrator_resets_an_empty_group(apps: Any) -> None:
    join(apps, "a")
    keys = (("words", 0),)
    refused = apps.ask(lambda w: DeleteOffsets("app", keys, waiter=w))
    assert refused.partitions[0].error is ErrorKind.GROUP_SUBSCRIBED_TO_TOPIC
    beat(apps, "a", -1)
    assert commit(apps, "", -1) is ErrorKind.NONE
    assert apps.ask(lambda w: DeleteOffsets("app", keys, waiter=w)).partitions[0].error is ErrorKind.NONE


def test_list_describe_delete(apps: Any) -> None:
    join(apps, "a")
    (listed,) = apps.ask(lambda w: ListGroups(waiter=w))
    assert tuple(listed)[:2] == ("app", "streams") and listed.group_type == "streams"
    assert apps.ask(lambda w: ListGroups(types=frozenset({"classic"}), waiter=w)) == ()
    (found,) = apps.ask(lambda w: StreamsGroupDescribe(("app",), waiter=w))
    assert (found.error, found.state, found.topology_epoch) == (ErrorKind.NONE, "Stable", 0)
    assert found.subtopologies[1].changelogs[0].partitions == 4
    (member,) = found.members
    assert (member.member_id, member.assigned, member.target) == ("a", ALL, ALL)
    (classic,) = apps.ask(lambda w: DescribeGroups(("app",), missing_is_error=True, waiter=w))
    assert classic.error is ErrorKind.GROUP_ID_NOT_FOUND
    (unknown,) = apps.ask(lambda w: StreamsGroupDescribe(("nobody",), waiter=w))
    assert unknown.error is ErrorKind.GROUP_ID_NOT_FOUND
    assert apps.ask(lambda w: DeleteGroups(("app",), waiter=w))[0].error is ErrorKind.NON_EMPTY_GROUP
    beat(apps, "a", -1)
    assert apps.ask(lambda w: DeleteGroups(("app",), waiter=w))[0].error is ErrorKind.NONE
    apps.restart()
    assert "app" not in apps.shard.table.groups


def test_groups_of_other_kinds_keep_their_names(apps: Any) -> None:
    apps.ask(lambda w: ShareGroupHeartbeat("shared", "m", 0, topics=("words",), waiter=w))
    assert join(apps, "a", group_id="shared").error is ErrorKind.GROUP_ID_NOT_FOUND
    apps.stable("one", group_id="old")
    assert join(apps, "a", group_id="old").error is ErrorKind.GROUP_ID_NOT_FOUND
    join(apps, "a")
    consumer = apps.ask(
        lambda w: ConsumerGroupHeartbeat(
            "app", "m", 0, topics=("words",), rebalance_timeout_ms=1, owned=(), waiter=w
        )
    )
    assert consumer.error is ErrorKind.GROUP_ID_NOT_FOUND
    waiter = apps.join(group_id="app")
    assert apps.answers[waiter].error is ErrorKind.INCONSISTENT_GROUP_PROTOCOL


def test_an_application_changes_its_protocol_while_it_is_stopped(apps: Any) -> None:
    """From classic to streams and back, with its offsets, and epochs go on counting (R54)."""
    (member,) = apps.stable("one", group_id="app")
    generation = apps.group("app").generation
    apps.commit(OffsetToCommit("words", 1, 9), group_id="app", member_id=member, generation=generation)
    apps.leave(member, group_id="app")
    generation = apps.group("app").generation
    first = join(apps, "a")
    assert first.tasks == ALL and first.member_epoch > generation
    assert apps.committed("words", 1, "app").offset == 9
    apps.restart()
    use_topics(apps, words=4, **INTERNAL)
    assert apps.group("app").group_type == "streams"
    assert beat(apps, "a", first.member_epoch).error is ErrorKind.NONE
    beat(apps, "a", -1)
    waiter = apps.join(group_id="app")
    assert apps.answers[waiter].error is ErrorKind.NONE
    assert apps.answers[waiter].generation > first.member_epoch
    apps.restart()
    assert apps.group("app").group_type == "classic"


def test_a_reload_changes_nothing(apps: Any) -> None:
    spare = StreamsSettings(initial_rebalance_delay_ms=0, assignment_interval_ms=0, standby_replicas=1)
    first = join(apps, "a", endpoint=("h", 1), tags=(("zone", "z"),), rack_id="r", settings=spare)
    second = join(apps, "b", settings=spare)
    asked = beat(apps, "a", first.member_epoch, owned=first.tasks, settings=spare)
    before = apps.group("app")
    apps.restart()
    after = apps.group("app")
    for name in (
        "epoch", "target_epoch", "fingerprint", "members", "targets", "topology", "validated_epoch", "holders",
        "standby_replicas", "assigned_wall_ms",
    ):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    early = beat(apps, "a", first.member_epoch)
    assert early.error is ErrorKind.COORDINATOR_LOAD_IN_PROGRESS
    use_topics(apps, words=4, **INTERNAL)
    freed = beat(apps, "a", first.member_epoch, owned=asked.tasks, settings=spare)
    assert freed.member_epoch == second.member_epoch


def test_an_empty_group_is_forgotten_with_its_offsets(apps: Any) -> None:
    first = join(apps, "a")
    commit(apps, "a", first.member_epoch)
    beat(apps, "a", -1)
    apps.advance(8 * 24 * 3_600_000)
    assert "app" not in apps.shard.table.groups and not apps.shard.table.offsets.group_ids()
    apps.restart()
    assert "app" not in apps.shard.table.groups


def test_a_group_has_so_many_members(make_world: Any) -> None:
    apps = make_world(streams_max_size=1)
    use_topics(apps, words=4, **INTERNAL)
    assert join(apps, "a").error is ErrorKind.NONE
    assert join(apps, "b").error is ErrorKind.GROUP_MAX_SIZE_REACHED
    assert join(apps, "a").error is ErrorKind.NONE


def test_a_heartbeat_of_a_settled_group_changes_only_its_session(apps: Any) -> None:
    first = join(apps, "a")
    beat(apps, "a", first.member_epoch, settings=AT_ONCE)
    assert [type(fact).__name__ for fact in apps.last.facts] == ["SessionExtended"]
