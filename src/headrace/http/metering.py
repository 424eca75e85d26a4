"""Door: what HTTP costs its users, counted in the same buckets as Kafka's requests (A62): bodies in, answers out, and our time.

The request that overdraws is carried out; whoever is in debt is told when to come back, and a stream pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Generic, TypeVar

from headrace.cluster.quotas import CONSUMED, PRODUCED, REQUESTS, Quotas
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ports import Clock
from headrace.core.principals import ANONYMOUS
from headrace.http.messages import Answer, Handler, Request, Response

CLIENT = b"x-headrace-client"
"""Who would rather be known by a name than share the one of everybody who gives none."""
MAX_CLIENT_CHARS = 200

T = TypeVar("T")


class InDebt(HeadraceError):
    """Of kind THROTTLING_QUOTA_EXCEEDED. Nothing has happened."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_s = -(-wait_ms // 1000)
        super().__init__(
            ErrorKind.THROTTLING_QUOTA_EXCEEDED, f"over a quota; there is room again in {wait_ms} ms"
        )


class Meter:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.quotas = Quotas()
        """The cluster's, as soon as they are known."""

    @property
    def is_on(self) -> bool:
        return self.quotas.active

    async def metered(self, handler: Handler, request: Request) -> Answer:
        """Raises InDebt."""
        if request.sender is not None:  # counted where it came in
            return await _made(handler(request))
        self.need_room(request)
        return self.count(request, await self.timed(request, _made(handler(request))))

    async def timed(self, request: Request, work: Coroutine[object, object, T]) -> T:
        """Counts what `work` kept us from doing for others: its steps, and not what it waited for (KIP-124)."""
        stepped = _Steps(work)
        try:
            return await stepped
        finally:
            self._take(request, REQUESTS, stepped.spent_ms)

    def need_room(self, request: Request) -> None:
        """Raises InDebt."""
        wait_ms = max(self._take(request, key, 0) for key in (PRODUCED, CONSUMED, REQUESTS))
        if wait_ms:
            raise InDebt(wait_ms)

    def count(self, request: Request, answer: Answer) -> Answer:
        self._take(request, PRODUCED, len(request.body))
        if isinstance(answer, Response):
            self._take(request, CONSUMED, len(answer.body))
        else:
            answer.chunks = self._paced(request, answer.chunks)
        return answer

    async def _paced(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
                if wait_ms := self._take(request, CONSUMED, len(chunk)):
                    await asyncio.sleep(wait_ms / 1000)
        finally:
            close: Callable[[], Awaitable[None]] | None = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    def _take(self, request: Request, key: str, amount: float) -> int:
        principal = ANONYMOUS if request.access is None else request.access.principal
        client = request.header(CLIENT)[:MAX_CLIENT_CHARS]
        return self.quotas.take(key, principal.name, client, amount, self._clock.now_ms())


class _Steps(Generic[T]):
    """A coroutine, and how long its steps took."""

    def __init__(self, work: Coroutine[object, object, T]) -> None:
        self._work = work
        self.spent_ms = 0.0

    def __await__(self) -> Generator[object, object, T]:
        clock = asyncio.get_running_loop().time
        value: object = None
        problem: BaseException | None = None
        while True:
            began_s = clock()
            try:
                waits_for = self._work.send(value) if problem is None else self._work.throw(problem)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self.spent_ms += (clock() - began_s) * 1000
            value, problem = None, None
            try:
                value = yield waits_for
            except BaseException as thrown:  # a cancellation, above all: it is the work's to deal with
                problem = thrown


async def _made(answer: Answer | Awaitable[Answer]) -> Answer:
    return answer if isinstance(answer, Answer) else await answer
