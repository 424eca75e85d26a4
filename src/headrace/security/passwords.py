"""Driver: passwords that come in the clear (SASL PLAIN, HTTP Basic) against what SCRAM keeps of them (A19).

PBKDF2 takes milliseconds, so it never runs on the loop: one at a time in the pool, a hundred may wait. A password that was right is
known for a minute by its HMAC under a key of this process; it is forgotten at once when the user changes.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import NamedTuple

from headrace.broker.runtime import Runtime
from headrace.security.image import SecurityImage
from headrace.security.records import ScramRecord
from headrace.security.scram import HASHES, SHA_256, made_up, record_of, salted_password

MOST_WAITING = 100
MOST_KNOWN = 10_000
KNOWN_MS = 60_000
MAX_PASSWORD_BYTES = 1_024


class Busy(Exception):
    """Too many wait to be checked: a trouble of ours, not a wrong password (A17)."""


class _Known(NamedTuple):
    record: ScramRecord
    until_ms: int


class Passwords:
    def __init__(self, runtime: Runtime, image: SecurityImage, secret: Callable[[], bytes]) -> None:
        self._runtime = runtime
        self._image = image
        self._secret = secret
        self._own = runtime.random_bytes(32)
        self._known: dict[bytes, _Known] = {}
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0

    def is_known(self, name: str, password: str) -> bool:
        """It was right a moment ago. Costs microseconds."""
        held = self._known.get(self._digest(name, password))
        return (
            held is not None
            and held.until_ms > self._runtime.clock.now_ms()
            and any(held.record is record for record in self._image.scram.get(name, {}).values())
            and self._image.is_enabled(name)
        )

    async def check(self, name: str, password: str) -> bool:
        """Raises Busy."""
        if len(password) > MAX_PASSWORD_BYTES:
            return False
        if self.is_known(name, password):
            return True
        if self._waiting >= MOST_WAITING:
            raise Busy
        self._waiting += 1
        try:
            async with self._turn:
                return await self._compute(name, password)
        finally:
            self._waiting -= 1

    async def _compute(self, name: str, password: str) -> bool:
        records = self._image.scram.get(name, {})
        mechanism = next((each for each in HASHES if each in records), SHA_256)
        real = records.get(mechanism)
        record = real or made_up(mechanism, name, self._secret())

        def work() -> bool:
            salted = salted_password(mechanism, password, record.salt, record.iterations)
            computed = record_of(mechanism, salted, record.salt, record.iterations)
            return hmac.compare_digest(computed.stored_key, record.stored_key)

        right = await self._runtime.run_blocking(work)
        if not right or real is None or not self._image.is_enabled(name):
            return False
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[self._digest(name, password)] = _Known(real, self._runtime.clock.now_ms() + KNOWN_MS)
        return True

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._own, f"{name}\0{password}".encode(), "sha256")
