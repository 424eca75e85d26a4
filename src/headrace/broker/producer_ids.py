"""Driver: producer ids for idempotent producers, out of blocks reserved before use (R37)."""

from __future__ import annotations

import asyncio
import logging

from headrace.broker.metadata import Decision, Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster.membership import reserve_producer_ids
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.transactions.producer_ids import ProducerIdAllocator, ProducerIdBlock

log = logging.getLogger(__name__)


class ProducerIds:
    def __init__(self, runtime: Runtime, metadata: Metadata, broker_id: int) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._broker_id = broker_id
        self._ids = ProducerIdAllocator()
        self._turn = asyncio.Lock()

    async def take(self) -> int:
        while (producer_id := self._ids.take()) is None:
            await self._refill()
        if self._ids.wants_block and not self._turn.locked():
            self._runtime.spawn(self._refill_ahead(), "reserve producer ids")
        return producer_id

    async def _refill_ahead(self) -> None:
        try:
            await self._refill()
        except HeadraceError as problem:
            log.info("producer ids will be reserved when they are needed: %s", problem)

    async def _refill(self) -> None:
        async with self._turn:
            if self._ids.wants_block:
                self._ids.add_block(
                    await self._metadata.compare_and_swap(
                        self._reserve, "the producer ids", contended=ErrorKind.COORDINATOR_NOT_AVAILABLE
                    )
                )

    async def _reserve(self) -> Decision[ProducerIdBlock]:
        image = self._metadata.image
        node = image.broker(self._broker_id)
        if node is None:
            raise HeadraceError(
                ErrorKind.COORDINATOR_NOT_AVAILABLE, "no block of producer ids could be reserved"
            )
        # A coordinator that was restored from a backup must not make us hand out an id twice.
        block = reserve_producer_ids(image, self._broker_id, node.epoch, above=self._ids.highest)
        return Decision((block.change,), ProducerIdBlock(block.first, block.count))
