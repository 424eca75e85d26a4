"""Driver: wake every waiter at once, without a lock and without missing a wake-up.

A waiter takes its ticket before it looks at the state it waits for: `ticket = signal.ticket()`, look, then
`await signal.wait(ticket)`. A `fire` between the two ends the wait at once.
"""

from __future__ import annotations

import asyncio


class Signal:
    __slots__ = ("_count", "_waiters")

    def __init__(self) -> None:
        self._count = 0
        self._waiters: list[asyncio.Future[None]] = []

    def ticket(self) -> int:
        return self._count

    def fire(self) -> None:
        self._count += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, ticket: int, timeout_s: float | None = None) -> bool:
        """True when fired since the ticket was taken, False when the time ran out first."""
        if self._count != ticket:
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True
