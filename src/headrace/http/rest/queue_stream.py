"""Door: a queue pushed to a browser: server-sent events, one for each message, as `EventSource` reads them.

GET /queues/{queue}/stream?window=10&visibility=30s      each event is what a receive answers, with its receipt
GET /queues/{queue}/stream?ack=auto                      done when the event was written: at most once

Taking messages changes the queue, so a plain GET is not enough (A6): a page of ours may (an EventSource says by itself that it is
same-origin), and so may a page of an allowed origin; a program uses POST, or sends the header x-headrace-client.

An event is acknowledged like any message: DELETE /queues/{queue}/messages/{receipt}. No more than `window` are out at a time, so a
page that is slow is not drowned; what a page did not acknowledge when it went away goes back at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec

from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ports import Clock
from headrace.http.browsers import need_program
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.messages import CLIENT, STREAM
from headrace.http.rest.queues import received
from headrace.http.rest.reading import invalid, number, query_duration_ms
from headrace.http.sse import encode_event, event_stream
from headrace.queues.commands import Handle, MessageState, Source
from headrace.security.rights import GROUP, TOPIC, needs, read

Held = tuple[Source, Handle]

MAX_WINDOW = 100
MIN_VISIBILITY_MS = 1_000
MAX_VISIBILITY_MS = 12 * 60 * 60 * 1000
POLL_MS = 10_000
FULL_S = 0.2
"""How often a full window is looked at: acknowledgements come by another request, perhaps at another broker."""
TROUBLE_S = 1.0


class QueueStreamDoor(Door):
    def __init__(self, clock: Clock, queues: Queues, receipt_key: bytes) -> None:
        self._clock = clock
        self._queues = queues
        self._key = receipt_key

    @route(
        "GET",
        "/queues/{queue}/stream",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        replace(STREAM, headers=(CLIENT,), problems=(400, 403, 404)),
    )
    @route(
        "POST",
        "/queues/{queue}/stream",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        STREAM,
    )
    async def _stream(self, request: Request) -> Answer:
        name = request.params["queue"]
        need_program(request.headers, request.method, f"POST /queues/{name}/stream")
        spec = self._queues.find(name)
        if spec is None:
            raise Unknown(ErrorKind.NOT_FOUND, f'there is no queue called "{name}"')
        ack = request.query.get("ack", "manual")
        if ack not in ("manual", "auto"):
            raise invalid("ack is manual or auto")
        window = number(request, "window", 10, 1, MAX_WINDOW)
        visibility_ms = query_duration_ms(request, "visibility", 30_000, MAX_VISIBILITY_MS)
        if visibility_ms < MIN_VISIBILITY_MS:
            raise invalid("visibility is at least 1s; a message would come again before it is read")
        events = self._auto(spec, window) if ack == "auto" else self._manual(spec, window, visibility_ms)
        return event_stream(events)

    async def _auto(self, spec: QueueSpec, window: int) -> AsyncIterator[bytes]:
        """The next event is asked for when the one before it has been written."""
        waiting: list[DeliveredMessage] = []
        try:
            while True:
                waiting = await self._receive(spec, window, None)
                while waiting:
                    yield self._event(spec, waiting[0])
                    done = waiting.pop(0)
                    await self._queues.ack(done.source, [done.handle])
        finally:
            await self._give_back([(one.source, one.handle) for one in waiting])

    async def _manual(self, spec: QueueSpec, window: int, visibility_ms: int) -> AsyncIterator[bytes]:
        out: dict[Held, int] = {}
        """What the page holds, and until when; monotonic."""
        clock = self._clock
        try:
            while True:
                out = await self._still_out(out)
                if len(out) >= window:
                    await asyncio.sleep(FULL_S)
                    continue
                received = await self._receive(spec, window - len(out), visibility_ms)
                until_ms = clock.now_ms() + visibility_ms
                out |= {(one.source, one.handle): until_ms for one in received}
                for delivery in received:
                    yield self._event(spec, delivery)
        finally:
            await self._give_back(list(out))

    async def _give_back(self, held: list[Held]) -> None:
        for source, handle in held:
            try:
                await self._queues.release(source, [handle], 0)
            except HeadraceError:
                continue  # its lease ends by itself

    async def _receive(
        self, spec: QueueSpec, count: int, visibility_ms: int | None
    ) -> list[DeliveredMessage]:
        try:
            return await self._queues.receive(spec, count, visibility_ms=visibility_ms, wait_ms=POLL_MS)
        except HeadraceError as problem:
            if problem.kind is ErrorKind.QUEUE_DOES_NOT_EXIST or self._queues.find(spec.name) is None:
                raise
            await asyncio.sleep(TROUBLE_S)  # nobody leads it right now
            return []

    async def _still_out(self, out: dict[Held, int]) -> dict[Held, int]:
        now_ms = self._clock.now_ms()
        return {held: until for held, until in out.items() if until > now_ms and await self._is_out(*held)}

    async def _is_out(self, source: Source, handle: Handle) -> bool:
        """Another broker's messages count until their time is up."""
        try:
            status = await self._queues.inspect(source, handle.offset)
        except HeadraceError:
            return True
        return status.state is MessageState.ACQUIRED and bool(status.deliveries == handle.delivery)

    def _event(self, spec: QueueSpec, delivery: DeliveredMessage) -> bytes:
        text = msgspec.json.encode(received(spec, delivery, self._key)).decode()
        return encode_event(text, event="message", event_id=delivery.message_id)
