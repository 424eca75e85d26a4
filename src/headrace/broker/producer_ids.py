"""Driver: producer ids for idempotent producers, out of blocks reserved before use (R37)."""

from __future__ import annotations

import asyncio

from headrace.broker.metadata import Metadata
from headrace.cluster.membership import reserve_producer_ids
from headrace.core.errors import ErrorKind, HeadraceError

ATTEMPTS = 10


class ProducerIds:
    def __init__(self, metadata: Metadata, broker_id: int) -> None:
        self._metadata = metadata
        self._broker_id = broker_id
        self._next = self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> int:
        async with self._turn:
            if self._next == self._end:
                await self._reserve()
            self._next += 1
            return self._next - 1

    async def _reserve(self) -> None:
        for _ in range(ATTEMPTS):
            image = self._metadata.image
            node = image.broker(self._broker_id)
            if node is None:
                break
            block = reserve_producer_ids(image, self._broker_id, node.epoch)
            result = await self._metadata.commit(block.change)
            if result.succeeded:
                self._next, self._end = block.first, block.first + block.count
                return
        raise HeadraceError(ErrorKind.COORDINATOR_NOT_AVAILABLE, "no block of producer ids could be reserved")
