"""Machine: how far one follower has come, as its leader sees it in the current leader epoch.

Invariant: what is known of a follower was learnt from fetches it made in this leader epoch and in one life of its
broker; a new life forgets all of it (R12, R14).
"""

from __future__ import annotations

UNKNOWN = -1


class ReplicaProgress:
    __slots__ = (
        "_fetched_at_ms",
        "_leader_end_then",
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
    )

    def __init__(self, now_ms: int) -> None:
        self.broker_epoch = UNKNOWN
        """The life of the broker these numbers belong to."""
        self.end_offset = UNKNOWN
        """It holds everything below; UNKNOWN until its first fetch in this epoch."""
        self.caught_up_ms = now_ms
        """When it last had everything we had: the benefit of the doubt at first (R15)."""
        self._fetched_at_ms = now_ms
        self._leader_end_then = UNKNOWN

    @property
    def has_fetched(self) -> bool:
        return self.end_offset != UNKNOWN

    def fetched(self, offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if broker_epoch != self.broker_epoch:
            self.forget(broker_epoch)
        self.end_offset = offset
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif self._leader_end_then != UNKNOWN and offset >= self._leader_end_then:
            # It has all we had at its last fetch: a steady stream of appends does not make it look slow.
            self.caught_up_ms = max(self.caught_up_ms, self._fetched_at_ms)
        self._leader_end_then = leader_end
        self._fetched_at_ms = now_ms

    def forget(self, broker_epoch: int) -> None:
        """A new life of the broker: it may have lost what the old one had."""
        self.broker_epoch = broker_epoch
        self.end_offset = UNKNOWN
        self._leader_end_then = UNKNOWN

    def is_too_slow(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.end_offset != leader_end and now_ms - self.caught_up_ms > lag_max_ms

    def excuse(self, now_ms: int) -> None:
        """R15: time in which we did not listen does not count against it."""
        self.caught_up_ms = self._fetched_at_ms = now_ms
