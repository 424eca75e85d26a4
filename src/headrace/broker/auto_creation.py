"""Machine: how many topics may come to be because somebody named them (A4).

A typo, a pattern that was expanded wrongly or a scan makes a topic of each name. Each address has an allowance that fills up again
with time; who has spent it is told to come back, and the topic is made then.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import AUTO_CREATED_PER_SECOND, AUTO_CREATED_TOPICS

_MAX_ADDRESSES = 1_000


class AutoCreation:
    def __init__(
        self, is_allowed: bool, at_once: int = AUTO_CREATED_TOPICS, per_second: int = AUTO_CREATED_PER_SECOND
    ) -> None:
        self.is_allowed = is_allowed
        """Whether a topic or queue is made because somebody names it."""
        self._at_once = at_once
        self._per_second = per_second
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By address: what was left, and when."""

    def demand(self, address: str, now_ms: int) -> None:
        """As `take`, for doors that have an error for it."""
        if not self.take(address, now_ms):
            raise HeadraceError(
                ErrorKind.THROTTLING_QUOTA_EXCEEDED,
                "too many topics and queues have just been made by naming them",
                "Wait a second and send it again, or make what you need with POST /api/v1/topics or /api/v1/queues.",
            )

    def take(self, address: str, now_ms: int) -> bool:
        """Whether one more may be made now."""
        left, since_ms = self._left.pop(address, (float(self._at_once), now_ms))
        left = min(float(self._at_once), left + (now_ms - since_ms) * self._per_second / 1000)
        allowed = left >= 1
        self._left[address] = (left - 1 if allowed else left), now_ms
        if len(self._left) > _MAX_ADDRESSES:
            self._left.popitem(last=False)
        return allowed
