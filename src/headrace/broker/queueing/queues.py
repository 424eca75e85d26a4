"""Driver: queues, as doors see them: send, receive, ack, extend, release, reject, peek, purge, stats. Knows no SQS and no HTTP.

What this broker has it does itself (local/), and that is the short way; what another has is asked of that one (routing/); where a
new message belongs, and how many partitions a queue has, is a matter of its own (placement/). Messages go from one queue to
another in transactions (moves/). Which queues there are is in the catalog. rooms.py has put them together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence

from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.queueing.routing.peer_calls import AskReceive, DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.plan import Rejected
from headrace.queues import commands as engine
from headrace.queues.commands import Handle, MessageStatus, Source
from headrace.records.build import Record

Settled = Awaitable[Sequence[Rejected | None]]
"""For each handle None, or why it was refused."""


class Queues:
    def __init__(self, rooms: QueueRooms) -> None:
        self._layouts = rooms.layouts
        self._local = rooms.local
        self._router = rooms.router
        self._caller = rooms.caller
        self._hosted = rooms.shards.hosted
        self.find = rooms.catalog.find
        self.send = rooms.placement.send
        self.send_all = rooms.placement.send_all
        self.send_group = rooms.placement.send_group
        self.peek = rooms.router.peek
        self.walk = rooms.router.walk
        self.purge = rooms.router.purge
        self.pause = rooms.router.pause
        self.stats = rooms.router.stats

    def sources(self, spec: QueueSpec) -> Sequence[Source]:
        """Its partitions, wherever they are."""
        return self._layouts.of(spec).sources

    def receive(
        self,
        spec: QueueSpec,
        max_messages: int,
        *,
        visibility_ms: int | None = None,
        wait_ms: int = 0,
        owner: str = "",
    ) -> Awaitable[list[DeliveredMessage]]:
        """Up to `max_messages`, waiting for the first if there is none."""
        if not self._layouts.of(spec).others or self._caller.peers is None:
            return self._local.receive(
                spec, max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner
            )
        ask = AskReceive(
            queue=spec.name, queue_id=spec.id,
            count=max_messages, visibility_ms=visibility_ms, wait_ms=wait_ms, owner=owner,
        )  # fmt: skip
        return self._router.receive(spec, ask)

    def ack(self, source: Source, handles: Iterable[Handle]) -> Settled:
        hosted = self._hosted.get(source[1:])
        if hosted is not None:  # every message takes this way
            return hosted.submit(engine.Ack(source, tuple(handles)))
        return self._router.settle(source, "ack", handles)

    def extend(
        self,
        source: Source,
        handles: Iterable[Handle],
        visibility_ms: int,
        *,
        stale_may_prolong: bool = False,
    ) -> Settled:
        if source[1:] in self._hosted:
            return self._local.extend(source, handles, visibility_ms, stale_may_prolong=stale_may_prolong)
        return self._router.settle(
            source, "extend", handles, visibility_ms, stale_may_prolong=stale_may_prolong
        )

    def release(
        self, source: Source, handles: Iterable[Handle], delay_ms: int | None = None, detail: str = ""
    ) -> Settled:
        """`detail` is kept with the dead letter if this was the last attempt."""
        if source[1:] in self._hosted:
            return self._local.release(source, handles, delay_ms, detail)
        return self._router.settle(source, "release", handles, delay_ms, detail)

    def reject(self, source: Source, handles: Iterable[Handle], detail: str = "") -> Settled:
        if source[1:] in self._hosted:
            return self._local.reject(source, handles, detail)
        return self._router.settle(source, "reject", handles, detail=detail)

    def scheduled(self, source: Source, from_offset: int, limit: int) -> Awaitable[list[tuple[int, Record]]]:
        """(due time, message) of messages that wait for their time, in log order."""
        if source[1:] in self._hosted:
            return self._local.scheduled(source, from_offset, limit)
        return self._router.scheduled(source, from_offset, limit)

    # -- at the broker that has it, which is this one or a WrongBroker is raised ---------------------------------------

    async def inspect(self, source: Source, offset: int) -> MessageStatus:
        """What state a message is in."""
        status: MessageStatus = await self._local.submit(source, engine.Inspect(source, offset))
        return status

    async def move_schedule(self, source: Source, offset: int, due_ms: int) -> None:
        await self._local.submit(source, engine.MoveSchedule(source, offset, due_ms))

    async def cancel_schedule(self, source: Source, offset: int) -> None:
        await self._local.submit(source, engine.CancelSchedule(source, offset))

    async def unfinished(self, source: Source, first: int, limit: int) -> tuple[list[list[int]], int | None]:
        """[first, end) of what is not done, from an offset on, and where to go on; None: there is no more."""
        return await self._local.unfinished(source, first, limit)
