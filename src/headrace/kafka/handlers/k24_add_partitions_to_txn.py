"""Door: AddPartitionsToTxn (24). v0-3 from clients; v4-5 between brokers: many transactions, or only asking (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import TOPIC, TRANSACTIONAL_ID, needs, write
from headrace.transactions.commands import AddPartitions, VerifyPartitions
from headrace.transactions.versions import error_for_version
from headrace.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

KEY = 24
VERSIONS = (0, 5)
RIGHTS = needs(
    write(TRANSACTIONAL_ID, "v3_and_below_transactional_id", "transactions[].transactional_id"),
    write(TOPIC, "v3_and_below_topics[].name", "transactions[].topics[].name"),
)
PARTS = (Parts("v3_and_below_topics", "results_by_topic_v3_and_below", together=True),)
HIGHEST_ADVERTISED = 3


async def handle(call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    request = call.request
    if call.version < 4:
        results = await _add(
            call,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            request.v3_and_below_topics,
            verify_only=False,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if (refused := call.broker.introductions.refusal(call.session.principal)) is not None:
        return AddPartitionsToTxnResponse(error_code=refused.kafka_code)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                entry.transactional_id,
                await _add(
                    call,
                    entry.transactional_id,
                    entry.producer_id,
                    entry.producer_epoch,
                    entry.topics,
                    verify_only=entry.verify_only,
                ),
            )
            for entry in request.transactions
        ]
    )


async def _add(
    call: Call[AddPartitionsToTxnRequest],
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    topics: Sequence[AddPartitionsToTxnTopic],
    *,
    verify_only: bool,
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]
    image = call.broker.image
    unknown = {tp: ErrorKind.UNKNOWN_TOPIC_OR_PARTITION for tp in partitions if image.partition(*tp) is None}
    # A view can't be written to, least of all a marker.
    unknown.update((tp, ErrorKind.INVALID_TOPIC_EXCEPTION) for tp in partitions if image.view(tp.topic))
    if unknown:
        # All or nothing: the others are told that they were not tried.
        return _results(
            topics,
            lambda tp: unknown.get(tp, ErrorKind.OPERATION_NOT_ATTEMPTED),
        )
    what = (transactional_id, producer_id, producer_epoch, frozenset(partitions))
    transactions = call.services.transactions
    try:
        if verify_only:
            by_partition = await transactions.ask(transactional_id, VerifyPartitions(*what))
        else:
            connection_id = call.connection_id if call.version < 4 else None
            error = await transactions.ask(transactional_id, AddPartitions(*what, connection_id))
            by_partition = dict.fromkeys(partitions, error)
    except HeadraceError as problem:
        by_partition = dict.fromkeys(partitions, problem.kind)
    return _results(topics, lambda tp: error_for_version(KEY, call.version, by_partition[tp]))


def _results(
    topics: Sequence[AddPartitionsToTxnTopic], error_of: Callable[[TopicPartition], ErrorKind]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(
                    number, error_of(TopicPartition(topic.name, number)).kafka_code
                )
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]
