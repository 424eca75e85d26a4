"""Door: dead letters one by one: what each says about its death, with a filter, page by page. Nothing is taken (W2, 5.3).

GET /api/v1/queues/{queue}/letters     ?where=&contains=&limit=&cursor=
"""

from __future__ import annotations

from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.names import said
from headrace.broker.queueing.queues import Queues
from headrace.cluster.image import ClusterImage
from headrace.core.ids import TopicPartition
from headrace.core.ports import Clock
from headrace.core.units import is_digits
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.filtering import wanted_records
from headrace.http.rest.forms.letters import Letters, ShownLetter
from headrace.http.rest.forms.looking import WANTED
from headrace.http.rest.masking import masks_for, seen
from headrace.http.rest.reading import answer, invalid, number, queue_of
from headrace.queues.commands import Source
from headrace.records.build import Record
from headrace.records.shown import shown_record
from headrace.security.rights import GROUP, TOPIC, needs, read

STEP_MS = 2_000
MAX_PAGE = 500
LOOKED_AT = 50_000
"""Letters that a step opens at most; then it says where to go on."""


class LetterDoor(Door):
    def __init__(self, clock: Clock, image: ClusterImage, queues: Queues, catalog: QueueCatalog) -> None:
        self._clock = clock
        self._image = image
        self._queues = queues
        self._catalog = catalog

    @route(
        "GET",
        "/api/v1/queues/{queue}/letters",
        needs(read(GROUP, "{queue}"), read(TOPIC, "topics of {queue}")),
        Contract(
            "Dead letters one by one",
            "queues",
            {200: Letters},
            "What a receive could hand out, with what each says about its death. Nothing is taken.",
            query=(
                *WANTED,
                Param("limit", "at most so many", whole(1, 500, 50)),
                Param("cursor", "next_cursor of the page before"),
            ),
        ),
    )
    async def _letters(self, request: Request) -> Answer:
        spec = queue_of(request, self._catalog.find)
        limit = number(request, "limit", 50, 1, MAX_PAGE)
        wanted = wanted_records(request)
        masks = masks_for(request, self._image)
        place, position = _cursor(request.query.get("cursor", "0:0"))
        sources = list(self._queues.sources(spec))
        deadline_ms = self._clock.now_ms() + STEP_MS
        rows: list[ShownLetter] = []
        looked = 0
        async for some in self._queues.walk(spec, LOOKED_AT, place, position):
            for source, record in some:
                looked += 1
                record = seen(masks, source.topic, record)
                if wanted is None or wanted.matches(TopicPartition(source.topic, source.partition), record):
                    rows.append(_shown(source, record))
                if len(rows) == limit:
                    break
            if len(rows) == limit or self._clock.now_ms() >= deadline_ms or looked >= LOOKED_AT:
                following = f"{sources.index(source)}:{record.offset + 1}"
                return answer(Letters(items=rows, looked_at=looked, next_cursor=following))
        return answer(Letters(items=rows, looked_at=looked, next_cursor=None))


def _shown(source: Source, record: Record) -> ShownLetter:
    deliveries = said(record, names.DEAD_DELIVERIES)
    return ShownLetter(
        **shown_record(source.topic, source.partition, record),
        reason=said(record, names.DEAD_REASON),
        source=said(record, names.DEAD_SOURCE),
        error=said(record, names.DEAD_DETAIL),
        deliveries=int(deliveries) if is_digits(deliveries) and len(deliveries) < 16 else 0,
        edited_by=said(record, names.EDITED_BY) or None,
        edited_from=said(record, names.EDITED_FROM) or None,
    )


def _cursor(text: str) -> tuple[int, int]:
    place, _, position = text.partition(":")
    if not all(is_digits(one) and len(one) <= 18 for one in (place, position)):
        raise invalid("the cursor is not one of ours")
    return int(place), int(position)
