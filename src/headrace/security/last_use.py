"""Driver: when tokens and access keys were last used (A23): noted at each broker as they come, and written down rarely.

To the hour, because a write for every request would be another log; what was noted within the last minutes is lost with its broker.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from headrace.coordinator.port import CoordinatorError
from headrace.core.errors import HeadraceError
from headrace.core.ports import Clock
from headrace.security.admin import AT_ONCE, Ops, SecurityAdmin
from headrace.security.image import SecurityImage
from headrace.security.records import KEYS, NARROWER, TOKENS, KeyRecord, TokenRecord, encode

log = logging.getLogger(__name__)

LOOK_S = 300.0
COARSE_MS = 3_600_000
"""What is known so exactly already is not written again."""


class LastUse:
    def __init__(self, clock: Clock, image: SecurityImage) -> None:
        self._clock = clock
        self._image = image
        self._used: dict[str, int] = {}
        """Keys below `security/`: no more than the coordinator holds, after each look."""

    def note(self, key: str) -> None:
        self._used[key] = self._clock.wall_ms()

    def of(self, key: str, record: TokenRecord | KeyRecord) -> int | None:
        """As far as this broker knows; None: never."""
        return max(record.used_ms, self._used.get(key, 0)) or None

    async def run(self, admin: SecurityAdmin) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.write(admin)
            except (HeadraceError, CoordinatorError) as problem:
                log.info("when credentials were last used is not written yet: %s", problem)

    async def write(self, admin: SecurityAdmin) -> None:
        self._used = {key: ms for key, ms in self._used.items() if self._record(key) is not None}
        due = [key for key in self._used if self._is_due(key)]
        for first in range(0, len(due), AT_ONCE):
            some = due[first : first + AT_ONCE]
            await admin.commit(lambda some=some: self._ops(some), "")  # type: ignore[misc]

    def _is_due(self, key: str) -> bool:
        record = self._record(key)
        return record is not None and self._used[key] - record.used_ms >= COARSE_MS

    def _ops(self, keys: list[str]) -> Ops:
        """What was deleted meanwhile stays deleted, and what another broker has written is not written again."""
        made: list[tuple[str, bytes | None]] = []
        for key in keys:
            record = self._record(key)
            if record is not None and self._is_due(key):
                made.append((key, encode(msgspec.structs.replace(record, used_ms=self._used[key]))))
        return made

    def _record(self, key: str) -> TokenRecord | KeyRecord | None:
        space, _, name = key.partition("/")
        if f"{space}/" in (TOKENS, NARROWER):
            return self._image.tokens.get(name)
        return self._image.keys.get(name) if f"{space}/" == KEYS else None
