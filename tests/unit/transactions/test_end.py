"""EndTxn, markers, and the two ways to keep a late request out of the next transaction (R46, R47, R49)."""

from __future__ import annotations

import pytest
from transaction_world import P0, P1, World

from headrace.core.errors import ErrorKind
from headrace.transactions.commands import CloseConnection, ProducerIdentity, SendMarkers
from headrace.transactions.connections import NewestConnections
from headrace.transactions.facts import Loaded
from headrace.transactions.state import LAST_EPOCH, Transaction, TransactionState

OK = ProducerIdentity(ErrorKind.NONE)


def opened(world: World, *, connection: int | None = None) -> ProducerIdentity:
    producer = world.init(connection=connection)
    assert world.add(producer, P0, P1, connection=connection) is ErrorKind.NONE
    return producer


@pytest.mark.parametrize(("commit", "name"), [(True, "Commit"), (False, "Abort")])
def test_decide_then_mark_then_complete(world: World, commit: bool, name: str) -> None:
    producer = opened(world)
    assert world.end(producer, commit) == OK
    assert world.state == "Prepare" + name
    assert world.effects == [SendMarkers("x", 1000, 0, commit, 5, 1_000, (P0, P1))]
    world.mark(P1)
    assert world.state == "Prepare" + name
    world.mark(P0)
    assert world.state == "Complete" + name
    assert world.transaction().partitions == frozenset()


def test_answers_of_old_clients(world: World) -> None:
    producer = world.init()
    assert world.end(producer).error is ErrorKind.INVALID_TXN_STATE, "nothing was started"
    world.add(producer, P0)
    world.end(producer, commit=True)
    assert world.end(producer, commit=True).error is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.end(producer, commit=False).error is ErrorKind.INVALID_TXN_STATE
    world.mark()
    assert world.end(producer, commit=True) == OK, "a retry"
    assert world.end(producer, commit=False).error is ErrorKind.INVALID_TXN_STATE
    assert world.end(producer._replace(producer_epoch=9)).error is ErrorKind.PRODUCER_FENCED
    assert world.end(producer._replace(producer_id=9)).error is ErrorKind.INVALID_PRODUCER_ID_MAPPING


def test_unknown_ids(world: World) -> None:
    nobody = ProducerIdentity(ErrorKind.NONE, 1, 0)
    assert world.end(nobody).error is ErrorKind.INVALID_PRODUCER_ID_MAPPING
    assert world.end(nobody, bump=True).error is ErrorKind.INVALID_PRODUCER_ID_MAPPING


def test_r49_a_decision_is_carried_out_by_the_next_coordinator(world: World) -> None:
    producer = opened(world)
    world.end(producer)
    world.mark(P0)
    world.restart()
    assert world.effects == [SendMarkers("x", 1000, 0, True, 6, 77, (P0, P1))], (
        "to all, with the new epoch (R43)"
    )
    assert world.end(producer, commit=False).error is ErrorKind.INVALID_TXN_STATE
    assert world.init().error is ErrorKind.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.state == "CompleteCommit"


def test_r49_nothing_else_is_resumed(world: World) -> None:
    opened(world)
    world.restart()
    assert world.effects == []


def test_late_answers_to_markers_of_an_earlier_transaction_count_for_nothing(world: World) -> None:
    """Old clients end many transactions under one epoch: only the round tells their markers apart."""
    producer = opened(world)
    world.end(producer)
    first = world.effects[-1]
    world.mark()
    world.mark(sent=first)
    assert world.state == "CompleteCommit"
    world.add(producer, P0, P1)
    world.end(producer, commit=False)
    second = world.effects[-1]
    assert second.marker_round > first.marker_round
    world.mark(sent=first)
    assert world.state == "PrepareAbort"
    world.mark(sent=second)
    assert world.state == "CompleteAbort"


# ---- R46: transaction version 2


@pytest.mark.parametrize("commit", [True, False])
def test_r46_every_end_bumps_the_epoch(world: World, commit: bool) -> None:
    producer = opened(world)
    following = world.end(producer, commit, bump=True)
    assert following == ProducerIdentity(ErrorKind.NONE, 1000, 1)
    assert world.effects[-1].producer_epoch == 1, "the markers fence the old epoch on every partition"
    world.mark()
    assert world.add(producer, P0) is ErrorKind.PRODUCER_FENCED
    assert world.add(following, P0) is ErrorKind.NONE


@pytest.mark.parametrize("restarted", [False, True])
def test_r46_a_retry_is_recognised(world: World, restarted: bool) -> None:
    producer = opened(world)
    following = world.end(producer, bump=True)
    assert world.end(producer, bump=True).error is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.end(producer, commit=False, bump=True).error is ErrorKind.INVALID_TXN_STATE
    world.mark()
    if restarted:
        world.restart()
    assert world.end(producer, bump=True) == following
    assert world.end(producer, commit=False, bump=True).error is ErrorKind.INVALID_TXN_STATE
    assert world.state == "CompleteCommit"


def test_r46_a_late_end_does_not_touch_the_next_transaction(world: World) -> None:
    producer = opened(world)
    following = world.end(producer, bump=True)
    world.mark()
    world.add(following, P0)
    for commit in (True, False):
        assert world.end(producer, commit, bump=True).error is ErrorKind.PRODUCER_FENCED
    assert world.state == "Ongoing"


