"""AddPartitionsToTxn, AddOffsetsToTxn and the verification of KIP-890 (R44, R45)."""

from __future__ import annotations

from transaction_world import P0, P1, P2, WALL_MS, World

from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.transactions.commands import AddOffsets, AddPartitions, ProducerIdentity, VerifyPartitions
from headrace.transactions.verification import Verifications


def test_the_first_partition_opens_the_transaction(world: World) -> None:
    producer = world.init()
    assert world.add(producer, P0) is ErrorKind.NONE
    assert world.state == "Ongoing"
    assert world.transaction().start_wall_ms == WALL_MS + 1_000
    world.advance(5)
    assert world.add(producer, P1, P2) is ErrorKind.NONE
    assert world.transaction().partitions == {P0, P1, P2}
    assert world.transaction().start_wall_ms == WALL_MS + 1_000


def test_r44_what_was_added_survives_the_coordinator(world: World) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    world.restart()
    assert world.transaction().partitions == {P0, P1}
    assert world.verify(producer, P0) == {P0: ErrorKind.NONE}


def test_known_partitions_are_not_journaled_again(world: World) -> None:
    producer = world.init()
    world.add(producer, P0, P1)
    length = len(world.journal)
    assert world.add(producer, P1) is ErrorKind.NONE
    assert world.add(producer) is ErrorKind.NONE
    assert len(world.journal) == length


def test_who_may_add(world: World) -> None:
    producer = world.init()
    assert world.add(producer, P0, transactional_id="other") is ErrorKind.INVALID_PRODUCER_ID_MAPPING
    assert world.add(producer, P0, transactional_id="") is ErrorKind.INVALID_REQUEST
    assert world.add(producer._replace(producer_id=5), P0) is ErrorKind.INVALID_PRODUCER_ID_MAPPING
    assert world.add(producer._replace(producer_epoch=1), P0) is ErrorKind.PRODUCER_FENCED
    newer = world.init()
    assert world.add(producer, P0) is ErrorKind.PRODUCER_FENCED
    assert world.add(newer, P0) is ErrorKind.NONE


def test_nothing_is_added_to_a_decided_transaction(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.end(producer)
    assert world.add(producer, P1) is ErrorKind.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.add(producer, P1) is ErrorKind.NONE, "it opens the next one"
    assert world.transaction().partitions == {P1}


def test_a_transaction_has_a_bound() -> None:
    world = World(max_partitions=2)
    producer = world.init()
    assert world.add(producer, P0, P1) is ErrorKind.NONE
    assert world.add(producer, P2) is ErrorKind.POLICY_VIOLATION
    assert world.transaction().partitions == {P0, P1}


def test_offsets_join_as_the_partition_of_their_group(world: World) -> None:
    producer = world.init()
    answer = world.ask(lambda w: AddOffsets("x", *producer[1:], "my-group", waiter=w))
    assert answer is ErrorKind.NONE
    # abs("my-group".hashCode()) % 50, worked out by hand from Java's definition
    assert world.transaction().partitions == {TopicPartition("__consumer_offsets", 12)}
    assert (
        world.ask(lambda w: AddOffsets("x", 1, 0, "my-group", waiter=w))
        is ErrorKind.INVALID_PRODUCER_ID_MAPPING
    )


def test_r45_verification(world: World) -> None:
    producer = world.init()
    assert world.verify(producer, P0) == {P0: ErrorKind.TRANSACTION_ABORTABLE}
    world.add(producer, P0)
    assert world.verify(producer, P0, P1) == {P0: ErrorKind.NONE, P1: ErrorKind.TRANSACTION_ABORTABLE}
    assert world.verify(producer._replace(producer_id=5), P0) == {P0: ErrorKind.INVALID_PRODUCER_ID_MAPPING}
    assert world.verify(producer._replace(producer_epoch=5), P0) == {P0: ErrorKind.PRODUCER_FENCED}
    world.end(producer)
    assert world.verify(producer, P0) == {P0: ErrorKind.CONCURRENT_TRANSACTIONS}
    world.mark()
    assert world.verify(producer, P0) == {P0: ErrorKind.TRANSACTION_ABORTABLE}, "a late batch opens nothing"
    assert world.ask(lambda w: VerifyPartitions("who", 1, 1, frozenset({P0}), waiter=w)) == {
        P0: ErrorKind.INVALID_PRODUCER_ID_MAPPING
    }


def test_verification_changes_nothing(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.verify(producer, P0)
    assert not world.last.facts


def test_r45_a_marker_tears_the_ticket_up() -> None:
    partition = Verifications()
    ticket = partition.begin(9, 0)
    assert partition.holds(9, 0, ticket)
    partition.marker_written(9, 0, commit=True, newest_connection_id=0)
    assert not partition.holds(9, 0, ticket)
    assert partition.begin(9, 0) != ticket


def test_tickets_are_shared_by_epoch_and_used_up() -> None:
    partition = Verifications()
    ticket = partition.begin(9, 0)
    assert partition.begin(9, 0) == ticket
    newer = partition.begin(9, 1)
    assert newer != ticket
    assert not partition.holds(9, 0, ticket) and partition.holds(9, 1, newer)
    partition.appended(9)
    assert not partition.holds(9, 1, newer)


def test_tickets_have_a_bound() -> None:
    partition = Verifications(limit=2)
    tickets = [partition.begin(producer_id, 0) for producer_id in range(3)]
    assert [partition.holds(i, 0, ticket) for i, ticket in enumerate(tickets)] == [False, True, True]


def test_an_answer_without_a_waiter_is_a_bug(world: World) -> None:
    assert (
        world.ask(lambda w: AddPartitions("x", 1, 0, frozenset(), waiter=w))
        is ErrorKind.INVALID_PRODUCER_ID_MAPPING
    )
    assert ProducerIdentity(ErrorKind.NONE)[1:] == (-1, -1)
