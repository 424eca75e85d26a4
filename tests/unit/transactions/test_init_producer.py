"""InitProducerId with a transactional id (kafka.md 7, R37, R51, KIP-360)."""

from __future__ import annotations

import pytest
from transaction_world import P0, P1, World

from headrace.core.errors import ErrorKind
from headrace.transactions.commands import ProducerIdentity, SendMarkers
from headrace.transactions.facts import Loaded
from headrace.transactions.state import LAST_EPOCH, Transaction, TransactionState


def load(world: World, state: TransactionState, epoch: int, **changes: object) -> None:
    transaction = Transaction("x", 7, epoch, state, 60_000)._replace(**changes)  # type: ignore[arg-type]
    world.shard.apply(Loaded(transaction), world.now_ms)


def test_a_new_id_starts_at_epoch_0(world: World) -> None:
    assert world.init() == ProducerIdentity(ErrorKind.NONE, 1000, 0)
    assert world.state == "Empty"


def test_every_start_raises_the_epoch_and_keeps_the_producer_id(world: World) -> None:
    world.init()
    assert world.init() == ProducerIdentity(ErrorKind.NONE, 1000, 1)
    assert world.init() == ProducerIdentity(ErrorKind.NONE, 1000, 2)


@pytest.mark.parametrize("timeout_ms", [0, -1, 15 * 60 * 1000 + 1])
def test_timeouts_have_bounds(world: World, timeout_ms: int) -> None:
    assert world.init(timeout_ms=timeout_ms).error is ErrorKind.INVALID_TRANSACTION_TIMEOUT
    assert world.init(timeout_ms=15 * 60 * 1000).error is ErrorKind.NONE


def test_an_empty_id_is_refused(world: World) -> None:
    assert world.init("").error is ErrorKind.INVALID_REQUEST


def test_x31_there_is_a_bound_for_ids() -> None:
    world = World(max_transactional_ids=2)
    assert [world.init(name).error for name in "abca"] == [
        ErrorKind.NONE,
        ErrorKind.NONE,
        ErrorKind.POLICY_VIOLATION,
        ErrorKind.NONE,
    ]


def test_r51_an_open_transaction_is_fenced_and_aborted_first(world: World) -> None:
    old = world.init()
    world.add(old, P0, P1)
    assert world.init() == ProducerIdentity(ErrorKind.CONCURRENT_TRANSACTIONS)
    assert world.effects == [SendMarkers("x", 1000, 1, False, 5, 1_000, (P0, P1))]
    assert world.init().error is ErrorKind.CONCURRENT_TRANSACTIONS, "while the markers are on their way"
    assert world.end(old).error is ErrorKind.PRODUCER_FENCED
    assert world.add(old, P0) is ErrorKind.PRODUCER_FENCED
    world.mark()
    assert world.init() == ProducerIdentity(ErrorKind.NONE, 1000, 2), "the epoch of the abort is nobody's"
    assert world.end(old, bump=True).error is ErrorKind.PRODUCER_FENCED


def test_r51_a_fenced_producer_can_not_pass_for_a_retry(world: World) -> None:
    """After the fence the epoch is one above the zombie's, just as after its own EndTxn."""
    zombie = world.init()
    world.add(zombie, P0)
    world.init()
    world.mark()
    assert world.state == "CompleteAbort"
    assert world.end(zombie, commit=False, bump=True).error is ErrorKind.PRODUCER_FENCED
    world.restart()
    assert world.end(zombie, commit=False, bump=True).error is ErrorKind.PRODUCER_FENCED


def test_kip_360_a_recovering_producer_gets_the_next_epoch_once(world: World) -> None:
    first = world.init()
    second = world.init(expected=first[1:])
    assert second == ProducerIdentity(ErrorKind.NONE, 1000, 1)
    assert world.init(expected=first[1:]) == second, "a retry whose answer got lost"
    world.restart()
    assert world.init(expected=first[1:]) == second, "also at another coordinator"
    assert world.init(expected=second[1:]).producer_epoch == 2


def test_kip_360_a_producer_that_was_replaced_is_fenced(world: World) -> None:
    old = world.init()
    world.init()
    assert world.init(expected=old[1:]).error is ErrorKind.PRODUCER_FENCED
    assert world.init(expected=(4711, 0)).error is ErrorKind.PRODUCER_FENCED


def test_kip_360_a_producer_of_a_forgotten_id_gets_a_new_one(world: World) -> None:
    assert world.init(expected=(4711, 12)) == ProducerIdentity(ErrorKind.NONE, 1000, 0)


def test_epochs_run_out_and_the_producer_id_changes(world: World) -> None:
    load(world, TransactionState.COMPLETE_COMMIT, LAST_EPOCH - 1)
    assert world.init() == ProducerIdentity(ErrorKind.NONE, 7, LAST_EPOCH)
    rotated = world.init(expected=(7, LAST_EPOCH))
    assert rotated[1:] == (1001, 0)
    assert world.init(expected=(7, LAST_EPOCH)) == rotated, "a retry under the old id"
    assert world.init(expected=(7, 5)).error is ErrorKind.PRODUCER_FENCED
    assert world.init().producer_epoch == 1
    assert world.init(expected=(7, LAST_EPOCH)).error is ErrorKind.PRODUCER_FENCED


def test_an_old_id_at_its_last_epoch_is_not_the_new_id_at_its_last_epoch(world: World) -> None:
    load(world, TransactionState.EMPTY, LAST_EPOCH, previous_producer_id=3)
    assert world.init(expected=(3, LAST_EPOCH)).error is ErrorKind.PRODUCER_FENCED


def test_even_the_last_epoch_can_be_fenced(world: World) -> None:
    load(world, TransactionState.ONGOING, LAST_EPOCH, partitions=frozenset({P0}))
    assert world.init().error is ErrorKind.CONCURRENT_TRANSACTIONS
    assert world.effects[-1].producer_epoch == LAST_EPOCH + 1
    world.mark()
    assert world.init()[1:] == (1001, 0)


def test_the_timeout_is_the_one_asked_for_last(world: World) -> None:
    world.init(timeout_ms=10_000)
    producer = world.init(timeout_ms=20_000)
    world.add(producer, P0)
    world.advance(19_999)
    assert world.state == "Ongoing"
    world.advance(1)
    assert world.state == "PrepareAbort"


def test_the_epoch_above_the_last_is_nobodys(world: World) -> None:
    """Found by the model: a request that made the number up would have opened a transaction that can not be fenced."""
    load(world, TransactionState.COMPLETE_ABORT, LAST_EPOCH + 1)
    impostor = ProducerIdentity(ErrorKind.NONE, 7, LAST_EPOCH + 1)
    assert world.add(impostor, P0) is ErrorKind.PRODUCER_FENCED
    assert world.end(impostor, commit=False, bump=True).error is ErrorKind.PRODUCER_FENCED
    assert world.end(impostor, commit=False).error is ErrorKind.PRODUCER_FENCED
    assert world.init(expected=impostor[1:]).error is ErrorKind.PRODUCER_FENCED
    assert world.init().producer_epoch == 0
