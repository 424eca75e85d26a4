"""Driver: questions to other brokers over one connection each, opened when needed and again when it broke."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.introductions import Introductions
from headrace.broker.peer import PeerConnection, PeerLost
from headrace.cluster.image import ClusterImage

Place = tuple[int, int, int]

CALL_S = 5.0


class Peers:
    def __init__(self, image: ClusterImage, introductions: Introductions) -> None:
        self._image = image
        self._introductions = introductions
        self._connections: dict[Place, PeerConnection] = {}
        self._opening: dict[Place, asyncio.Future[PeerConnection]] = {}

    async def call(
        self, broker_id: int, key: int, version: int, request: object, seconds: float = CALL_S
    ) -> Any:
        """Raises PeerLost when the answer did not come; whether the request was carried out is then unknown."""
        node = self._image.broker(broker_id)
        if node is None:
            raise PeerLost(f"broker {broker_id} is not registered")
        # Of two lives: a broker that came back, or we when we registered again, proves itself anew.
        place = (broker_id, node.epoch, self._introductions.broker_epoch)
        connection = self._connections.get(place)
        if connection is None or connection.closed.done():
            connection = await self._open(place)
        return await connection.call(key, version, request, seconds)

    async def _open(self, place: Place) -> PeerConnection:
        """Whoever asks while it is being opened gets the same one: two at a time would speak over each other (R47)."""
        opening = self._opening.get(place)
        if opening is None:
            self._close_earlier(place)
            opening = asyncio.ensure_future(self._introductions.connect(place[0]))
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        connection = await asyncio.shield(opening)
        self._connections[place] = connection
        return connection

    def _close_earlier(self, place: Place) -> None:
        for earlier in [held for held in self._connections if held[0] == place[0]]:
            self._connections.pop(earlier).close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
