"""Driver: how hard this broker works, looked at once a second for whoever looks at the cluster: what /metrics has as counters, as numbers of now."""

from __future__ import annotations

import os
from collections import deque

from headrace.broker.flusher import Flusher
from headrace.broker.history import BrokerNow
from headrace.core.ports import Clock
from headrace.node.health import Health

WINDOW = 60
"""Looks that a share of the worst is taken of."""


class Vitals:
    def __init__(
        self, clock: Clock, health: Health, flusher: Flusher, now: BrokerNow, coordinator: str, version: str
    ) -> None:
        self._clock = clock
        self._health = health
        self._flusher = flusher
        self._now = now
        now.coordinator, now.version, now.began_ms = coordinator, version, clock.wall_ms()
        self._looked_ms, self._cpu_s = clock.now_ms(), _cpu_s()
        self._syncs: deque[list[int]] = deque(maxlen=WINDOW)

    def note(self) -> None:
        now = self._now
        now_ms, cpu_s = self._clock.now_ms(), _cpu_s()
        if now_ms > self._looked_ms:
            now.cpu = round((cpu_s - self._cpu_s) * 1000 / (now_ms - self._looked_ms), 3)
        self._looked_ms, self._cpu_s = now_ms, cpu_s
        housekeeping, membership = self._health.housekeeping, self._health.membership
        now.loop_lag_ms = 0 if housekeeping is None else housekeeping.worst_lag_ms
        now.coordinator_silence_ms = 0 if membership is None else membership.silence_ms()
        seconds = self._flusher.seconds
        self._syncs.append(list(seconds.counts))
        newest, oldest = self._syncs[-1], self._syncs[0]
        now.sync_p99_ms = quantile_ms(
            seconds.bounds, [new - old for new, old in zip(newest, oldest, strict=True)]
        )


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def quantile_ms(bounds: tuple[float, ...], counts: list[int], share: float = 0.99) -> float | None:
    """At most so many milliseconds: the bound of the bucket; None where there was nothing."""
    left = sum(counts) * share
    if not left:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        left -= count
        if left <= 0:
            return bound * 1000
    return bounds[-1] * 1000
