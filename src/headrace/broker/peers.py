"""Driver: questions to other brokers over one connection each, opened when needed and again when it broke."""

from __future__ import annotations

from typing import Any

from headrace.broker.peer import PeerConnection, PeerLost
from headrace.cluster.image import ClusterImage

CALL_S = 5.0


class Peers:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._connections: dict[tuple[int, int], PeerConnection] = {}

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
            host, port = node.registration.host, node.registration.port
            connection = await PeerConnection.open(host, port, f"broker-{self._image.broker_id}")
            self._connections[place] = connection
        return await connection.call(key, version, request, seconds)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
