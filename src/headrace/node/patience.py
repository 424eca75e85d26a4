"""Driver: a broker that starts while something it needs is away waits for it, and says so: in the log, and on /readyz."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.broker.metadata import Metadata
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.log.parts import FULL_DISK
from headrace.node.health import Health

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
SAY_AGAIN = 30
"""Every so many tries: a minute."""
LOOK_S = 10.0


class Patience:
    def __init__(self, health: Health) -> None:
        self._health = health

    async def wait_for(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Until `attempt` is not refused by a coordinator that is away or a disk that is full. Anything else it raises is raised."""
        pause_s, tries = FIRST_PAUSE_S, 0
        while True:
            try:
                result = await attempt()
                break
            except (CoordinatorError, HeadraceError, OSError) as problem:
                if not _passes(problem):
                    raise
                self._say(f"waiting until {what}: {problem}", tries)
            await asyncio.sleep(pause_s)
            pause_s, tries = min(LONGEST_PAUSE_S, pause_s * 2), tries + 1
        self._over(what, tries)
        return result

    async def wait_until(self, what: str, metadata: Metadata, condition: Callable[[], bool]) -> None:
        """Until the image of the cluster is as `condition` wants it."""
        tries = 0
        while True:
            try:
                await metadata.wait_until(condition, LOOK_S)
                break
            except HeadraceError:
                self._say(f"waiting until {what}", tries * 5)
                tries += 1
        self._over(what, tries)

    def _say(self, text: str, tries: int) -> None:
        self._health.phase = f"starting: {text}"
        if tries % SAY_AGAIN == 0:
            log.warning("%s", text)

    def _over(self, what: str, tries: int) -> None:
        self._health.phase = "starting"
        if tries:
            log.warning("going on: %s", what)


def _passes(problem: Exception) -> bool:
    """Whether it is worth waiting for."""
    if isinstance(problem, HeadraceError):
        return problem.kind is ErrorKind.BROKER_NOT_AVAILABLE
    return isinstance(problem, CoordinatorError) or getattr(problem, "errno", None) in FULL_DISK
