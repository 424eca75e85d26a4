"""Machine: how long this process may believe that its lease is alive (R7).

The coordinator counts a renewal from when it received it; we count from when we sent it, less a margin, so our belief
always ends first. `now_ms` must be a clock that runs while the host sleeps (CLOCK_BOOTTIME). The belief decides when to
stop serving; it never makes a write legal (R8).
"""

from __future__ import annotations

from headrace.coordinator.port import KeyLease


class LeaseTerm:
    __slots__ = ("_margin_ms", "_sent_ms", "deadline_ms", "lease_id", "lost", "ttl_ms")

    def __init__(self, lease: KeyLease, sent_ms: int, *, margin_ms: int | None = None) -> None:
        self.lease_id = lease.id
        self.ttl_ms = lease.ttl_ms
        self._margin_ms = lease.ttl_ms // 10 if margin_ms is None else margin_ms
        self._sent_ms = sent_ms
        self.deadline_ms = sent_ms + self.ttl_ms - self._margin_ms
        """Kept, not computed: it is asked on every produce."""
        self.lost = False
        """The coordinator said that the lease is gone; this term never holds again."""

    def answered(self, sent_ms: int, remaining_ms: int) -> None:
        """A keep-alive sent at `sent_ms` was answered. Answers may come out of order; the latest sending counts."""
        if remaining_ms <= 0:
            self.lost = True
        else:
            self._sent_ms = max(self._sent_ms, sent_ms)
            self.deadline_ms = self._sent_ms + self.ttl_ms - self._margin_ms

    def holds(self, now_ms: int) -> bool:
        return not self.lost and now_ms < self.deadline_ms

    @property
    def keep_alive_at_ms(self) -> int:
        """When the next keep-alive is due: a third of the time to live, so that two may fail."""
        return self._sent_ms + self.ttl_ms // 3

    @property
    def keep_alive_timeout_ms(self) -> int:
        return self.ttl_ms // 3
