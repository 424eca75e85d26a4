"""Driver: positions that do not expire: a compacted topic beside the data, written in the transaction that it speaks of.

    key  "mirror/orders/orders-3"     value  {"offset": 120, "topic_id": "6f…", "skipped": 0}

The offsets of a group without members are forgotten after a week (offsets.retention.minutes), on every Kafka: a mirror that was
quiet for so long would copy everything again, and a batch write with a `sinkId` would write again. Records of a compacted topic
stay.

Invariant: `read` sees the last committed entry of its key. It does not stop at the last stable offset, because the open
transaction of somebody else may hold that up for minutes: it reads everything and follows the markers. The fate of our own
entries is known, because whoever reads has claimed the transactional id that wrote them.
"""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

from headrace.core.ids import TopicPartition
from headrace.records.build import Record, build_batch
from headrace.records.read import read_control, read_records
from headrace.spark.fetching import fetch_range
from headrace.spark.plan import OffsetRange
from headrace.spark.sync_client import EARLIEST, LATEST, READ_UNCOMMITTED, SyncClient
from headrace.spark.transactions import SinkTransaction

LEDGER = "_headrace_positions"
_PARTITIONS = 8
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.3"}
_MAX_BATCH = 1 << 20


def ledger_partition(key: str) -> TopicPartition:
    return TopicPartition(LEDGER, zlib.crc32(key.encode()) % _PARTITIONS)


def ensure_ledger(client: SyncClient) -> None:
    if not client.knows(LEDGER) and LEDGER not in client.topics([LEDGER]):
        client.create_topic(LEDGER, _PARTITIONS, _CONFIGS)
        client.topic(LEDGER)


def enter(transaction: SinkTransaction, key: str, entry: dict[str, Any]) -> None:
    """The entry becomes the last of its key when, and only when, the transaction commits."""
    tp = ledger_partition(key)
    transaction.add_partitions([tp])
    producer = transaction.producer
    batch = build_batch(
        [Record(key.encode(), json.dumps(entry).encode())],
        wall_ms=int(time.time() * 1000),
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        base_sequence=producer.next_sequence(tp, 1),
        transactional=True,
    )
    producer.send(tp, batch)


def read(client: SyncClient, key: str) -> dict[str, Any] | None:
    """The last committed entry. The caller has claimed the transactional id under which the key is written."""
    tp, wanted = ledger_partition(key), key.encode()
    ensure_ledger(client)
    first = client.list_offsets({tp: EARLIEST})[tp]
    end = client.list_offsets({tp: LATEST}, READ_UNCOMMITTED)[tp]
    undecided: dict[int, bytes] = {}
    found: bytes | None = None
    pieces = fetch_range(
        client, OffsetRange(*tp, first, end), isolation=READ_UNCOMMITTED, fail_on_data_loss=False,
        max_bytes=4 << 20, markers=True,
    )  # fmt: skip
    for piece in pieces:
        for position, header in piece.batches:
            if header.is_control:
                marker = read_control(piece.buffer, position)
                entry = undecided.pop(header.producer_id, None) if marker is not None else None
                if entry is not None and marker is not None and marker.commit:
                    found = entry
                continue
            for record in read_records(piece.buffer, position, max_bytes=_MAX_BATCH):
                if record.key == wanted and record.value is not None:
                    undecided[header.producer_id] = bytes(record.value)
    return None if found is None else json.loads(found)
