"""Driver: questions to other brokers over one connection each, opened when needed and again when it broke."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.cluster.image import ClusterImage

CALL_S = 5.0


class Peers:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._connections: dict[tuple[int, int], PeerConnection] = {}
        self._opening: dict[tuple[int, int], asyncio.Future[PeerConnection]] = {}

    async def call(
        self, broker_id: int, key: int, version: int, request: object, seconds: float = CALL_S
    ) -> Any:
        """Raises PeerLost when the answer did not come; whether the request was carried out is then unknown."""
        node = self._image.broker(broker_id)
        if node is None:
            raise PeerLost(f"broker {broker_id} is not registered")
        # A broker that came back has another epoch, and its old connections are dead.
        place = (broker_id, node.epoch)
        connection = self._connections.get(place)
        if connection is None or connection.closed.done():
            connection = await self._open(place, node.registration.host, node.registration.port)
        return await connection.call(key, version, request, seconds)

    async def _open(self, place: tuple[int, int], host: str, port: int) -> PeerConnection:
        """Whoever asks while it is being opened gets the same one: two at a time would speak over each other (R47)."""
        opening = self._opening.get(place)
        if opening is None:
            client_id = f"broker-{self._image.broker_id}"
            opening = asyncio.ensure_future(PeerConnection.open(host, port, client_id))
            self._opening[place] = opening
            opening.add_done_callback(lambda _: self._opening.pop(place, None))
        connection = await asyncio.shield(opening)
        self._connections[place] = connection
        return connection

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
