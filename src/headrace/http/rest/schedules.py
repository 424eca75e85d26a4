"""Door: messages that wait for their time, and cron schedules.

GET    /api/v1/queues/{queue}/scheduled?limit=100&cursor=        what waits, in log order
PATCH  /api/v1/queues/{queue}/scheduled/{message id}             {"deliver_at": "..."}: move
DELETE /api/v1/queues/{queue}/scheduled/{message id}             cancel
GET|POST /api/v1/schedules          DELETE /api/v1/schedules/{name}          cron
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.cron import CronSchedule, CronSchedules
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster.image import ClusterImage
from headrace.core.calendar import next_tick_ms
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.moments import timed
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.reading import answer, invalid, json_object, number, time_ms
from headrace.http.router import Router
from headrace.queues.commands import Source
from headrace.records.shown import shown_record
from headrace.security.rights import CLUSTER, GROUP, OWN, TOPIC, alter, alter_configs, describe, needs, write

MAX_LISTED = 1_000


class ScheduleDoor:
    def __init__(
        self, image: ClusterImage, queues: Queues, catalog: QueueCatalog, cron: CronSchedules
    ) -> None:
        self._image = image
        self._queues = queues
        self._catalog = catalog
        self._cron = cron

    def mount(self, router: Router) -> None:
        router.add(
            "GET", "/api/v1/queues/{queue}/scheduled", self._waiting, needs(describe(GROUP, "{queue}"))
        )
        router.add(
            "PATCH",
            "/api/v1/queues/{queue}/scheduled/{message}",
            self._move,
            needs(write(TOPIC, "topics of {queue}"), alter_configs(GROUP, "{queue}")),
        )
        router.add(
            "DELETE",
            "/api/v1/queues/{queue}/scheduled/{message}",
            self._cancel,
            needs(write(TOPIC, "topics of {queue}"), alter_configs(GROUP, "{queue}")),
        )
        router.add("GET", "/api/v1/schedules", self._list, OWN.showing(describe(TOPIC)))
        router.add("POST", "/api/v1/schedules", self._add, needs(write(TOPIC, "body.topic")))
        router.add("DELETE", "/api/v1/schedules/{name}", self._remove, needs(alter(CLUSTER)))

    def _spec(self, request: Request) -> QueueSpec:
        spec = self._catalog.schedule_spec(request.params["queue"])
        if spec is None:
            raise Unknown(ErrorKind.NOT_FOUND, f'there is no queue called "{request.params["queue"]}"')
        return spec

    # -- messages that wait --------------------------------------------------------------------------------------------

    async def _waiting(self, request: Request) -> Answer:
        queues = self._queues
        spec = self._spec(request)
        limit = number(request, "limit", 100, 1, MAX_LISTED)
        sources = queues.sources(spec)
        first, offset = _cursor(request.query.get("cursor", ""))
        items: list[dict[str, Any]] = []
        for place in range(first, len(sources)):
            source = sources[place]
            left = limit - len(items)
            topic = self._image.topic(source.topic)
            found = await queues.scheduled(source, offset, left)
            for due_ms, record in found:
                message_id = names.encode_message_id(
                    topic.id if topic else b"", source.partition, record.offset
                )
                shown = shown_record(source.topic, source.partition, record)
                items.append(timed({"message_id": message_id, "due_ms": due_ms, **shown}))
            if len(found) >= left:
                return answer({"items": items, "next_cursor": f"{place}.{found[-1][1].offset + 1}"})
            offset = 0
        return answer({"items": items, "next_cursor": None})

    def _place(self, request: Request) -> tuple[Source, int]:
        spec = self._spec(request)
        found = names.decode_message_id(request.params["message"])
        for name in spec.topics if found is not None else ():
            topic = self._image.topic(name)
            if topic is not None and found is not None and topic.id[:6] == found.topic_id:
                return Source(spec.name, name, found.partition), found.offset
        raise HeadraceError(ErrorKind.SCHEDULE_NOT_FOUND, "this queue has no message with that id")

    async def _move(self, request: Request) -> Answer:
        source, offset = self._place(request)
        due_ms = time_ms(str(json_object(request).get("deliver_at", "")), "deliver_at")
        await self._queues.move_schedule(source, offset, due_ms)
        return answer(timed({"message_id": request.params["message"], "due_ms": due_ms}))

    async def _cancel(self, request: Request) -> Answer:
        source, offset = self._place(request)
        await self._queues.cancel_schedule(source, offset)
        return Response(b"", 204, "")

    # -- cron ----------------------------------------------------------------------------------------------------------

    async def _list(self, request: Request) -> Answer:
        items = [_shown(schedule) for schedule in self._cron.all() if request.sees(TOPIC, schedule.topic)]
        return answer({"items": items, "next_cursor": None})

    async def _add(self, request: Request) -> Answer:
        try:
            schedule = msgspec.convert({**json_object(request), "last_ms": 0, "topic_id": ""}, CronSchedule)
        except msgspec.ValidationError as problem:
            raise invalid(str(problem)) from None
        return answer(_shown(await self._cron.add(schedule)), 201)

    async def _remove(self, request: Request) -> Answer:
        await self._cron.remove(request.params["name"])
        return Response(b"", 204, "")


def _shown(schedule: CronSchedule) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(schedule)
    shown["next_ms"] = next_tick_ms(schedule.cron, schedule.last_ms)
    return timed(shown)


def _cursor(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    if not re.fullmatch(r"[0-9]{1,6}\.[0-9]{1,18}", text):
        raise invalid("the cursor is not one of ours")
    place, offset = text.split(".")
    return int(place), int(offset)
