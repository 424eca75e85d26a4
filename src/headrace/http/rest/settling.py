"""Door: a queue for those who take hundreds at a time: many receipts in one request, and what is not done yet.

POST   /queues/{queue}/settle    {"ack": [receipt, …], "nack": […], "reject": […], "extend": […], "delay": "5s", "detail": "why",
                                 "visibility": "60s"}
GET    /queues/{queue}/left?topic=jobs&partition=0&from=0     offsets that are not done: [first, end] and so on

Each receipt stands for itself: those that are refused are named in the answer,
which is 200 however many they are. Those of one partition are one entry of the queue's journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, Unknown
from headrace.core.limits import MIB
from headrace.core.plan import Rejected
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.messages import Left, RefusedReceipt, Settle, Settled
from headrace.http.rest.reading import answer, body_of, duration_ms, invalid, number
from headrace.queues.commands import Handle, Source
from headrace.queues.receipt import decode_receipt
from headrace.security.rights import GROUP, describe, needs, read

MAX_RECEIPTS = 1_000
MAX_OFFSETS = 10_000
"""As many as are looked at in one go, and in one answer."""

Group = list[tuple[str, Handle]]


class SettleDoor(Door):
    def __init__(self, queues: Queues, receipt_key: bytes) -> None:
        self._queues = queues
        self._key = receipt_key

    def _spec(self, request: Request) -> QueueSpec:
        name = request.params["queue"]
        spec = self._queues.find(name)
        if spec is None:
            raise Unknown(ErrorKind.NOT_FOUND, f'there is no queue called "{name}"')
        return spec

    @route(
        "POST",
        "/queues/{queue}/settle",
        needs(read(GROUP, "{queue}")),
        Contract(
            "Acknowledge, give back, reject or extend many messages",
            "queues",
            {200: Settled},
            "Each receipt stands for itself; the answer names those that were refused.",
            body=(Settle,),
            problems=(400, 404),
        ),
        max_body_bytes=MIB,
    )
    async def _settle(self, request: Request) -> Answer:
        spec = self._spec(request)
        wanted = body_of(request, Settle)
        lists = {"ack": wanted.ack, "nack": wanted.nack, "reject": wanted.reject, "extend": wanted.extend}
        if not 0 < sum(map(len, lists.values())) <= MAX_RECEIPTS:
            raise invalid(f"1 to {MAX_RECEIPTS} receipts in all")
        if wanted.extend and wanted.visibility is None:
            raise invalid('say for how long: "visibility": "60s"')
        visibility = duration_ms(wanted.visibility or "0", "visibility")
        delay = None if wanted.delay is None else duration_ms(wanted.delay, "delay")
        refused: list[RefusedReceipt] = []
        groups: dict[tuple[str, Source], Group] = {}
        for how, receipts in lists.items():
            for text in receipts:
                receipt = decode_receipt(text, spec.id, self._key)
                if isinstance(receipt, Rejected):
                    refused.append(_refused(text, receipt))
                else:
                    source = Source(spec.name, receipt.topic, receipt.partition)
                    groups.setdefault((how, source), []).append((text, receipt.handle))
        asked = [self._ask(*key, [handle for _, handle in group], visibility, delay, wanted.detail)
                 for key, group in groups.items()]  # fmt: skip
        for group, refusals in zip(groups.values(), await asyncio.gather(*asked), strict=True):
            for (text, _), refusal in zip(group, refusals, strict=True):
                if refusal is not None:
                    refused.append(_refused(text, refusal))
        return answer(Settled(refused=refused))

    async def _ask(
        self,
        how: str,
        source: Source,
        handles: Sequence[Handle],
        visibility: int,
        delay: int | None,
        detail: str,
    ) -> Sequence[Rejected | None]:
        queues = self._queues
        if how == "ack":
            return await queues.ack(source, handles)
        if how == "nack":
            return await queues.release(source, handles, delay)
        if how == "reject":
            return await queues.reject(source, handles, detail)
        return await queues.extend(source, handles, visibility)

    @route(
        "GET",
        "/queues/{queue}/left",
        needs(describe(GROUP, "{queue}")),
        Contract(
            "Which messages are not done",
            "queues",
            {200: Left},
            "As offsets of one partition: waiting, handed out or resting; to read them from the log and take nothing.",
            query=(
                Param("topic", "of a subscription to several; else the first"),
                Param("partition", "one of the topic", whole(0, 2**31, 0)),
                Param("from", "not below this offset", whole(0, 2**53, 0)),
            ),
            problems=(400, 404),
        ),
    )
    async def _left(self, request: Request) -> Answer:
        spec = self._spec(request)
        topic = request.query.get("topic", spec.topics[0])
        source = Source(spec.name, topic, number(request, "partition", 0, 0, 2**31))
        if source not in self._queues.sources(spec):
            raise Unknown(ErrorKind.NOT_FOUND, f"{spec.name} has no partition {topic}-{source.partition}")
        runs, following = await self._queues.unfinished(
            source, number(request, "from", 0, 0, 2**53), MAX_OFFSETS
        )
        return answer(Left(runs=runs, next=following))


def _refused(receipt: str, refusal: Rejected) -> RefusedReceipt:
    return RefusedReceipt(receipt=receipt, code=refusal.kind.name, detail=refusal.detail)
