"""Kernel: cron expressions: arithmetic on the calendar (UTC), given the time. Nothing here looks at a clock."""

from __future__ import annotations

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from headrace.core.errors import ErrorKind, HeadraceError


def next_tick_ms(cron: str, after_ms: int) -> int:
    """The first tick after a time, in UTC. Raises INVALID_REQUEST for what is no cron expression."""
    try:
        return int(next(CronSim(cron, datetime.fromtimestamp(after_ms / 1000, UTC))).timestamp() * 1000)
    except (CronSimError, StopIteration, OverflowError, ValueError):
        raise HeadraceError(
            ErrorKind.INVALID_REQUEST, f"{cron!r} is not a cron expression such as */5 * * * *"
        ) from None
