"""Door: who holds what of a queue, and an operator who lets go of it for them (5.5).

GET  /api/v1/queues/{queue}/locks             messages that somebody has received and not settled yet
POST /api/v1/queues/{queue}/locks/settle      {"act": "release", "locks": ["…"]}

What names a lock is a receipt under another MAC: it says which delivery is meant, so that nothing is done to the next one, and whoever may
receive can not acknowledge with it what somebody else holds. Who may say how a queue is set may do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.broker.history import Sampler
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.core.ports import Clock
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.locks import LockAct, Locks, LocksSettled, ShownLock
from headrace.http.rest.forms.messages import RefusedReceipt
from headrace.http.rest.reading import answer, body_of, duration_ms, invalid, queue_of
from headrace.http.whole import Whole
from headrace.queues.commands import Handle, Lock, Source
from headrace.queues.receipt import QueueReceipt, decode_receipt, encode_receipt
from headrace.security.rights import GROUP, alter_configs, describe, needs, read

MAX_LOCKS = 500


class LockDoor(Door):
    def __init__(
        self, clock: Clock, sampler: Sampler, whole: Whole, queues: Queues, receipt_key: bytes
    ) -> None:
        self._clock = clock
        self._sampler = sampler
        self._whole = whole
        self._queues = queues
        self._key = receipt_key

    @route(
        "GET",
        "/api/v1/queues/{queue}/locks",
        needs(describe(GROUP, "{queue}"), read(GROUP, "{queue}")),
        Contract(
            "Messages that somebody has received and not settled",
            "queues",
            {200: Locks},
        ),
    )
    async def _locks(self, request: Request) -> Answer:
        """Each broker knows those of what it hosts."""
        queues = self._sampler.queues
        spec = queue_of(request, queues.find)
        rows = [self._shown(spec, source, lock) for source, lock in queues.locks(spec, MAX_LOCKS)]
        for other in await self._whole.gather(request, Locks):
            rows += other.items
        rows.sort(key=lambda row: row.ends_in_ms)
        return answer(Locks(items=rows, next_cursor=None))

    def _shown(self, spec: QueueSpec, source: Source, lock: Lock) -> ShownLock:
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        handle = Handle(lock.offset, lock.deliveries, lock.epoch)
        return ShownLock(
            topic=source.topic,
            partition=source.partition,
            offset=lock.offset,
            lock=encode_receipt(
                QueueReceipt(source.topic, source.partition, handle), _names(spec), self._key
            ),
            deliveries=lock.deliveries,
            holder=lock.owner or None,
            ends_in_ms=max(0, lock.deadline_ms - now_ms),
            visibility_ms=lock.visibility_ms,
            received_ms=wall_ms - max(0, now_ms - (lock.deadline_ms - lock.visibility_ms)),
        )

    @route(
        "POST",
        "/api/v1/queues/{queue}/locks/settle",
        needs(alter_configs(GROUP, "{queue}"), read(GROUP, "{queue}")),
        Contract(
            "Let go of what others hold",
            "queues",
            {200: LocksSettled},
            "Release, extend, acknowledge or reject messages for whoever holds them. Each stands for itself; the answer names those that were refused.",
            body=(LockAct,),
            problems=(400, 404),
        ),
        max_body_bytes=MIB,
    )
    async def _settle(self, request: Request) -> Answer:
        spec = queue_of(request, self._queues.find)
        wanted = body_of(request, LockAct)
        if wanted.act == "extend" and wanted.visibility is None:
            raise invalid('say for how long: "visibility": "60s"')
        visibility = duration_ms(wanted.visibility or "0", "visibility")
        refused: list[RefusedReceipt] = []
        held: dict[Source, list[tuple[str, Handle]]] = {}
        for text in dict.fromkeys(wanted.locks):
            lock = decode_receipt(text, _names(spec), self._key)
            if isinstance(lock, Rejected):
                refused.append(
                    RefusedReceipt(
                        receipt=text, code=lock.kind.name, detail="this names no lock of this queue"
                    )
                )
            else:
                held.setdefault(Source(spec.name, lock.topic, lock.partition), []).append((text, lock.handle))
        asked = [
            self._ask(wanted, source, [handle for _, handle in group], visibility)
            for source, group in held.items()
        ]
        settled = 0
        for group, refusals in zip(held.values(), await asyncio.gather(*asked), strict=True):
            for (text, _), refusal in zip(group, refusals, strict=True):
                if refusal is None:
                    settled += 1
                else:
                    refused.append(
                        RefusedReceipt(receipt=text, code=refusal.kind.name, detail=refusal.detail)
                    )
        return answer(LocksSettled(settled=settled, refused=refused))

    async def _ask(
        self, wanted: LockAct, source: Source, handles: Sequence[Handle], visibility_ms: int
    ) -> Sequence[Rejected | None]:
        queues = self._queues
        if wanted.act == "ack":
            return await queues.ack(source, handles)
        if wanted.act == "reject":
            return await queues.reject(source, handles, wanted.detail)
        if wanted.act == "extend":
            return await queues.extend(source, handles, visibility_ms)
        return await queues.release(source, handles, 0)


def _names(spec: QueueSpec) -> str:
    """For the MAC: no receipt of the queue is one of its locks, and no lock a receipt."""
    return f"{spec.id} locks"
