"""Driver: the board on which pipelines say how they are, and on which they are asked to stop: a compacted topic.

    key    "orders-archive"         value  {"state": "running", "records": …, "lag": …, "updated_ms": …, …}
    key    "orders-archive/stop"    value  {"run": "…"}

A topic of its own and not a group's metadata, so that what a pipeline is (kind, path, host) can be read by the
CLI and `headrace sql` with one short fetch, and so that a stopped one is remembered. Client-writable, so not `__…`.
"""

from __future__ import annotations

import json
import time
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.pipelines import BOARD, on_the_board
from headrace.records.build import Record, build_batch
from headrace.records.read import read_records
from headrace.spark.fetching import fetch_range
from headrace.spark.plan import OffsetRange
from headrace.spark.producer import Producer, idempotent_producer
from headrace.spark.sync_client import EARLIEST, LATEST, READ_COMMITTED, SyncClient

_TP = TopicPartition(BOARD, 0)
_MAX_BATCH = 16 << 20
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.3"}
"""Small segments: only what is not being written to is compacted, and everybody who looks reads all of the rest."""


class PipelineBoard:
    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._entries: dict[str, dict[str, Any]] = {}
        self._position = -1
        self._producer: Producer | None = None

    def post(self, key: str, entry: dict[str, Any]) -> None:
        self._put([Record(key.encode(), json.dumps(entry).encode())])

    def forget(self, name: str) -> None:
        """As if it had never said anything."""
        if name in self.read():
            self._put([Record(key.encode(), None) for key in (name, f"{name}/stop")])

    def _put(self, records: list[Record]) -> None:
        if BOARD not in self._client.topics([BOARD]):
            self._client.create_topic(BOARD, 1, _CONFIGS)
            self._client.topic(BOARD)
        producer = self._producer or idempotent_producer(self._client)
        self._producer = None
        batch = build_batch(
            records,
            wall_ms=int(time.time() * 1000),
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            base_sequence=producer.next_sequence(_TP, len(records)),
        )
        producer.send(_TP, batch)
        producer.flush()
        # Only what ended well is kept: asking for an id costs the cluster a synced write.
        self._producer = producer

    def read(self) -> dict[str, dict[str, Any]]:
        """Every entry, reading only what is new since the last call."""
        if BOARD not in self._client.topics([BOARD]):
            return {}
        end = self._client.list_offsets({_TP: LATEST})[_TP]
        if self._position < 0:
            self._position = self._client.list_offsets({_TP: EARLIEST})[_TP]
        wanted = OffsetRange(*_TP, self._position, end)
        for piece in fetch_range(
            self._client, wanted, isolation=READ_COMMITTED, fail_on_data_loss=False, max_bytes=1 << 20
        ):
            for position, _ in piece.batches:
                for record in read_records(piece.buffer, position, max_bytes=_MAX_BATCH):
                    self._learn(record)
        self._position = max(self._position, end)
        return self._entries

    def _learn(self, record: Record) -> None:
        key = (record.key or b"").decode(errors="replace")
        if record.value is None:
            self._entries.pop(key, None)
            return
        try:
            entry = json.loads(record.value)
        except ValueError:
            return
        if isinstance(entry, dict):
            self._entries[key] = entry

    def pipelines(self, wall_ms: int) -> dict[str, dict[str, Any]]:
        """Name -> what it last said. One that says it is there but has been silent for a minute is lost."""
        return on_the_board(self.read(), wall_ms)

    def ask_to_stop(self, name: str, run: str) -> None:
        self.post(f"{name}/stop", {"run": run})

    def is_asked_to_stop(self, name: str, run: str) -> bool:
        try:
            return self.read().get(f"{name}/stop", {}).get("run") == run
        except HeadraceError:
            return False
