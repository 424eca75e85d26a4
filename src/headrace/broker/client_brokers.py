"""Driver: whom clients are told of. Never nobody: a client that is told of no broker forgets all of them (F19).

When the coordinator was away for longer than the leases, it comes back without a single registration, and for some moments
nobody is in the cluster. The brokers are all there, though. So a broker that has lost its place goes on naming itself and those
it knew then, until a while after it has it back: the others may need a moment longer.

A broker that went is named for as long as Kafka would (its session takes 9 s to end), although its partitions have new leaders after
a tenth of a second. librdkafka 2.10 and later takes apart everything it has of a broker that is not named, and a transaction's
call that was waiting for it then never returns (its issues 5456 and 5511); most brokers that go are back before that.
"""

from __future__ import annotations

from headrace.broker.liveness import Liveness
from headrace.cluster.deltas import BrokerDown, BrokerRegistered, BrokerUp, Delta
from headrace.cluster.image import ClusterImage
from headrace.cluster.rows import BrokerNode
from headrace.core.ports import Clock

LINGER_MS = 10_000


class ClientBrokers:
    def __init__(self, image: ClusterImage, clock: Clock, liveness: Liveness) -> None:
        self._liveness = liveness
        self._image = image
        self._clock = clock
        self._live: dict[int, BrokerNode] = {}
        self._left: dict[int, tuple[BrokerNode, int]] = {}
        """Those who went lately, and when."""
        self._remembered: dict[int, BrokerNode] = {}
        """Whom we knew when we lost our own place."""
        self._forget_ms: int | None = None

    def heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, (BrokerUp, BrokerDown, BrokerRegistered)) for delta in deltas):
            self._look()

    def _look(self) -> None:
        now_ms, me = self._clock.now_ms(), self._image.broker_id
        before, self._live = self._live, {node.id: node for node in self._image.live_brokers()}
        gone = {number: (node, now_ms) for number, node in before.items() if number not in self._live}
        self._left = {
            number: left
            for number, left in {**self._left, **gone}.items()
            if now_ms - left[1] < LINGER_MS and number not in self._live
        }
        if me in gone:
            self._remembered = {number: node for number, (node, _) in self._left.items()} | self._live
            self._forget_ms = None
        elif me in self._live and me not in before:
            self._forget_ms = now_ms + LINGER_MS

    def now(self) -> list[BrokerNode]:
        """Every broker that lives or went just now, and never nobody. Sorted, so that nothing moves without a reason."""
        live = {node.id: node for node in self._image.live_brokers()}
        if self._liveness.is_stopping and live:
            return [live[number] for number in sorted(live)]
        now_ms = self._clock.now_ms()
        if self._forget_ms is not None and now_ms >= self._forget_ms:
            self._remembered, self._forget_ms = {}, None
        lately = {number: node for number, (node, at) in self._left.items() if now_ms - at < LINGER_MS}
        named = self._remembered | lately | live
        me = self._image.broker(self._image.broker_id)
        if not named and me is not None:
            named = {me.id: me}
        return [named[number] for number in sorted(named)]
