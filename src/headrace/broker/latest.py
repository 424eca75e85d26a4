"""Driver: nobody is told from old news that something does not exist, or exists already (F34).

A change is answered when the broker that made it has it; the watch brings it to the others a moment later. So before a broker
says that it does not know a name, it asks the coordinator which revision is the latest, and waits until its image has it. That is
one small read for everybody who asks in the same moment, and never more than a tenth of the time: names that nobody has made can't
wear the coordinator down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.broker.metadata import Metadata
from headrace.broker.runtime import Runtime
from headrace.cluster import keys
from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import ErrorKind, HeadraceError, NameTaken, Unknown

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_MS = 20
"""At least so long between two reads."""
PAUSE_TIMES = 9
"""And so many times as long as the last one took."""
LONGEST_PAUSE_MS = 1_000
WATCH_S = 0.05
"""How long the watch may take to bring what there is, before everything is read."""
ANSWER_S = 3.0
CARRIED_OUT_S = 1.0


class Latest:
    def __init__(
        self, runtime: Runtime, metadata: Metadata, carried_out: Callable[[], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._carried_out = carried_out
        """Until what the image says is so on this broker."""
        self._upcoming: asyncio.Task[bool] | None = None
        self._turn = asyncio.Lock()
        self._not_before_ms = 0
        self.reads = 0
        """Begun so far. Whoever refuses many names in one request keeps the number that it found, for `doubt`."""
        self._answered = self._silent = 0
        """The last of them that was, and that was not."""

    async def news(self) -> bool:
        """Everything that was decided before this call is in the image. False: the coordinator does not answer."""
        if self._upcoming is None or self._upcoming.done():
            self._upcoming = self._runtime.spawn(self._catch_up(), "read metadata before a refusal")
        return await asyncio.shield(self._upcoming)

    async def reach(self, revision: int) -> None:
        """Before a peer is answered that knows the metadata up to there: not from older news than its own (F1). Raises when nobody
        can tell."""
        if revision > self._metadata.revision and not await self.news():
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE,
                "the broker that asked has newer metadata, and the coordinator does not answer here",
            )

    async def answer(self, attempt: Callable[[], Awaitable[T]], *also: type[HeadraceError]) -> T:
        """What `attempt` returns; made once more, with the latest news, when it refused a name (or `also` in these ways). It
        must refuse before it acts."""
        stale: tuple[type[HeadraceError], ...] = (Unknown, NameTaken, *also)
        try:
            return await attempt()
        except stale as refusal:
            await self.doubt(refusal)
        return await attempt()

    async def doubt(self, refusal: HeadraceError, since: int | None = None) -> None:
        """Before a refusal that may rest on old news is given: then everything has been heard, and it is worth another try.
        Raises when nobody can tell. News from after the read of number `since` are new enough, and so is its silence."""
        if since is not None and self._answered > since:
            return
        is_silent = since is not None and self._silent > since
        if is_silent or not await self.news():
            raise HeadraceError(
                ErrorKind.BROKER_NOT_AVAILABLE,
                f"{refusal.detail}, as far as is known here; the coordinator does not answer",
            ) from refusal

    async def _catch_up(self) -> bool:
        clock = self._runtime.clock
        async with self._turn:
            pause_ms = self._not_before_ms - clock.now_ms()
            if pause_ms > 0:
                await asyncio.sleep(pause_ms / 1000)
            self._upcoming = None  # whoever comes from now on may ask about something younger
            began_ms = clock.now_ms()
            self.reads += 1
            number = self.reads
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._read()
            except (CoordinatorError, TimeoutError) as problem:
                log.info("the coordinator does not say what is new: %s", problem or "no answer")
                self._silent = number
                return False
            else:
                await self._settle()
                self._answered = number
                return True
            finally:
                now_ms = clock.now_ms()
                pause_ms = min(LONGEST_PAUSE_MS, max(PAUSE_MS, PAUSE_TIMES * (now_ms - began_ms)))
                self._not_before_ms = now_ms + pause_ms

    async def _settle(self) -> None:
        """What this broker is to lead from now on is opened before anybody is sent to it, if that is quick."""
        try:
            async with asyncio.timeout(CARRIED_OUT_S):
                await self._carried_out()
        except TimeoutError:
            log.info("known, and not carried out yet")

    async def _read(self) -> None:
        metadata = self._metadata
        latest = (await self._metadata.coordinator.read(keys.CLUSTER)).revision
        if metadata.revision >= latest:
            return
        try:
            await metadata.wait_until(lambda: metadata.revision >= latest, WATCH_S)
        except HeadraceError:
            await metadata.load()
