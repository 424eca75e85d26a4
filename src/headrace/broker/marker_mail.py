"""Driver: markers on their way to other brokers: what waits for one broker travels in one request.

One request per broker is under way at a time; what is decided meanwhile goes with the next one, so under load a request
carries many transactions and an idle coordinator waits for nothing. Whoever sent a marker hears which of its partitions
have it, in any case; the others are sent again, over another connection when this one broke (R47, R49).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.broker.peer import PeerLost
from headrace.broker.peers import Peers
from headrace.broker.runtime import Runtime
from headrace.core.errors import ErrorKind
from headrace.core.ids import TopicPartition
from headrace.transactions.commands import SendMarkers
from headrace.wire.api import ApiKey
from headrace.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger(__name__)

VERSION = 1
MAX_MARKERS = 500
"""In one request: its answer waits for all of them to be committed."""

Settled = Callable[[TopicPartition, ErrorKind], bool]


class _Letter(NamedTuple):
    marker: WritableTxnMarker
    written: asyncio.Future[list[TopicPartition]]


class MarkerMail:
    def __init__(self, runtime: Runtime, peers: Peers, settled: Settled, answer_s: float) -> None:
        """`settled` says whether what a partition answered means that it needs no marker any more."""
        self._runtime = runtime
        self._peers = peers
        self._settled = settled
        self._answer_s = answer_s
        self._waiting: dict[int, list[_Letter]] = {}
        """Per broker; there while a request to it is under way, and then perhaps empty."""

    async def send(
        self, broker_id: int, effect: SendMarkers, partitions: Sequence[TopicPartition]
    ) -> list[TopicPartition]:
        """Those that need it no more. The rest has to be tried again."""
        topics: dict[str, list[int]] = {}
        for tp in partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        marker = WritableTxnMarker(
            effect.producer_id,
            effect.producer_epoch,
            effect.commit,
            [WritableTxnMarkerTopic(name, numbers) for name, numbers in topics.items()],
            effect.coordinator_epoch,
        )
        letter = _Letter(marker, asyncio.get_running_loop().create_future())
        waiting = self._waiting.get(broker_id)
        if waiting is None:
            self._waiting[broker_id] = [letter]
            self._runtime.spawn(self._carry(broker_id), f"markers to broker {broker_id}")
        else:
            waiting.append(letter)
        return await letter.written

    async def _carry(self, broker_id: int) -> None:
        waiting, letters = self._waiting[broker_id], list[_Letter]()
        try:
            while waiting:
                letters = [letter for letter in waiting[:MAX_MARKERS] if not letter.written.done()]
                del waiting[:MAX_MARKERS]
                if not letters:
                    continue  # their loads ended while they waited (F4)
                answers = await self._ask(broker_id, [letter.marker for letter in letters])
                for letter, answer in zip(letters, answers, strict=True):
                    if not letter.written.done():
                        letter.written.set_result(self._written(answer))
        finally:
            del self._waiting[broker_id]
            # Whatever ended this, nobody waits for an answer that does not come: they send theirs again (F17).
            for letter in (*letters, *waiting):
                if not letter.written.done():
                    letter.written.set_result([])

    async def _ask(
        self, broker_id: int, markers: list[WritableTxnMarker]
    ) -> Sequence[WritableTxnMarkerResult | None]:
        """An answer for each marker, in order; None for those that nobody answered."""
        try:
            response: WriteTxnMarkersResponse = await self._peers.call(
                broker_id, ApiKey.WRITE_TXN_MARKERS, VERSION, WriteTxnMarkersRequest(markers), self._answer_s
            )
        except PeerLost as problem:
            log.info("markers to broker %d: %s", broker_id, problem.detail)
            return [None] * len(markers)
        complete = len(response.markers) == len(
            markers
        )  # a broker that does not hear us answers nothing at all
        return response.markers if complete else [None] * len(markers)

    def _written(self, answer: WritableTxnMarkerResult | None) -> list[TopicPartition]:
        if answer is None:
            return []
        rows = [
            (TopicPartition(topic.name, row.partition_index), ErrorKind(row.error_code))
            for topic in answer.topics
            for row in topic.partitions
        ]
        return [tp for tp, kind in rows if self._settled(tp, kind)]
