"""R50: offsets of a transaction are pending until its marker; require_stable says so."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.errors import ErrorKind
from headrace.groups.commands import (
    AdoptOffsets,
    DeleteGroups,
    FetchOffsets,
    OffsetToCommit,
    TopicDeleted,
    TxnCommitOffsets,
    TxnMarker,
)

T0 = OffsetToCommit("t", 0, 42)


def txn_commit(world: Any, *offsets: OffsetToCommit, pid: int = 5, group_id: str = "g", **fields: Any) -> Any:
    return world.ask(lambda w: TxnCommitOffsets(group_id, pid, 0, offsets, **fields, waiter=w))


def mark(world: Any, commit: bool, pid: int = 5) -> None:
    world.ask(lambda w: TxnMarker(pid, 0, commit, waiter=w))


def test_r50_pending_offsets_are_invisible_until_the_commit_marker(world: Any) -> None:
    assert txn_commit(world, T0).partitions[0].error is ErrorKind.NONE
    assert world.committed().offset == -1
    unstable = world.committed(stable=True)
    assert (unstable.error, unstable.offset) == (ErrorKind.UNSTABLE_OFFSET_COMMIT, -1)
    mark(world, commit=True)
    assert world.committed(stable=True).offset == 42


def test_r50_an_abort_drops_them(world: Any) -> None:
    world.commit(T0._replace(offset=10))
    txn_commit(world, T0)
    mark(world, commit=False)
    assert world.committed(stable=True).offset == 10


def test_r50_only_the_partitions_of_the_transaction_are_unstable(world: Any) -> None:
    world.commit(T0._replace(offset=10), T0._replace(offset=11, partition=1))
    txn_commit(world, T0)
    found = world.ask(lambda w: FetchOffsets("g", None, require_stable=True, waiter=w)).partitions
    assert {(f.partition, f.offset, f.error) for f in found} == {
        (0, -1, ErrorKind.UNSTABLE_OFFSET_COMMIT),
        (1, 11, ErrorKind.NONE),
    }


def test_the_fact_asks_for_a_transactional_batch(world: Any) -> None:
    txn_commit(world, T0, pid=9)
    (fact,) = world.last.facts
    assert (fact.durable, fact.producer) == (True, (9, 0))


def test_two_producers_on_one_partition(world: Any) -> None:
    txn_commit(world, T0, pid=5)
    txn_commit(world, T0._replace(offset=50), pid=6)
    mark(world, True, pid=5)
    assert world.committed(stable=True).error is ErrorKind.UNSTABLE_OFFSET_COMMIT
    mark(world, True, pid=6)
    assert world.committed(stable=True).offset == 50


def test_a_marker_does_not_undo_what_was_committed_since(world: Any) -> None:
    txn_commit(world, T0)
    world.commit(T0._replace(offset=100))
    mark(world, commit=True)
    assert world.committed().offset == 100


def test_a_marker_for_nothing_is_nothing(world: Any) -> None:
    mark(world, commit=True, pid=12345)
    assert not world.last.facts


@pytest.mark.parametrize("commit", [True, False])
def test_r50_pending_offsets_survive_a_restart(world: Any, commit: bool) -> None:
    world.commit(T0._replace(offset=10))
    txn_commit(world, T0)
    world.restart()
    assert world.committed(stable=True).error is ErrorKind.UNSTABLE_OFFSET_COMMIT
    world.shard.replay_marker(5, 0, commit, world.now_ms)
    world.shard.invariants()
    assert world.committed(stable=True).offset == (42 if commit else 10)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": "stranger", "generation": 1}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "m1", "generation": 0}, ErrorKind.ILLEGAL_GENERATION),
        ({"member_id": "m1", "generation": 1, "instance_id": "i"}, ErrorKind.UNKNOWN_MEMBER_ID),
        ({"member_id": "m1", "generation": 1}, ErrorKind.NONE),
        ({}, ErrorKind.NONE),  # a producer older than KIP-447
    ],
)
def test_r50_kip_447_the_member_and_generation_are_checked(world: Any, fields: Any, error: ErrorKind) -> None:
    world.stable("a")
    assert txn_commit(world, T0, **fields).partitions[0].error is error


def test_a_generation_of_an_unknown_group(world: Any) -> None:
    assert txn_commit(world, T0, generation=4, member_id="m").error is ErrorKind.ILLEGAL_GENERATION


def test_metadata_is_bounded_here_too(world: Any) -> None:
    result = txn_commit(world, T0._replace(metadata="x" * 5000))
    assert result.partitions[0].error is ErrorKind.OFFSET_METADATA_TOO_LARGE
    assert not world.last.facts


def test_a_deleted_topic_or_group_takes_pending_offsets_along(world: Any) -> None:
    txn_commit(world, T0)
    txn_commit(world, T0._replace(topic="u"), group_id="h")
    world.ask(lambda w: TopicDeleted("t", waiter=w))
    world.ask(lambda w: DeleteGroups(("h",), waiter=w))
    mark(world, commit=True)
    assert world.committed().offset == world.committed("u", group_id="h").offset == -1
    world.restart()
    assert not world.shard.table.offsets.pending


def test_f1_a_late_deletion_leaves_what_a_transaction_commits_to_the_new_topic(world: Any) -> None:
    """A key can only be dropped as a whole, so the old offset waits; and adopting does not outdate what is pending (R50)."""
    old, new = b"o" * 16, b"n" * 16
    world.commit(T0._replace(topic_id=old, offset=1))
    txn_commit(world, T0._replace(topic_id=new))
    world.ask(lambda w: TopicDeleted("t", old, waiter=w))
    mark(world, commit=True)
    assert (world.committed().offset, world.committed().topic_id) == (42, new)
    world.commit(T0._replace(topic="u", offset=1))
    txn_commit(world, T0._replace(topic="u", topic_id=new))
    world.ask(lambda w: AdoptOffsets({"u": new}, waiter=w))
    mark(world, commit=True)
    assert world.committed("u").offset == 42


def test_offsets_in_a_transaction_do_not_expire(world: Any) -> None:
    world.commit(T0)
    txn_commit(world, T0._replace(offset=43))
    world.advance(30 * 86_400_000)
    assert world.committed().offset == 42
    mark(world, commit=False)
    world.advance(world.config.cleanup_interval_ms)
    assert world.committed().offset == -1
