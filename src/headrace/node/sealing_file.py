"""Driver: the file of keys under which secrets are sealed (A31), which is looked at again while the broker runs.

A new file is tried out aside; one that is no file of keys is told loudly, and the keys that are in use stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headrace.core.errors import HeadraceError
from headrace.security.sealing import Sealer, read_sealer

log = logging.getLogger(__name__)

LOOK_S = 30.0


class SealingFile:
    def __init__(self, path: str) -> None:
        """Raises INVALID_CONFIG."""
        self._path = path
        self.sealer: Sealer = read_sealer(path)
        """The same one for as long as the node lives; its keys change."""
        self._bad = ""
        self.on_changed: list[Callable[[], None]] = []

    def look(self) -> None:
        try:
            found = read_sealer(self._path)
        except HeadraceError as problem:
            if str(problem) != self._bad:
                self._bad = str(problem)
                log.error("the keys that seal secrets stay as they are: %s", problem)
            return
        self._bad = ""
        if found.marks == self.sealer.marks:
            return
        self.sealer.replace(found)
        log.warning("secrets are sealed with key %s from now on, of %d", found.marks[0], len(found.marks))
        for tell in self.on_changed:
            tell()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
