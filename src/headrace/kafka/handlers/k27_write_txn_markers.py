"""Door: WriteTxnMarkers (27): a coordinator's decision reaches the partitions of a transaction; and an administrator ends one
that hangs, as kafka-transactions.sh does (F37, decision 0027).

A marker of a broker that comes over a connection its sender has given up, or from before we led the partition, is not written: it has
been sent again, and the transaction it ended may have a successor with the same epoch (R47).
"""

from __future__ import annotations

import asyncio

from headrace.broker.load import setter
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.kafka.call import Call
from headrace.security.guard import Parts
from headrace.security.rights import CLUSTER, alter, needs
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

KEY = 27
VERSIONS = (1, 2)
RIGHTS = needs(alter(CLUSTER))
PARTS = (Parts("markers", "markers"),)

Row = tuple[str, int, asyncio.Future[ErrorKind]]
"""Topic, partition, and what becomes of its marker."""


async def handle(call: Call[WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
    request = call.request
    if not call.session.principal.is_broker:
        return WriteTxnMarkersResponse([await _administered(call, marker) for marker in request.markers])
    if (refused := call.broker.introductions.refusal(call.session.principal)) is not None:
        return WriteTxnMarkersResponse([_refused(marker, refused) for marker in request.markers])
    if not _is_from_now(call, request):
        call.services.connections.close(call.connection_id)
        return WriteTxnMarkersResponse([])
    # All of them are written before the first is waited for: one sync and one round of replication for the whole request.
    written = [_write(call, marker) for marker in request.markers]
    return WriteTxnMarkersResponse([await _answered(*each) for each in written])


async def _administered(
    call: Call[WriteTxnMarkersRequest], marker: WritableTxnMarker
) -> WritableTxnMarkerResult:
    """Aborts only: what is committed is decided by coordinators alone. An open broker has no administrators but everybody."""
    if marker.transaction_result:
        return _refused(marker, ErrorKind.CLUSTER_AUTHORIZATION_FAILED)
    topics = []
    pace = call.pace()
    async for topic in pace.over(marker.topics):
        rows = []
        async for number in pace.over(dict.fromkeys(topic.partition_indexes)):
            partition, error = call.broker.find_partition(topic.name, number)
            if partition is not None:
                error = await call.services.hanging.abort(
                    partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                )
            rows.append(WritableTxnMarkerPartitionResult(number, error.kafka_code))
        topics.append(WritableTxnMarkerTopicResult(topic.name, rows))
    return WritableTxnMarkerResult(marker.producer_id, topics)


def _refused(marker: WritableTxnMarker, kind: ErrorKind) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(number, kind.kafka_code)
                    for number in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _is_from_now(call: Call[WriteTxnMarkersRequest], request: WriteTxnMarkersRequest) -> bool:
    if not call.services.connections.marker_senders.admit(str(call.session.principal), call.connection_id):
        return False
    return all(
        call.services.connections.leaderships.admits(TopicPartition(topic.name, number), call.connection_id)
        for marker in request.markers
        for topic in marker.topics
        for number in topic.partition_indexes
    )


def _write(call: Call[WriteTxnMarkersRequest], marker: WritableTxnMarker) -> tuple[int, list[Row]]:
    rows: list[Row] = []
    for topic in marker.topics:
        for number in topic.partition_indexes:
            future: asyncio.Future[ErrorKind] = asyncio.get_running_loop().create_future()
            partition, missing = call.broker.find_partition(topic.name, number)
            if partition is None:
                future.set_result(missing)
            else:
                call.services.markers.write(
                    partition,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    marker.transaction_result,
                    setter(future),
                )
            rows.append((topic.name, number, future))
    return marker.producer_id, rows


async def _answered(producer_id: int, rows: list[Row]) -> WritableTxnMarkerResult:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for name, number, future in rows:
        result = WritableTxnMarkerPartitionResult(number, (await future).kafka_code)
        topics.setdefault(name, []).append(result)
    return WritableTxnMarkerResult(
        producer_id, [WritableTxnMarkerTopicResult(name, results) for name, results in topics.items()]
    )
