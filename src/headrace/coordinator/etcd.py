"""Adapter: the coordinator on etcd, through its JSON gateway, for clusters.

Tested with etcd 3.4.23; meant for 3.5 and 3.6, whose `/v3` paths are the same. Safety never rests on the watch: every
change is a transaction with compares (R1), and besides the watch the whole prefix is read anew every half minute (R3).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

from headrace.coordinator import etcd_codec as codec
from headrace.coordinator.etcd_calls import (
    FAILED_PRECONDITION,
    NOT_FOUND,
    OUT_OF_RANGE,
    Credentials,
    EtcdCalls,
    EtcdRefusal,
    judge,
)
from headrace.coordinator.etcd_watch import PrefixFeed, WatchSettings
from headrace.coordinator.port import (
    Compare,
    CoordinatorError,
    CoordinatorUnavailable,
    KeyLease,
    KeyValue,
    LeaseNotFound,
    Operation,
    OutcomeUnknown,
    Resync,
    Snapshot,
    TxnResult,
    WatchUpdate,
    check_txn,
)
from headrace.net.h1_client import ClientSettings, H1Client, Origin

log = logging.getLogger(__name__)

PAGE_KEYS = 1_000
READ_ATTEMPTS = 3
RETRY_S = 0.2


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    endpoints: tuple[Origin, ...]
    namespace: str = "/headrace/"
    credentials: Credentials | None = None
    deadline_s: float = 2.0
    reread_s: float = 30.0
    watch: WatchSettings = field(default_factory=WatchSettings)


class EtcdCoordinator:
    def __init__(self, settings: EtcdSettings, *, token_bytes: Callable[[int], bytes]) -> None:
        self._settings = settings
        self._token_bytes = token_bytes
        self._namespace = codec.Namespace(settings.namespace)
        self._client = H1Client(ClientSettings(connect_timeout_s=settings.deadline_s / 2))
        self._calls = EtcdCalls(
            settings.endpoints,
            self._client,
            credentials=settings.credentials,
            deadline_s=settings.deadline_s,
            first_endpoint=token_bytes(1)[0],  # brokers spread over the members
        )
        self._feeds: dict[str, PrefixFeed] = {}
        self._feed_tasks: dict[PrefixFeed, asyncio.Task[None]] = {}
        self._lease_ttl_ms: dict[int, int] = {}
        self._closed = False

    async def get(self, key: str) -> KeyValue | None:
        reply = await self._range(self._namespace.range(key))
        return self._namespace.key_value(reply.kvs[0]) if reply.kvs else None

    async def read(self, prefix: str) -> Snapshot:
        """In pages, all as of the first one's revision; anew when that is compacted away meanwhile."""
        for _ in range(READ_ATTEMPTS):
            try:
                return await self._read_pages(prefix)
            except EtcdRefusal as refusal:
                if refusal.code != OUT_OF_RANGE:
                    raise
        raise CoordinatorUnavailable(f"{prefix!r} is compacted faster than it can be read")

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        check_txn(compares, operations)
        body = self._namespace.txn(compares, operations)
        try:
            reply = codec.decode(codec.TxnReply, await self._call("/v3/kv/txn", body, repeatable=False))
        except EtcdRefusal as refusal:
            if refusal.code == NOT_FOUND and "lease" in refusal.message:
                raise LeaseNotFound(refusal.message) from refusal
            raise
        except codec.GatewayError as error:
            raise OutcomeUnknown(str(error)) from error
        return TxnResult(reply.succeeded, reply.header.revision)

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchUpdate, None]:
        loop = asyncio.get_running_loop()
        position = reached = from_revision
        reread_at = loop.time() + self._settings.reread_s
        feed: PrefixFeed | None = None
        losses = 0
        try:
            while not self._closed:
                if position == 0 or loop.time() >= reread_at:
                    snapshot = await self._read_or_none(prefix)
                    reread_at = loop.time() + self._settings.reread_s
                    if snapshot is not None:
                        told = reached
                        position = reached = snapshot.revision + 1
                        yield Resync(snapshot, restored=position < told)
                    elif position == 0:
                        await asyncio.sleep(RETRY_S)
                    continue
                if feed is None:
                    feed = self._join(prefix, position)
                    losses = feed.losses
                ticket = feed.changed.ticket()
                batch = feed.history.since(prefix, position)
                if batch is None or feed.losses != losses:
                    losses = feed.losses
                    position = 0
                    continue
                position = reached = max(position, batch.revision + 1)
                if batch.events:
                    yield batch
                else:
                    await feed.changed.wait(ticket, max(0.0, reread_at - loop.time()))
        finally:
            if feed is not None:
                self._leave(prefix, feed)

    async def grant(self, ttl_ms: int) -> KeyLease:
        """etcd counts in whole seconds and raises short ones to its election timeout: see the granted TTL."""
        if ttl_ms <= 0:
            raise ValueError(f"a lease of {ttl_ms} ms")
        # We choose the id, so a grant whose answer got lost can be repeated.
        lease_id = int.from_bytes(self._token_bytes(8), "big") >> 1 or 1
        body = codec.encode_grant(lease_id, -(-ttl_ms // 1000))
        try:
            reply = await self._call("/v3/lease/grant", body, repeatable=True)
        except EtcdRefusal as refusal:
            if refusal.code != FAILED_PRECONDITION or "exist" not in refusal.message:
                raise
            granted_ms = await self.keep_alive(lease_id)
            if not granted_ms:
                raise CoordinatorUnavailable("the lease expired while it was granted") from refusal
        else:
            granted_ms = self._decode(codec.LeaseReply, reply).TTL * 1000
            if granted_ms <= 0:
                raise CoordinatorUnavailable("etcd granted a lease without a time to live")
        self._lease_ttl_ms[lease_id] = granted_ms
        return KeyLease(lease_id, granted_ms)

    async def keep_alive(self, lease_id: int) -> int:
        # A third of the TTL, so that a try that hangs leaves time for another (etcd rule 7).
        ttl_ms = self._lease_ttl_ms.get(lease_id, 0)
        deadline_s = min(self._settings.deadline_s, ttl_ms / 3000) if ttl_ms else None
        body = codec.encode_lease_id(lease_id)
        answer = await self._call("/v3/lease/keepalive", body, repeatable=True, deadline_s=deadline_s)
        try:
            reply = codec.decode_keep_alive(answer)
        except codec.GatewayError as error:
            raise CoordinatorUnavailable(str(error)) from error
        if isinstance(reply, codec.GrpcFailure):
            if reply.code == NOT_FOUND:
                return self._lease_gone(lease_id)
            raise CoordinatorUnavailable(str(judge(reply)))
        return reply.TTL * 1000 if reply.TTL > 0 else self._lease_gone(lease_id)

    async def revoke(self, lease_id: int) -> None:
        try:
            await self._call("/v3/lease/revoke", codec.encode_lease_id(lease_id), repeatable=True)
        except EtcdRefusal as refusal:
            if refusal.code != NOT_FOUND:
                raise
        self._lease_gone(lease_id)

    async def close(self) -> None:
        self._closed = True
        tasks = list(self._feed_tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for feed in self._feeds.values():
            feed.changed.fire()
        await self._client.close()

    def _lease_gone(self, lease_id: int) -> int:
        self._lease_ttl_ms.pop(lease_id, None)
        return 0

    def _join(self, prefix: str, position: int) -> PrefixFeed:
        feed = self._feeds.get(prefix)
        if feed is None:
            feed = PrefixFeed(
                self._calls,
                self._namespace,
                prefix,
                from_revision=position,
                settings=self._settings.watch,
            )
            self._feeds[prefix] = feed
            task = asyncio.create_task(feed.run(), name=f"coordinator-watch-{prefix}")
            self._feed_tasks[feed] = task
            task.add_done_callback(lambda _: self._feed_tasks.pop(feed, None))
        feed.subscribers += 1
        return feed

    def _leave(self, prefix: str, feed: PrefixFeed) -> None:
        feed.subscribers -= 1
        if feed.subscribers == 0:
            self._feeds.pop(prefix, None)
            task = self._feed_tasks.get(feed)
            if task is not None:
                task.cancel()

    async def _read_or_none(self, prefix: str) -> Snapshot | None:
        try:
            return await self.read(prefix)
        except CoordinatorError as error:
            log.info("cannot read %r anew yet: %s", prefix, error)
            return None

    async def _read_pages(self, prefix: str) -> Snapshot:
        items: list[KeyValue] = []
        revision = 0
        after: bytes | None = None
        while True:
            reply = await self._range(
                self._namespace.range_page(prefix, after=after, revision=revision, limit=PAGE_KEYS)
            )
            revision = revision or reply.header.revision
            items.extend(item for item in map(self._namespace.key_value, reply.kvs) if item is not None)
            if not reply.more or not reply.kvs:
                return Snapshot(revision, items)
            after = reply.kvs[-1].key

    async def _range(self, body: bytes) -> codec.RangeReply:
        return self._decode(codec.RangeReply, await self._call("/v3/kv/range", body, repeatable=True))

    async def _call(
        self, path: str, body: bytes, *, repeatable: bool, deadline_s: float | None = None
    ) -> bytes:
        if self._closed:
            raise CoordinatorUnavailable("the coordinator is closed")
        return await self._calls.call(path, body, repeatable=repeatable, deadline_s=deadline_s)

    def _decode(self, kind: type[codec.T], body: bytes) -> codec.T:
        try:
            return codec.decode(kind, body)
        except codec.GatewayError as error:
            raise CoordinatorUnavailable(str(error)) from error
