"""Codec: server-sent events, and a stream of them that stays alive while nothing happens.

A comment line goes out when the source is silent, so that proxies keep the connection and a dead client is
noticed by the write-stall limit (X13).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from headrace.http.messages import StreamingResponse

EVENT_STREAM = "text/event-stream; charset=utf-8"
HEARTBEAT = b": keep-alive\n\n"
HEARTBEAT_MS = 15_000


def encode_event(data: str, *, event: str = "", event_id: str = "", retry_ms: int | None = None) -> bytes:
    """One event. Line ends inside `data` become several data lines; in the other fields they are refused."""
    lines: list[str] = []
    for field, value in (("event", event), ("id", event_id)):
        if "\n" in value or "\r" in value or "\0" in value:
            raise ValueError(f"the {field} of a server-sent event is one line")
        if value:
            lines.append(f"{field}: {value}")
    if retry_ms is not None:
        lines.append(f"retry: {retry_ms}")
    text = data.replace("\r\n", "\n").replace("\r", "\n")
    lines.extend(f"data: {line}" for line in text.split("\n"))
    return ("\n".join(lines) + "\n\n").encode()


def event_stream(events: AsyncIterator[bytes], *, heartbeat_ms: int = HEARTBEAT_MS) -> StreamingResponse:
    """Encoded events as a response, with heartbeats in between."""
    return StreamingResponse(
        _with_heartbeats(events, heartbeat_ms / 1000),
        content_type=EVENT_STREAM,
        # nginx would otherwise hold events back until its buffer is full.
        headers=(("cache-control", "no-store"), ("x-accel-buffering", "no")),
    )


async def _with_heartbeats(events: AsyncIterator[bytes], interval_s: float) -> AsyncIterator[bytes]:
    upcoming: asyncio.Task[bytes] | None = None
    try:
        while True:
            if upcoming is None:
                upcoming = asyncio.ensure_future(_next(events))
            done, _ = await asyncio.wait((upcoming,), timeout=interval_s)
            if not done:
                yield HEARTBEAT
                continue
            try:
                event = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = None
            yield event
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.wait((upcoming,))
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


async def _next(events: AsyncIterator[bytes]) -> bytes:
    return await anext(events)
