"""Door: dead letters of all queues in one look, by what went wrong (5.3).

GET /api/v1/dead-letters             each queue that others use for theirs: how many by reason, source and error
"""

from __future__ import annotations

import asyncio

from headrace.broker.history import Sampler
from headrace.broker.queueing import names
from headrace.broker.queueing.names import said
from headrace.core.folding import folded
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.letters import DeadLetters, LetterKind, LetterQueue
from headrace.http.rest.forms.messages import Whereabouts
from headrace.http.rest.reading import answer, number
from headrace.queues.commands import Source
from headrace.records.build import Record
from headrace.security.rights import GROUP, OWN, describe

LOOKED_AT = 2_000
"""Letters of one queue that a look opens; of more, the first so many are counted, and that is said."""
MAX_KINDS = 200


class DeadLetterDoor(Door):
    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    @route(
        "GET",
        "/api/v1/dead-letters",
        OWN.showing(describe(GROUP)),
        Contract(
            "Dead letters of all queues, by what went wrong",
            "queues",
            {200: DeadLetters},
            problems=(400,),
            query=(
                Param("queue", "only this one"),
                Param("look", "open so many of each at most", whole(1, 2_000, 2_000)),
            ),
        ),
    )
    async def _all(self, request: Request) -> Answer:
        queues = self._sampler.queues
        only = request.query.get("queue")
        of: dict[str, list[str]] = {}
        for spec in queues.specs():
            if spec.queue_config.dead_letter:
                of.setdefault(spec.queue_config.dead_letter, []).append(spec.name)
        rows = []
        for name, sources in sorted(of.items()):
            if (only is not None and name != only) or not request.sees(GROUP, name):
                continue
            rows.append(await self._one(name, sources, number(request, "look", LOOKED_AT, 1, LOOKED_AT)))
        return answer(DeadLetters(items=rows, next_cursor=None))

    async def _one(self, name: str, sources: list[str], most: int) -> LetterQueue:
        queues = self._sampler.queues
        spec = queues.find(name)
        waiting = await queues.waiting(spec) if spec is not None else 0
        found = await queues.peek(spec, most) if spec is not None and waiting else []
        kinds: dict[tuple[str, str, str], LetterKind] = {}
        for place, (source, record) in enumerate(found, 1):
            _count(kinds, source, record)
            if place % 100 == 0:
                await asyncio.sleep(0)
        ordered = sorted(kinds.values(), key=lambda kind: (-kind.count, kind.reason, kind.error))
        return LetterQueue(
            queue=name,
            of=sorted(sources),
            messages=waiting,
            looked_at=len(found),
            kinds=ordered[:MAX_KINDS],
        )


def _count(kinds: dict[tuple[str, str, str], LetterKind], source: Source, record: Record) -> None:
    key = (
        said(record, names.DEAD_REASON) or "sent here",
        said(record, names.DEAD_SOURCE),
        folded(said(record, names.DEAD_DETAIL)),
    )
    kind = kinds.get(key)
    if kind is None:
        kind = kinds[key] = LetterKind(
            reason=key[0],
            source=key[1],
            error=key[2],
            count=0,
            first_ms=record.timestamp,
            last_ms=record.timestamp,
            example=Whereabouts(topic=source.topic, partition=source.partition, offset=record.offset),
        )
    kind.count += 1
    kind.first_ms = min(kind.first_ms, record.timestamp)
    kind.last_ms = max(kind.last_ms, record.timestamp)