@pytest.mark.parametrize("before", ["new", "committed", "aborted"])
def test_r46_an_empty_abort_bumps_too(world: World, before: str) -> None:
    producer = world.init()
    if before != "new":
        world.add(producer, P0)
        producer = world.end(producer, before == "committed", bump=True)
        world.mark()
    world.effects.clear()
    following = world.end(producer, commit=False, bump=True)
    assert following == producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert world.state == "CompleteAbort"
    assert world.effects == [], "there is no partition to tell"
    assert world.end(producer, commit=False, bump=True) == following, "and its retry is recognised"
    assert world.end(following, commit=True, bump=True).error is ErrorKind.INVALID_TXN_STATE


@pytest.mark.parametrize("restarted", [False, True])
def test_r46_on_the_last_epoch_the_producer_id_rotates(world: World, restarted: bool) -> None:
    loaded = Transaction("x", 7, LAST_EPOCH, TransactionState.ONGOING, 60_000, frozenset({P0}))
    world.shard.apply(Loaded(loaded), world.now_ms)
    producer = ProducerIdentity(ErrorKind.NONE, 7, LAST_EPOCH)
    following = world.end(producer, bump=True)
    assert following == ProducerIdentity(ErrorKind.NONE, 1000, 0)
    assert world.effects[-1][1:3] == (7, LAST_EPOCH + 1), "the old id is fenced with the epoch kept for that"
    if restarted:
        world.restart()
    assert world.end(producer, bump=True).error is ErrorKind.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.end(producer, bump=True) == following
    assert world.add(following, P0) is ErrorKind.NONE
    assert world.end(producer, bump=True).error is ErrorKind.INVALID_PRODUCER_ID_MAPPING


def test_r46_without_a_new_id_the_client_has_to_come_again(world: World) -> None:
    from headrace.transactions.commands import EndTxn

    loaded = Transaction("x", 7, LAST_EPOCH, TransactionState.ONGOING, 60_000, frozenset({P0}))
    world.shard.apply(Loaded(loaded), world.now_ms)
    answer = world.ask(lambda w: EndTxn("x", 7, LAST_EPOCH, True, True, waiter=w))
    assert answer.error is ErrorKind.COORDINATOR_NOT_AVAILABLE
    assert world.state == "Ongoing"


# ---- R47: older clients


def test_r47_an_older_connection_is_refused_once_a_newer_one_spoke(world: World) -> None:
    producer = opened(world, connection=10)
    assert world.end(producer, connection=11) == OK
    world.mark()
    assert world.add(producer, P0, connection=11) is ErrorKind.NONE
    # The EndTxn that was sent first, over connection 10, arrives now: it would commit the next transaction.
    assert world.end(producer, connection=10).error is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.state == "Ongoing"
    assert world.last.effects == (CloseConnection(10),)
    assert world.add(producer, P1, connection=10) is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.end(producer, connection=11) == OK


def test_r47_has_an_off_switch() -> None:
    world = World(connection_fencing=False)
    producer = opened(world, connection=10)
    world.end(producer, connection=11)
    world.mark()
    world.add(producer, P0, connection=11)
    assert world.end(producer, connection=10) == OK


def test_r47_a_new_epoch_may_be_spoken_for_by_any_connection(world: World) -> None:
    """Two producers that share an id have connections of any age."""
    old = opened(world, connection=10)
    assert world.init(connection=3).error is ErrorKind.CONCURRENT_TRANSACTIONS
    world.mark()
    newer = world.init(connection=3)
    assert world.add(newer, P0, connection=3) is ErrorKind.NONE
    assert world.add(old, P0, connection=10) is ErrorKind.PRODUCER_FENCED
    assert world.add(newer, P1, connection=2) is ErrorKind.CONCURRENT_TRANSACTIONS


def test_r47_connections_from_before_a_failover_are_not_heard(world: World) -> None:
    """Which of them spoke last died with the old shard; a client that is alive comes back over a new one."""
    producer = opened(world, connection=10)
    world.restart(connection_floor=20)
    assert world.end(producer, connection=15).error is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.last.effects == (CloseConnection(15),)
    assert world.end(producer, connection=21) == OK
    world.mark()
    assert world.init(connection=15).error is ErrorKind.NONE, "but anybody may start a producer"


def test_r47_commands_without_a_connection_are_not_asked(world: World) -> None:
    producer = opened(world, connection=10)
    assert world.add(producer, P0) is ErrorKind.NONE
    assert world.end(producer) == OK


def test_r47_on_the_produce_path() -> None:
    connections = NewestConnections()
    assert connections.admit(9, 0, 5)
    assert connections.admit(9, 0, 6)
    assert not connections.admit(9, 0, 5)
    assert connections.admit(9, 1, 5), "a new epoch"
    assert connections.admit(9, 0, 2), "an old epoch is refused by the partition, not here"
    assert connections.admit(9, 1, 5)
    connections.forget(9)
    assert connections.admit(9, 1, 1)


def test_r47_the_produce_path_is_bounded() -> None:
    connections = NewestConnections(limit=2)
    for producer_id in range(5):
        connections.admit(producer_id, 0, 7)
    assert connections.admit(0, 0, 1), "forgotten"
    assert not connections.admit(4, 0, 1)


def test_r46_an_end_without_a_bump_is_nobodys_retry(world: World) -> None:
    """A producer that recovered has the epoch before its own on record, too; an end under that one comes from the past."""
    zombie = world.init()
    recovered = world.init(expected=zombie[1:])
    world.add(recovered, P0)
    world.end(recovered, commit=True)
    world.mark()
    assert world.end(zombie, commit=True, bump=True).error is ErrorKind.PRODUCER_FENCED
