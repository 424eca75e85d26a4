"""Door: messages that wait for their time, and cron schedules.

GET    /api/v1/queues/{queue}/scheduled?limit=100&cursor=        what waits, in log order
PATCH  /api/v1/queues/{queue}/scheduled/{message id}             {"deliver_at": "..."}: move
DELETE /api/v1/queues/{queue}/scheduled/{message id}             cancel
GET|POST /api/v1/schedules          DELETE /api/v1/schedules/{name}          cron
POST   /api/v1/schedules/{name}/run|pause|resume
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec.structs import asdict

from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.cron import CronSchedule, CronSchedules
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster.image import ClusterImage
from headrace.core.calendar import next_tick_ms
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.moments import rfc3339
from headrace.http.contract import Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.queues import (
    MovedMessage,
    NewTime,
    SchedulePage,
    ShownSchedule,
    WaitingMessage,
    WaitingPage,
)
from headrace.http.rest.reading import answer, invalid, json_object, number, time_ms
from headrace.queues.commands import Source
from headrace.records.shown import shown_record
from headrace.security.rights import GROUP, OWN, TOPIC, alter_configs, describe, needs, write
from headrace.security.standing import StandingOrders

MAX_LISTED = 1_000
UPCOMING = 10


class ScheduleDoor(Door):
    def __init__(
        self,
        image: ClusterImage,
        queues: Queues,
        catalog: QueueCatalog,
        cron: CronSchedules,
        standing: StandingOrders,
    ) -> None:
        self._standing = standing
        self._image = image
        self._queues = queues
        self._catalog = catalog
        self._cron = cron

    def _spec(self, request: Request) -> QueueSpec:
        spec = self._catalog.schedule_spec(request.params["queue"])
        if spec is None:
            raise Unknown(ErrorKind.NOT_FOUND, f'there is no queue called "{request.params["queue"]}"')
        return spec

    # -- messages that wait --------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/queues/{queue}/scheduled",
        needs(describe(GROUP, "{queue}")),
        Contract(
            "Messages that wait for their time",
            "schedules",
            {200: WaitingPage},
            query=(
                Param("limit", "at most so many", whole(1, 1_000, 100)),
                Param("cursor", "next_cursor of the page before"),
            ),
        ),
    )
    async def _waiting(self, request: Request) -> Answer:
        queues = self._queues
        spec = self._spec(request)
        limit = number(request, "limit", 100, 1, MAX_LISTED)
        sources = queues.sources(spec)
        first, offset = _cursor(request.query.get("cursor", ""))
        items: list[WaitingMessage] = []
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
                items.append(WaitingMessage(**shown, message_id=message_id, due_ms=due_ms))
            if len(found) >= left:
                return answer(WaitingPage(items=items, next_cursor=f"{place}.{found[-1][1].offset + 1}"))
            offset = 0
        return answer(WaitingPage(items=items, next_cursor=None))

    def _place(self, request: Request) -> tuple[Source, int]:
        spec = self._spec(request)
        found = names.decode_message_id(request.params["message"])
        for name in spec.topics if found is not None else ():
            topic = self._image.topic(name)
            if topic is not None and found is not None and topic.id[:6] == found.topic_id:
                return Source(spec.name, name, found.partition), found.offset
        raise HeadraceError(ErrorKind.SCHEDULE_NOT_FOUND, "this queue has no message with that id")

    @route(
        "PATCH",
        "/api/v1/queues/{queue}/scheduled/{message}",
        needs(write(TOPIC, "topics of {queue}"), alter_configs(GROUP, "{queue}")),
        Contract("Move a message in time", "schedules", {200: MovedMessage}, body=(NewTime,)),
    )
    async def _move(self, request: Request) -> Answer:
        source, offset = self._place(request)
        due_ms = time_ms(str(json_object(request).get("deliver_at", "")), "deliver_at")
        await self._queues.move_schedule(source, offset, due_ms)
        return answer(MovedMessage(message_id=request.params["message"], due_ms=due_ms))

    @route(
        "DELETE",
        "/api/v1/queues/{queue}/scheduled/{message}",
        needs(write(TOPIC, "topics of {queue}"), alter_configs(GROUP, "{queue}")),
        Contract("Cancel a message", "schedules", {204: None}),
    )
    async def _cancel(self, request: Request) -> Answer:
        source, offset = self._place(request)
        await self._queues.cancel_schedule(source, offset)
        return Response(b"", 204, "")

    # -- cron ----------------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/schedules",
        OWN.showing(describe(TOPIC)),
        Contract("List cron schedules", "schedules", {200: SchedulePage}, problems=()),
    )
    async def _list(self, request: Request) -> Answer:
        items = [_shown(schedule) for schedule in self._cron.all() if request.sees(TOPIC, schedule.topic)]
        return answer(SchedulePage(items=items, next_cursor=None))

    @route(
        "POST",
        "/api/v1/schedules",
        needs(write(TOPIC, "body.topic")),
        Contract("Add or replace a cron schedule", "schedules", {201: ShownSchedule}, body=(CronSchedule,)),
    )
    async def _add(self, request: Request) -> Answer:
        try:
            ours = {
                "last_ms": 0,
                "sent_ms": 0,
                "topic_id": "",
                "asked_ms": 0,
                **self._standing.of(request.access)._asdict(),
            }
            schedule = msgspec.convert({**json_object(request), **ours}, CronSchedule)
        except msgspec.ValidationError as problem:
            raise invalid(str(problem)) from None
        self._need_own(request, schedule.name)
        return answer(_shown(await self._cron.add(schedule)), 201)

    def _need_own(self, request: Request, name: str) -> None:
        """Those of others are the administrator's to replace and to end; who may not see one hears that there is none (A44)."""
        held, access = self._cron.find(name), request.access
        if held is None or access is None or not access.refuses_others(held.owner):
            return
        if not request.sees(TOPIC, held.topic):
            raise Unknown(ErrorKind.SCHEDULE_NOT_FOUND, f'there is no schedule called "{name}"')
        raise HeadraceError(ErrorKind.ACCESS_DENIED, "needs Alter on cluster, for what is somebody else's")

    @route(
        "POST",
        "/api/v1/schedules/{name}/run",
        OWN,
        Contract("Send the message of a cron schedule now", "schedules", {202: ShownSchedule}),
    )
    async def _send_now(self, request: Request) -> Answer:
        return await self._changed(request, self._cron.send_now, 202)

    @route(
        "POST",
        "/api/v1/schedules/{name}/pause",
        OWN,
        Contract("Let the ticks of a cron schedule pass", "schedules", {200: ShownSchedule}),
    )
    async def _pause(self, request: Request) -> Answer:
        return await self._changed(request, self._cron.pause, 200)

    @route(
        "POST",
        "/api/v1/schedules/{name}/resume",
        OWN,
        Contract("Go on with a cron schedule", "schedules", {200: ShownSchedule}),
    )
    async def _resume(self, request: Request) -> Answer:
        return await self._changed(request, self._cron.resume, 200)

    async def _changed(
        self, request: Request, change: Callable[[str], Awaitable[CronSchedule]], status: int
    ) -> Answer:
        self._need_own(request, request.params["name"])
        return answer(_shown(await change(request.params["name"])), status)

    @route(
        "DELETE",
        "/api/v1/schedules/{name}",
        OWN,
        Contract("Remove a cron schedule", "schedules", {204: None}),
    )
    async def _remove(self, request: Request) -> Answer:
        self._need_own(request, request.params["name"])
        await self._cron.remove(request.params["name"])
        return Response(b"", 204, "")


def _shown(schedule: CronSchedule) -> ShownSchedule:
    upcoming = [next_tick_ms(schedule.cron, schedule.last_ms)]
    with suppress(HeadraceError):  # some expressions have a last time
        while len(upcoming) < UPCOMING:
            upcoming.append(next_tick_ms(schedule.cron, upcoming[-1]))
    return ShownSchedule(
        **asdict(schedule),
        next_ms=upcoming[0],
        upcoming=[rfc3339(tick_ms) or "" for tick_ms in upcoming],
    )


def _cursor(text: str) -> tuple[int, int]:
    if not text:
        return 0, 0
    if not re.fullmatch(r"[0-9]{1,6}\.[0-9]{1,18}", text):
        raise invalid("the cursor is not one of ours")
    place, offset = text.split(".")
    return int(place), int(offset)
