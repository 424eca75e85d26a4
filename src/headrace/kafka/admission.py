"""Driver: who may connect to the Kafka door, and who has to make room (X14).

Limits are broker configs that can be changed while the broker runs: `max.connections`, `max.connections.per.ip` and its overrides,
`max.connections.per.user` (asked when somebody has logged in), `max.connection.creation.rate`, `connections.max.idle.ms`. A door that is full is not a locked one: who connects takes the place of the
connection that has been idle for longest, of the same address where that has had its share, else of the address with the most. When
nobody is idle, a few reserved places are left for brokers: who sits there and does not prove to be one in time has to go.
Proven brokers never make room.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from headrace.cluster.broker_configs import (
    CONNECTIONS_MAX_IDLE_MS,
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    MAX_CONNECTIONS_PER_USER,
)
from headrace.cluster.configs import NO_LAYERS, BrokerLayers, broker_number, broker_value
from headrace.cluster.quotas import Bucket
from headrace.core.units import is_digits

if TYPE_CHECKING:
    from headrace.kafka.connection import Connection

RESERVED = 100
"""Places above all limits, for brokers that have not proved it yet."""
PROBATION_MS = 5_000
IDLE_MS = 1_000
"""Nothing asked for this long, and nothing to be answered: may be closed when another wants in."""
_CANDIDATES = 64


class ConnectionLimits(NamedTuple):
    """The configs, as numbers."""

    total: int
    per_host: int
    overrides: tuple[tuple[str, int], ...]
    per_user: int
    per_second: int
    idle_ms: int

    def of_host(self, host: str) -> int:
        return dict(self.overrides).get(host, self.per_host)


def read_limits(layers: BrokerLayers) -> ConnectionLimits:
    overrides = str(broker_value(MAX_CONNECTIONS_PER_IP_OVERRIDES, layers) or "")
    pairs = (pair.strip().rpartition(":") for pair in overrides.split(","))
    return ConnectionLimits(
        int(broker_number(MAX_CONNECTIONS, layers)),
        int(broker_number(MAX_CONNECTIONS_PER_IP, layers)),
        tuple((host, int(count)) for host, _, count in pairs if is_digits(count)),
        int(broker_number(MAX_CONNECTIONS_PER_USER, layers)),
        int(broker_number(MAX_CONNECTION_CREATION_RATE, layers)),
        int(broker_number(CONNECTIONS_MAX_IDLE_MS, layers)),
    )


class Admission:
    def __init__(self, layers: Callable[[], BrokerLayers]) -> None:
        self._layers = layers
        self._read = NO_LAYERS
        self._limits = read_limits(NO_LAYERS)
        self._held: dict[Connection, None] = {}
        self._per_host: Counter[str] = Counter()
        self._probation: OrderedDict[Connection, int] = OrderedDict()
        """In the reserved places, with the time by which they must be brokers."""
        self._candidates: list[Connection] = []
        """Idle when last looked for, longest first: looking through thousands for each newcomer would be an attack of its own."""
        self._bucket: Bucket | None = None
        self.evicted = 0

    @property
    def limits(self) -> ConnectionLimits:
        layers = self._layers()
        if layers != self._read:
            self._read = layers
            self._limits = read_limits(layers)
            self._bucket = None
        return self._limits

    def admit(self, connection: Connection, now_ms: int) -> bool:
        """Take it in. False: there is no room, not even reserved."""
        limits = self.limits
        host = connection.host
        if self._per_host[host] >= limits.of_host(host):
            fits = self._evict(now_ms, host)
        elif len(self._held) >= limits.total:
            fits = self._evict(now_ms, self._per_host.most_common(1)[0][0] if self._per_host else host)
        else:
            fits = True
        if fits:
            self._held[connection] = None
            self._per_host[host] += 1
            return True
        if limits.total == 0 or limits.of_host(host) == 0:
            return False
        while len(self._probation) >= RESERVED:
            # A broker needs milliseconds to prove itself. Who was there for longest has had more.
            longest, _ = self._probation.popitem(last=False)
            if not longest.is_broker:
                longest.close()
        self._probation[connection] = now_ms + PROBATION_MS
        return True

    def delay_ms(self, now_ms: int) -> int:
        """How long the newest connection has to wait for its first request to be heard: so many a second, not more."""
        if self._limits.per_second >= 2**31 - 1:
            return 0
        if self._bucket is None:
            self._bucket = Bucket(max(self._limits.per_second, 0.001), now_ms)
        return self._bucket.take(1, now_ms)

    def forget(self, connection: Connection) -> None:
        self._probation.pop(connection, None)
        self._leave(connection)

    def overdue(self, now_ms: int) -> list[Connection]:
        """Those in reserved places that are no brokers after all. Where there is room by now, they may stay."""
        for connection in [connection for connection in self._probation if connection.is_broker]:
            del self._probation[connection]
        late = [connection for connection, until_ms in self._probation.items() if until_ms <= now_ms]
        limits = self.limits
        for connection in list(late):
            if len(self._held) < limits.total and self._per_host[connection.host] < limits.of_host(
                connection.host
            ):
                del self._probation[connection]
                self._held[connection] = None
                self._per_host[connection.host] += 1
                late.remove(connection)
        return late

    def _leave(self, connection: Connection) -> None:
        if connection in self._held:
            del self._held[connection]
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                # Or a scan of addresses would grow this for ever.
                del self._per_host[connection.host]

    def _evict(self, now_ms: int, host: str) -> bool:
        """Close the connection of `host` that has been idle for longest."""
        for _ in range(2):
            while self._candidates:
                connection = self._candidates.pop(0)
                if connection in self._held and connection.host == host and self._is_idle(connection, now_ms):
                    self._leave(connection)
                    connection.close()
                    self.evicted += 1
                    return True
            idle = (
                connection
                for connection in self._held
                if connection.host == host and self._is_idle(connection, now_ms)
            )
            self._candidates = nsmallest(
                _CANDIDATES, idle, key=lambda connection: connection.idle_since_ms or 0
            )
        return False

    @staticmethod
    def _is_idle(connection: Connection, now_ms: int) -> bool:
        since_ms = connection.idle_since_ms
        return not connection.is_broker and since_ms is not None and now_ms - since_ms >= IDLE_MS
