"""Driver: receivers that wait for a queue of which other brokers lead parts.

They do not ask the others again and again. For each queue that somebody waits for and each broker that leads a part of it,
one question is under way: has anything come up since? It is about news and not about messages, so whatever becomes of the
answer, nobody holds a message by it. News from another broker wakes one receiver; one that finds something wakes the next, so that a
single message does not make a hundred receivers ask for it. Who is not woken looks around now and then all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from headrace.broker.queueing.routing.caller import PeerCaller
from headrace.broker.queueing.routing.peer_calls import AskArrivals
from headrace.broker.runtime import Runtime, happens
from headrace.core.errors import HeadraceError

WAIT_MS = 10_000
"""How long a question waits at the other broker."""
REST_S = 0.02
"""After news, until whoever was woken has looked and waits again; at most. While messages flow, receivers find them without being
told, and nobody comes back to wait."""
PAUSE_S = 0.5
"""After an answer that did not come."""
NOTHING_SEEN = -1


class LongPolls:
    def __init__(self, runtime: Runtime, caller: PeerCaller) -> None:
        self._runtime = runtime
        self._caller = caller
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._watched: dict[tuple[str, int], asyncio.Event] = {}
        """Queues and brokers of whom somebody waits to hear; set when one more does."""

    async def wait(self, queue: str, others: Iterable[int], arrival: asyncio.Event, wait_ms: int) -> None:
        """Until there may be something, here (`arrival`, got before looking) or elsewhere, or the time is up."""
        if arrival.is_set():
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(queue, deque())
        waiting.append(woken)
        for broker_id in others:
            self._watch(queue, broker_id)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await woken
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled():
                self.wake_one(queue)  # it will not look any more, so another should
            raise
        finally:
            if woken in waiting:
                waiting.remove(woken)
            if not waiting and self._waiting.get(queue) is waiting:
                del self._waiting[queue]

    def wake_one(self, queue: str) -> None:
        waiting = self._waiting.get(queue)
        while waiting:
            woken = waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return

    def wake_all(self, queue: str) -> None:
        """Something happened here: then all look, as those do who wait for this broker alone."""
        for woken in self._waiting.get(queue, ()):
            if not woken.done():
                woken.set_result(None)

    def _watch(self, queue: str, broker_id: int) -> None:
        joined = self._watched.get((queue, broker_id))
        if joined is not None:
            joined.set()
            return
        joined = self._watched[queue, broker_id] = asyncio.Event()
        self._runtime.spawn(self._ask_on(queue, broker_id, joined), f"news of {queue} from {broker_id}")

    async def _ask_on(self, queue: str, broker_id: int, joined: asyncio.Event) -> None:
        """As long as anybody waits."""
        seen = NOTHING_SEEN
        try:
            while queue in self._waiting:
                question = AskArrivals(queue=queue, seen=seen, wait_ms=WAIT_MS)
                try:
                    now = await self._caller.ask(broker_id, question, WAIT_MS / 1000)
                except HeadraceError:
                    seen = NOTHING_SEEN
                    await asyncio.sleep(PAUSE_S)
                    continue
                if now != seen:
                    seen = now
                    joined.clear()
                    self.wake_one(queue)
                    await happens(joined, REST_S)
        finally:
            del self._watched[queue, broker_id]
