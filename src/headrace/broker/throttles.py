"""Driver: replication throttles (KIP-73): how fast replicas that have fallen behind, or are new, may catch up.

A topic names the replicas (`…replication.throttled.replicas`), a broker has the rate. Replicas in sync are never held back:
acks=all waits for them. A read takes a second's worth at most, or one batch, and is paid for afterwards, so that a
large batch is not stuck.
"""

from __future__ import annotations

from headrace.broker.runtime import Runtime
from headrace.cluster.config_keys import ConfigKey
from headrace.cluster.image import ClusterImage
from headrace.core.limits import MAX_FETCH_BYTES


class ReplicationThrottle:
    def __init__(self, runtime: Runtime, image: ClusterImage, rate: ConfigKey) -> None:
        self._clock = runtime.clock
        self._image = image
        self._rate = rate
        self._paid_at_ms = 0.0

    def names(self, replicas: tuple[str, ...], partition: int) -> bool:
        """Whether a topic's list has this broker's replica of a partition."""
        return replicas == ("*",) or f"{partition}:{self._image.broker_id}" in replicas

    @property
    def is_spent(self) -> bool:
        return self._clock.now_ms() < self._paid_at_ms

    @property
    def most_bytes(self) -> int:
        """Of one read."""
        return int(min(self._image.number_config(self._rate), MAX_FETCH_BYTES))

    def spend(self, byte_count: int) -> None:
        cost_ms = byte_count * 1000 / self._image.number_config(self._rate)
        self._paid_at_ms = max(self._paid_at_ms, float(self._clock.now_ms())) + cost_ms
