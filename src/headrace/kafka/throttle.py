"""Door: what a request costs its client, when there are quotas: bytes in, bytes out, and our time (KIP-13, KIP-124, KIP-219).

Over a quota nothing is refused: the answer says how long to wait, and the connection is not heard until then.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from headrace.broker.fetch import Got
from headrace.cluster.quotas import CONSUMED, PRODUCED, REQUESTS, Quotas
from headrace.kafka.connection import Connection
from headrace.wire.framing import RequestHeader
from headrace.wire.produce import ProduceRequest


def throttle_produce(
    quotas: Quotas, connection: Connection, header: RequestHeader, request: ProduceRequest
) -> int:
    size = sum(
        len(records) for topic in request.topics for _, records in topic.partitions if records is not None
    )
    return _charge(quotas, connection, PRODUCED, header.client_id or "", size)


def throttle_fetch(quotas: Quotas, connection: Connection, header: RequestHeader, results: list[Got]) -> int:
    size = sum(len(got.data) for got in results if got.data)
    return _charge(quotas, connection, CONSUMED, header.client_id or "", size)


def _charge(quotas: Quotas, connection: Connection, key: str, client_id: str, amount: float) -> int:
    principal = connection.session.principal
    if principal.is_broker:
        return 0  # the cluster's own work; a client id proves nothing
    now_ms = connection.server.clock.now_ms()
    throttle_ms = quotas.take(key, principal.name, client_id, amount, now_ms)
    if throttle_ms:
        connection.mute(throttle_ms)
    return throttle_ms


class TimedRequest:
    """Counts the time between here and the end of the block: what one request kept us from doing for others."""

    __slots__ = ("_connection", "_quotas", "_started_s", "client_id")

    def __init__(self, quotas: Quotas, connection: Connection) -> None:
        self._quotas = quotas
        self._connection = connection
        self._started_s = 0.0
        self.client_id = ""

    def __enter__(self) -> TimedRequest:
        self._started_s = asyncio.get_running_loop().time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent_ms = (asyncio.get_running_loop().time() - self._started_s) * 1000
        _charge(self._quotas, self._connection, REQUESTS, self.client_id, spent_ms)
