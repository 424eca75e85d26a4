"""Driver: messages by the calendar: a cron expression and what to send each time.

Kept in the coordinator; worked on by the broker that leads partition 0 of the target. A tick that was missed while nobody
led is made up for once. A broker that dies between sending and saying so sends twice: at least once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.broker.hosts import QueueHost
from headrace.broker.metadata import Decision
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.placement.placement import Placement
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Expect, PutKey
from headrace.core.calendar import next_tick_ms
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.records.build import Record

log = logging.getLogger(__name__)

LOOK_S = 1.0
SCHEDULE_HEADER = "headrace-schedule"


class CronSchedule(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    cron: Annotated[str, Meta(max_length=200)]
    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    value: Annotated[str, Meta(max_length=1_048_576)] = ""
    key: str | None = None
    headers: dict[str, str] = {}
    last_ms: int = 0
    """The next tick is the first one after this: when it last sent, or was set."""
    sent_ms: int = 0
    """When it last sent; 0: it has not yet."""
    topic_id: str = ""
    """Of the topic that it was made for, or went on with: what was missed by another of its name is nothing to it."""
    owner: str = ""
    """Who set it: it sends in their name. Empty: it was set while nobody was asked."""
    owner_life: str = ""
    paused: bool = False
    """Its ticks pass, and are not made up for."""
    asked_ms: int = 0
    """When somebody asked for one message now; 0: nobody did, or it is sent."""


class CronSchedules:
    def __init__(self, host: QueueHost, catalog: QueueCatalog, placement: Placement) -> None:
        self._host = host
        self._catalog = catalog
        self._placement = placement
        self._image = host.image
        self.refusal: Callable[[CronSchedule], str] = lambda schedule: ""
        """Why its owner may not send (any more); asked when it is due."""

    def find(self, name: str) -> CronSchedule | None:
        return next((schedule for schedule in self.all() if schedule.name == name), None)

    def all(self) -> list[CronSchedule]:
        found = []
        for raw in self._image.opaque("schedules").values():
            try:
                found.append(msgspec.json.decode(raw, type=CronSchedule))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # X27: of a newer version, or damaged; left alone
        return sorted(found, key=lambda schedule: schedule.name)

    async def add(self, schedule: CronSchedule) -> CronSchedule:
        """Add, or replace one of the same name. The first tick is the next one from now."""
        next_tick_ms(schedule.cron, 0)
        topic = self._image.topic(schedule.topic)
        if topic is None:
            raise Unknown(
                ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{schedule.topic}"'
            )
        wall_ms = self._host.runtime.clock.wall_ms()
        fresh = msgspec.structs.replace(schedule, last_ms=wall_ms, topic_id=topic.id.hex())
        key = keys.opaque("schedules", schedule.name)
        change = Change((), (PutKey(key, msgspec.json.encode(fresh)),), f"schedule {schedule.name}")
        await self._host.metadata.commit(change)
        return fresh

    async def remove(self, name: str) -> None:
        if name not in self._image.opaque("schedules"):
            raise Unknown(ErrorKind.SCHEDULE_NOT_FOUND, f'there is no schedule called "{name}"')
        key = keys.opaque("schedules", name)
        await self._host.metadata.commit(Change((), (DeleteKey(key),), f"schedule {name} ends"))

    async def pause(self, name: str) -> CronSchedule:
        return await self._change(name, paused=True)

    async def resume(self, name: str) -> CronSchedule:
        """It goes on with its next tick."""
        return await self._change(name, paused=False, last_ms=self._host.runtime.clock.wall_ms())

    async def send_now(self, name: str) -> CronSchedule:
        """Whoever leads its target sends one message, paused or not; its next tick stays."""
        return await self._change(name, asked_ms=self._host.runtime.clock.wall_ms())

    async def _change(self, name: str, **changes: int) -> CronSchedule:
        async def decide() -> Decision[CronSchedule]:
            found = self.find(name)
            if found is None:
                raise Unknown(ErrorKind.SCHEDULE_NOT_FOUND, f'there is no schedule called "{name}"')
            fresh = msgspec.structs.replace(found, **changes)
            return Decision((self._replaced(fresh),), fresh)

        return await self._host.metadata.compare_and_swap(decide, "this schedule")

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for schedule in self.all():
                try:
                    await self._tick(schedule)
                except HeadraceError as problem:
                    log.warning("schedule %s: %s", schedule.name, problem.detail)
                except Exception as problem:  # of this one; the others have their ticks too
                    self._host.runtime.unexpected("cron schedules", problem, schedule.name)

    async def _tick(self, schedule: CronSchedule) -> None:
        partition = self._host.partitions.get((schedule.topic, 0))
        wall_ms = self._host.runtime.clock.wall_ms()
        due_ms = next_tick_ms(schedule.cron, schedule.last_ms)
        if partition is None or not partition.is_leader:
            return
        topic_id = partition.topic_id.hex()
        if schedule.topic_id not in ("", topic_id):
            # Made again: it begins with the next tick, and has missed none.
            await self._ticked(schedule, {"last_ms": wall_ms, "topic_id": topic_id}, answered=False)
            return
        is_due = due_ms <= wall_ms and not schedule.paused
        if not is_due and not schedule.asked_ms:
            return
        refusal = self.refusal(schedule)
        if refusal:
            log.warning("schedule %s does not send: %s", schedule.name, refusal)
            await self._ticked(schedule, {"last_ms": wall_ms, "topic_id": topic_id})
            return
        headers = tuple((name, value.encode()) for name, value in schedule.headers.items())
        mark = (SCHEDULE_HEADER, f"{schedule.name}/{schedule.asked_ms or due_ms}".encode())
        key = None if schedule.key is None else schedule.key.encode()
        record = Record(key, schedule.value.encode(), (*headers, mark), wall_ms)
        await self._send(schedule.topic, record)
        noted: dict[str, int | str] = {"sent_ms": wall_ms, "topic_id": topic_id}
        await self._ticked(schedule, noted | {"last_ms": wall_ms} if is_due else noted)

    async def _ticked(
        self, seen: CronSchedule, changes: Mapping[str, int | str], *, answered: bool = True
    ) -> None:
        """Noted with whatever others have changed meanwhile: a note that is lost sends twice. An end stays an end, and who asks for a
        message while one is sent gets another."""

        async def decide() -> Decision[None]:
            held = self.find(seen.name)
            if held is None:
                return Decision((), None)
            asked_ms = 0 if answered and held.asked_ms == seen.asked_ms else held.asked_ms
            return Decision(
                (self._replaced(msgspec.structs.replace(held, asked_ms=asked_ms, **changes)),), None
            )

        await self._host.metadata.compare_and_swap(decide, "this schedule")

    def _replaced(self, fresh: CronSchedule) -> Change:
        place = keys.opaque("schedules", fresh.name)
        compare = Expect(place, "mod", self._image.mod_revision(place))
        return Change((compare,), (PutKey(place, msgspec.json.encode(fresh)),), f"tick of {fresh.name}")

    async def _send(self, topic: str, record: Record) -> None:
        """To a FIFO queue as a message of its group, where the others of it are (R59)."""
        spec = self._catalog.find(topic)
        group = names.header(record.headers, names.GROUP) or record.key
        if spec is None or group is None or not spec.queue_config.fifo:
            await self._placement.send_to_partition(topic, 0, record)
            return
        if names.header(record.headers, names.GROUP) is None:
            record = record._replace(headers=(*record.headers, (names.GROUP, group)))
        await self._placement.send(spec, record, group.decode(errors="replace"))
