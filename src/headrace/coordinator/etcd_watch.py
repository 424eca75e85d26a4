"""Driver: one watch stream for one prefix, kept alive over everything, and fanned out through a bounded history.

A watch costs an HTTP connection, so a process has one per prefix and its watchers pull from the history (etcd rule 9).
Where to resume is the revision of the last *event* plus one: while a watcher catches up, etcd's headers carry the revision
of the whole store, and resuming behind that loses thousands of events (etcd rule 1). Streams can be half open for ever, so
after a silence the feed writes a heartbeat key under its own prefix and expects to see it come back (etcd rule 6).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import groupby

from headrace.coordinator import etcd_codec as codec
from headrace.coordinator.etcd_calls import OUT_OF_RANGE, EtcdCalls
from headrace.coordinator.history import EventHistory
from headrace.coordinator.port import CoordinatorError
from headrace.coordinator.signal import Signal
from headrace.core.limits import MIB
from headrace.net.h1_client import HttpFailure, Origin, ResponseStream

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 64 * MIB
"""One batch of events. A larger one is not waited for: the prefix is read anew, page by page."""

HISTORY_REVISIONS = 10_000
FIRST_BACKOFF_S = 0.05
LAST_BACKOFF_S = 1.0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    silence_s: float = 10.0
    """Without any event this long, ask for a sign of life."""
    echo_s: float = 2.0
    """How long the sign may take."""


class _StreamBroken(Exception):
    """Connect again and resume."""


class _HistoryLost(Exception):
    """The events from our position on cannot be had; go on from the present."""


class PrefixFeed:
    """`history` holds everything from the first position asked for, or since the last loss; `changed` fires on news."""

    def __init__(
        self,
        calls: EtcdCalls,
        namespace: codec.Namespace,
        prefix: str,
        *,
        from_revision: int,
        settings: WatchSettings,
    ) -> None:
        self._calls = calls
        self._namespace = namespace
        self._prefix = prefix
        self._settings = settings
        self.history = EventHistory(latest=from_revision - 1, capacity=HISTORY_REVISIONS)
        self.changed = Signal()
        self.losses = 0
        """How often the history had to be given up: whoever remembers another number reads everything anew."""
        self.subscribers = 0
        self._backoff_s = FIRST_BACKOFF_S

    async def run(self) -> None:
        """Until cancelled. Nothing the server does ends it (R36)."""
        while True:
            endpoint = self._calls.endpoint
            try:
                try:
                    await self._stream(endpoint)
                except _HistoryLost as loss:
                    await self._go_on_from_now(str(loss))
                    continue
            except (_StreamBroken, HttpFailure, CoordinatorError, codec.GatewayError) as error:
                log.info("watch of %r at %s broke, resuming: %s", self._prefix, endpoint.authority, error)
            except Exception:
                # A bug, or an answer that nobody foresaw: a feed that ended would leave its watchers waiting for ever (F17).
                log.exception("watch of %r at %s failed, resuming", self._prefix, endpoint.authority)
            self._calls.avoid(endpoint)
            await self._back_off()

    async def _stream(self, endpoint: Origin) -> None:
        timeout_s = self._calls.deadline_s
        stream = await self._calls.client.open_stream(
            endpoint,
            "POST",
            "/v3/watch",
            headers=await self._calls.headers(timeout_s),
            body=self._namespace.watch(self._prefix, self.history.latest + 1),
            timeout_s=timeout_s,
        )
        with stream:
            frames = _Frames(stream)
            if stream.status != 200:
                self._calls.forget_token()
                raise _StreamBroken(f"HTTP status {stream.status}")
            replies = await frames.next(timeout_s)
            if replies is None:  # etcd without a leader takes the request and says nothing (etcd rule 5)
                raise _StreamBroken("no answer to the watch request")
            while True:
                for reply in replies:
                    self._take(reply)
                self._backoff_s = FIRST_BACKOFF_S
                replies = await frames.next(self._settings.silence_s)
                if replies is None:
                    replies = await self._ask_for_a_sign(frames)

    async def _ask_for_a_sign(self, frames: _Frames) -> list[codec.WatchReply]:
        """Write the heartbeat; whoever watches the prefix sees it, so in a cluster the first to miss it writes for all."""
        try:
            body = await self._calls.call(
                "/v3/kv/txn", self._namespace.heartbeat(self._prefix), repeatable=True
            )
        except CoordinatorError as error:
            log.debug("no heartbeat: %s", error)  # etcd is away altogether; the stream may yet prove alive
            return []
        revision = codec.decode(codec.TxnReply, body).header.revision
        if revision <= self.history.latest:
            raise _HistoryLost(f"etcd went back from revision {self.history.latest} to {revision}")
        replies = await frames.next(self._settings.echo_s)
        if replies is None:
            raise _StreamBroken(f"revision {revision} was written and did not arrive")
        return replies

    def _take(self, reply: codec.WatchReply) -> None:
        if reply.compact_revision:
            raise _HistoryLost(f"compacted up to {reply.compact_revision}")
        if reply.canceled:
            # Among the reasons are a token that ran out and a member that lost its leader.
            self._calls.forget_token()
            raise _StreamBroken(f"cancelled: {reply.cancel_reason or 'no reason given'}")
        if reply.created:
            return  # its revision is the store's, not ours
        for revision, group in groupby(reply.events, key=lambda event: event.kv.mod_revision):
            events = [event for event in map(self._namespace.event, group) if event is not None]
            self.history.append(revision, events)  # which drops what lies behind us (etcd #15271, #20221)
        if not reply.events:
            self.history.append(reply.header.revision, ())
        self.changed.fire()

    async def _go_on_from_now(self, why: str) -> None:
        """The watchers then read everything anew, and their reads are later than this revision."""
        log.warning("watch of %r: %s; reading it anew", self._prefix, why)
        try:
            body = await self._calls.call(
                "/v3/kv/range", self._namespace.range(self._prefix + "x"), repeatable=True
            )
            self.history.restart(codec.decode(codec.RangeReply, body).header.revision)
            self.losses += 1
            self.changed.fire()
        except (CoordinatorError, codec.GatewayError) as error:
            log.info("watch of %r: cannot read yet: %s", self._prefix, error)
            await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(LAST_BACKOFF_S, self._backoff_s * 2)


class _Frames:
    """The stream's lines, decoded."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream
        self._partial = bytearray()

    async def next(self, timeout_s: float) -> list[codec.WatchReply] | None:
        """All whole frames that have arrived, at least one; None when none came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    chunk = await self._stream.read()
                    if not chunk:
                        raise _StreamBroken("the server ended the watch")
                    whole, newline, rest = chunk.rpartition(b"\n")
                    if newline:
                        lines = bytes(self._partial) + whole
                        self._partial = bytearray(rest)
                        return [self._decode(line) for line in lines.split(b"\n") if line]
                    self._partial += chunk
                    if len(self._partial) > MAX_FRAME_BYTES:
                        raise _HistoryLost(f"a batch of events above {MAX_FRAME_BYTES} bytes")
        except TimeoutError:
            return None

    def _decode(self, line: bytes) -> codec.WatchReply:
        reply = codec.decode_watch_frame(line)
        if isinstance(reply, codec.GrpcFailure):
            if reply.code == OUT_OF_RANGE:
                raise _HistoryLost(reply.message)
            raise _StreamBroken(reply.message)
        return reply
