"""Machine: what an answer means: for the message, for the endpoint, and for the webhook."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

NO_ANSWER = 0

GONE = 410
TOO_MANY = 429
UNAVAILABLE = 503
_MESSAGE_FAULTS = frozenset({400, 405, 406, 409, 411, 412, 413, 414, 415, 416, 422, 428, 431})
"""The endpoint works and does not want this message: others may fare better, so the circuit stays closed."""


class PushOutcome(Enum):
    DELIVERED = "delivered"
    FAILED = "failed"
    """To be tried again, until the queue's own limit sends it to the dead letters."""
    GONE = "gone"
    """410: the webhook is disabled; the message goes back to its queue."""
    REFUSED = "refused"
    """Not sent: the address is not one a webhook may reach (X22)."""


class PushVerdict(NamedTuple):
    outcome: PushOutcome
    endpoint_failed: bool
    """Counts for the circuit and against the concurrency."""


def judge(status: int) -> PushVerdict:
    """2xx is an acknowledgement and nothing else is: redirects are not followed (X22)."""
    if 200 <= status < 300:
        return PushVerdict(PushOutcome.DELIVERED, False)
    if status == GONE:
        return PushVerdict(PushOutcome.GONE, False)
    return PushVerdict(PushOutcome.FAILED, status not in _MESSAGE_FAULTS)


def why(status: int) -> str:
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed"
    return f"answered {status}"


def honours_retry_after(status: int) -> bool:
    return status in (TOO_MANY, UNAVAILABLE)
