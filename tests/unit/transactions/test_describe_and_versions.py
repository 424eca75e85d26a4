"""Looking at transactions, producer id blocks (R37), and errors by API version."""

from __future__ import annotations

import pytest
from transaction_world import P0, P1, WALL_MS, World

from headrace.core.errors import ErrorKind
from headrace.transactions.commands import (
    DescribeTransactions,
    ListResult,
    ListTransactions,
    TransactionDescription,
    TransactionListing,
)
from headrace.transactions.producer_ids import ProducerIdAllocator, ProducerIdBlock
from headrace.transactions.state import InvariantBreach
from headrace.transactions.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    error_for_version,
)


def test_describe(world: World) -> None:
    producer = world.init(timeout_ms=30_000)
    world.add(producer, P1, P0)
    found = world.ask(lambda w: DescribeTransactions(("x", "y", ""), waiter=w))
    assert found == (
        TransactionDescription("x", ErrorKind.NONE, "Ongoing", 1000, 0, 30_000, WALL_MS + 1_000, (P0, P1)),
        TransactionDescription("y", ErrorKind.TRANSACTIONAL_ID_NOT_FOUND),
        TransactionDescription("", ErrorKind.INVALID_REQUEST),
    )


def test_list_and_its_filters(world: World) -> None:
    world.init("idle")
    producer = world.init("x")
    world.add(producer, P0)
    idle, ongoing = TransactionListing("idle", 1000, "Empty"), TransactionListing("x", 1001, "Ongoing")

    def listed(**filters: object) -> ListResult:
        found: ListResult = world.ask(lambda w: ListTransactions(**filters, waiter=w))  # type: ignore[arg-type]
        return found

    assert listed() == ListResult((), (idle, ongoing))
    assert listed(states=frozenset({"Ongoing", "Nonsense"})) == ListResult(("Nonsense",), (ongoing,))
    assert listed(producer_ids=frozenset({1000})) == ListResult((), (idle,))
    world.advance(5_000)
    assert listed(longer_than_ms=4_999) == ListResult((), (ongoing,))
    assert listed(longer_than_ms=5_000) == ListResult((), ())


def test_r37_ids_come_from_blocks_and_never_twice() -> None:
    ids = ProducerIdAllocator(refill_below=2)
    assert ids.take() is None and ids.wants_block
    ids.add_block(ProducerIdBlock(100, 3))
    assert not ids.wants_block
    assert [ids.take(), ids.take()] == [100, 101]
    assert ids.wants_block
    ids.add_block(ProducerIdBlock(500, 2))
    assert ids.remaining == 3
    assert [ids.take() for _ in range(4)] == [102, 500, 501, None]


@pytest.mark.parametrize("block", [ProducerIdBlock(100, 3), ProducerIdBlock(102, 5), ProducerIdBlock(200, 0)])
def test_r37_a_block_that_goes_back_is_a_breach(block: ProducerIdBlock) -> None:
    ids = ProducerIdAllocator()
    ids.add_block(ProducerIdBlock(100, 3))
    with pytest.raises(InvariantBreach):
        ids.add_block(block)


@pytest.mark.parametrize(
    ("api_key", "since"),
    [(INIT_PRODUCER_ID, 4), (ADD_PARTITIONS_TO_TXN, 2), (ADD_OFFSETS_TO_TXN, 2), (END_TXN, 2)],
)
def test_old_versions_know_no_producer_fenced(api_key: int, since: int) -> None:
    fenced = ErrorKind.PRODUCER_FENCED
    assert error_for_version(api_key, since - 1, fenced) is ErrorKind.INVALID_PRODUCER_EPOCH
    assert error_for_version(api_key, since, fenced) is fenced


def test_produce_never_says_producer_fenced() -> None:
    assert error_for_version(PRODUCE, 13, ErrorKind.PRODUCER_FENCED) is ErrorKind.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("api_key", "since"),
    [(PRODUCE, 11), (INIT_PRODUCER_ID, 5), (ADD_PARTITIONS_TO_TXN, 5), (END_TXN, 4), (TXN_OFFSET_COMMIT, 4)],
)
def test_old_versions_know_no_abortable_error(api_key: int, since: int) -> None:
    abortable = ErrorKind.TRANSACTION_ABORTABLE
    assert error_for_version(api_key, since - 1, abortable) is ErrorKind.INVALID_TXN_STATE
    assert error_for_version(api_key, since, abortable) is abortable


def test_other_errors_pass_through() -> None:
    assert (
        error_for_version(END_TXN, 0, ErrorKind.CONCURRENT_TRANSACTIONS) is ErrorKind.CONCURRENT_TRANSACTIONS
    )
