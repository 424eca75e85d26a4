"""Driver: move tasks: the messages of a dead-letter queue back to where they came from, or to another queue; edited; or discarded.

One task for each source queue at a time. Each message moves in one transaction (R60), so a task that is killed has moved
some messages and not the others, and none twice. What is known about tasks is kept in the coordinator; a task whose broker
died is shown as failed, and can be started again. The broker that was asked runs the task; each broker moves what it leads,
the others batch by batch when they are told to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from headrace.broker.hosts import QueueHost
from headrace.broker.queueing import names
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.layout import Layouts
from headrace.broker.queueing.local.local_queues import LocalQueues
from headrace.broker.queueing.moves.acts import ActName, MoveAct
from headrace.broker.queueing.moves.transfers import NotMoved, Transfers
from headrace.broker.queueing.placement.placement import Placement
from headrace.broker.queueing.routing.peer_calls import AskMove, DeliveredMessage, MovedSome
from headrace.broker.queueing.routing.router import QueueRouter
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.queueing.specs import QueueSpec
from headrace.cluster import keys
from headrace.cluster.changes import Change, Expect, PutKey
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import TopicPartition
from headrace.queues import commands as engine
from headrace.queues.commands import Handle, Source
from headrace.records.build import Record
from headrace.records.filters import Filter, FilterInput, FilterProblem, compile_filter

log = logging.getLogger(__name__)

LOOKED_AT = 100_000
LOOK_MS = 5_000
"""A dry run that has to read messages reads so many at most, and no longer than that."""
SAMPLES = 3

KEPT_TASKS = 10
BATCH = 50
LEASE_MS = 60_000
SAVE_MS = 2_000
PAUSE_S = 0.5
MAX_FAILURES = 20
MOVE_S = 30.0

Status = Literal["DRY_RUN", "RUNNING", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class MoveTask(msgspec.Struct, kw_only=True):
    id: str
    source: str
    destination: str = ""
    """Empty: where each message came from."""
    rate: int = 0
    """Messages per second; 0 is as fast as it goes."""
    filter: str = ""
    limit: int = 0
    status: Status = "RUNNING"
    moved: int = 0
    to_move: int = 0
    started_ms: int = 0
    failure: str = ""
    runner: str = ""
    """The incarnation of the broker that works on it."""
    queue_id: str = ""
    """Of the source: tasks of a queue that was deleted are not its successor's."""
    act: ActName = "redrive"
    edits: list[str] = []
    by: str = ""
    """Who asked for it."""
    owner: str = ""
    """In whose name it writes; empty: nobody's."""
    owner_life: str = ""
    skipped: int = 0
    """Left alone because the edits do not fit them."""


class EditSample(NamedTuple):
    """What an edit would make of a message."""

    source: Source
    before: Record
    after: Record


class MovePlan(NamedTuple):
    task: MoveTask
    samples: list[EditSample]


class _Held(NamedTuple):
    """Read and left alone: they stay leased until the task ends, so that they are not read over and over."""

    source: Source
    handle: Handle


class _Share:
    """What one broker does of a task: up to where its partitions reached when it began, and what it left alone."""

    __slots__ = ("accepts", "act", "ends", "held", "used_ms")

    def __init__(self, accepts: Filter | None, act: MoveAct, ends: dict[Source, int], now_ms: int) -> None:
        self.accepts = accepts
        self.act = act
        self.ends = ends
        self.held: list[_Held] = []
        self.used_ms = now_ms


class MoveTasks:
    def __init__(
        self,
        host: QueueHost,
        catalog: QueueCatalog,
        layouts: Layouts,
        local: LocalQueues,
        router: QueueRouter,
        placement: Placement,
        transfers: Transfers,
    ) -> None:
        self._host = host
        self._catalog = catalog
        self._layouts = layouts
        self._local = local
        self._router = router
        self._placement = placement
        self._transfers = transfers
        self._running: dict[str, MoveTask] = {}
        """By id: what this broker works on, from before it is kept until what became of it is."""
        self._shares: dict[str, _Share] = {}
        """By task, also for tasks that other brokers run."""
        self.moved_total = 0
        self.refusal: Callable[[str, str, str], str] = lambda owner, life, topic: ""
        """Why a user, in one of their lives, may not write to a topic; empty: they may."""

    # -- what the doors ask ------------------------------------------------------------------------------------------

    def tasks(self, queue: str) -> list[MoveTask]:
        """The latest first."""
        spec = self._catalog.find(queue)
        found = []
        for task in self._stored(queue):
            if spec is not None and task.queue_id not in ("", spec.id):
                continue
            if (running := self._running.get(task.id)) is not None:
                task = running
            elif task.status in ("RUNNING", "CANCELLING") and not self._runner_lives(task):
                task.status, task.failure = "FAILED", "the broker that worked on it was stopped"
            found.append(task)
        return found

    def find(self, task_id: str) -> MoveTask | None:
        for queue in self._host.image.opaque("moves"):
            for task in self.tasks(queue):
                if task.id == task_id:
                    return task
        return None

    async def plan(self, task: MoveTask) -> MovePlan:
        """What `start` would do to what is there now, by the same filter; nothing happens and nothing is kept (F13)."""
        spec, accepts, act = self._checked(task)
        stats = await self._router.stats(spec)
        visible = sum(count.visible for _, count in stats.counts)
        task.status, task.to_move = "DRY_RUN", visible
        samples: list[EditSample] = []
        if accepts is not None or act.changes:
            looked = await self._look_through(task, spec, accepts, act, samples)
            if looked < visible:
                task.failure = f"counted in the first {looked} of {visible} messages"
        if task.limit:
            task.to_move = min(task.to_move, task.limit)
        return MovePlan(task, samples)

    async def _look_through(
        self, task: MoveTask, spec: QueueSpec, accepts: Filter | None, act: MoveAct, samples: list[EditSample]
    ) -> int:
        """How many were looked at; what was found is in the task."""
        clock = self._host.runtime.clock
        deadline_ms, wall_ms = clock.now_ms() + LOOK_MS, clock.wall_ms()
        task.to_move = looked = 0
        async for found in self._router.walk(spec, LOOKED_AT):
            looked += len(found)
            for one in found:
                if accepts is not None and not _accepts(accepts, *one):
                    continue
                if not act.fits(one[1]):
                    task.skipped += 1
                    continue
                task.to_move += 1
                if act.changes and len(samples) < SAMPLES:
                    samples.append(EditSample(*one, act.written(*one, wall_ms)))
            if clock.now_ms() >= deadline_ms:
                break
        return looked

    def _checked(self, task: MoveTask) -> tuple[QueueSpec, Filter | None, MoveAct]:
        spec = self._catalog.spec(task.source)
        act = MoveAct(task.act, task.edits, task.by)
        if task.destination:
            self._catalog.spec(task.destination)
            if task.act != "redrive":
                raise HeadraceError(ErrorKind.INVALID_PARAMETER, f"{task.act} has no destination")
        if task.act == "edit" and spec.kind != "queue":
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{spec.name} is a subscription: others read the same records, which can't be edited for one of them",
                "Edit them on the way back: redrive with the same edits.",
            )
        return spec, _compiled(task.filter), act

    async def start(self, task: MoveTask) -> MoveTask:
        """Fails when the queue has an active task, or the filter is not understood. `id` and times are filled in."""
        spec, _, _ = self._checked(task)
        if any(known.status in ("RUNNING", "CANCELLING") for known in self.tasks(task.source)):
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                "There is already a task running. Only one active task is allowed for a source queue "
                "at a given time.",
            )
        task.id = self._host.new_uuid()
        task.queue_id = spec.id
        task.started_ms = self._host.runtime.clock.wall_ms()
        stats = await self._router.stats(spec)
        task.to_move = sum(count.visible for _, count in stats.counts)
        task.runner = self._incarnation()
        self._running[task.id] = task
        is_kept = False
        try:
            is_kept = await self._save(task, is_new=True)
        finally:
            if not is_kept:
                del self._running[task.id]
        if not is_kept:
            raise HeadraceError(ErrorKind.CONFLICT, "another task was started at the same time")
        self._host.runtime.spawn(self._run(task, spec), f"move messages of {task.source}")
        return task

    async def cancel(self, task_id: str) -> MoveTask:
        """What was moved stays moved."""
        task = self.find(task_id)
        if task is None:
            raise Unknown(ErrorKind.RESOURCE_NOT_FOUND, "The task handle does not name a task.")
        for node in self._host.image.live_brokers():
            if node.registration.incarnation == task.runner and node.id != self._host.node_id:
                raise WrongBroker(node.id, f"the move of {task.source}")
        running = self._running.get(task_id)
        if running is None or running.status != "RUNNING":
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER, f"Only active tasks can be cancelled; this one is {task.status}."
            )
        running.status = "CANCELLING"
        return running

    # -- the work ----------------------------------------------------------------------------------------------------

    async def _run(self, task: MoveTask, spec: QueueSpec) -> None:
        status: Status = "COMPLETED"
        failure = ""
        try:
            await self._move_all(task, spec)
        except HeadraceError as problem:
            status, failure = "FAILED", problem.detail
        finally:
            for place in self._places(spec):
                try:
                    await self._move_at(place, spec, task, 0)
                except HeadraceError as problem:
                    log.info(
                        "%s: what the move left alone comes back by itself: %s", spec.name, problem.detail
                    )
        if status == "COMPLETED" and task.status == "CANCELLING":
            status = "CANCELLED"
        await self._end(msgspec.structs.replace(task, status=status, failure=failure))

    async def _end(self, ended: MoveTask) -> None:
        """It goes on for everybody until its end is written down."""
        while True:
            if await self._save(ended):
                break
            await asyncio.sleep(PAUSE_S)
        del self._running[ended.id]

    async def _move_all(self, task: MoveTask, spec: QueueSpec) -> None:
        clock = self._host.runtime.clock
        began_ms = saved_ms = clock.now_ms()
        failures = 0
        exhausted: set[int] = set()
        while task.status == "RUNNING" and not (task.limit and task.moved >= task.limit):
            if self._catalog.spec(spec.name).id != spec.id:
                raise HeadraceError(ErrorKind.QUEUE_DOES_NOT_EXIST, f"the queue {spec.name} was deleted")
            places = [place for place in self._places(spec) if place not in exhausted]
            if not places:
                return
            for place in places:
                room = task.limit - task.moved if task.limit else BATCH
                count = min(BATCH, room, task.rate or BATCH)
                if count <= 0 or task.status != "RUNNING":
                    break
                try:
                    moved = await self._move_at(place, spec, task, count)
                    failures = 0
                except HeadraceError as problem:
                    failures += 1
                    if failures >= MAX_FAILURES or not problem.kind.info.retriable:
                        raise
                    await asyncio.sleep(PAUSE_S)
                    continue
                task.moved += moved.moved
                task.skipped += moved.skipped
                if moved.exhausted:
                    exhausted.add(place)
                if task.rate:
                    due_ms = began_ms + task.moved * 1000 // task.rate
                    await asyncio.sleep(max(0, due_ms - clock.now_ms()) / 1000)
            if clock.now_ms() - saved_ms >= SAVE_MS:
                saved_ms = clock.now_ms()
                await self._save(task)

    def _places(self, spec: QueueSpec) -> list[int]:
        """The brokers that lead a part of the queue."""
        here = [self._host.node_id] if self._layouts.of(spec).local else []
        return here + self._router.others(spec)

    async def _move_at(self, place: int, spec: QueueSpec, task: MoveTask, count: int) -> MovedSome:
        ask = AskMove(
            queue=spec.name,
            queue_id=spec.id,
            task_id=task.id,
            destination=task.destination,
            filter=task.filter,
            count=count,
            act=task.act,
            edits=tuple(task.edits),
            by=task.by,
            owner=task.owner,
            owner_life=task.owner_life,
        )
        if place == self._host.node_id:
            return await self.move_for_another(spec, ask)
        moved: MovedSome = await self._router.ask(place, ask, MOVE_S)
        return moved

    async def move_for_another(self, spec: QueueSpec, ask: AskMove) -> MovedSome:
        """One batch of what this broker leads; with a count of 0, the end of its share in the task."""
        now_ms = self._host.runtime.clock.now_ms()
        for task_id, old in list(self._shares.items()):
            if now_ms - old.used_ms > LEASE_MS:  # its runner is gone, and so are its leases
                del self._shares[task_id]
        if not ask.count:
            share = self._shares.pop(ask.task_id, None)
            await self._release(share.held if share is not None else [])
            return MovedSome(0, True)
        share = self._shares.get(ask.task_id)
        if share is None:
            ends = {source: count.end_offset for source, count in self._local.counts(spec)}
            act = MoveAct(ask.act, list(ask.edits), ask.by)
            share = self._shares[ask.task_id] = _Share(_compiled(ask.filter), act, ends, now_ms)
        share.used_ms = now_ms
        found = await self._local.receive(spec, ask.count, visibility_ms=LEASE_MS, owner="move-task")
        if not found:
            return MovedSome(0, True)
        wanted = []
        skipped = 0
        for one in found:
            # What came after the start is not of this task: else a poison message would go round for ever.
            is_of_task = one.handle.offset < share.ends.get(one.source, 0) and _matches(share.accepts, one)
            if is_of_task and share.act.fits(one.record):
                wanted.append(one)
            else:
                skipped += is_of_task
                share.held.append(_Held(one.source, one.handle))
        try:
            if share.act.name == "discard":
                moved = await self._discard(wanted)
            else:
                moved = await self._move(share.act, ask, wanted)
        except NotMoved:
            await self._release([_Held(one.source, one.handle) for one in wanted])
            raise
        return MovedSome(moved, False, skipped)

    async def _release(self, held: list[_Held]) -> None:
        for source in {one.source: None for one in held}:
            handles = [one.handle for one in held if one.source == source]
            await self._local.release(source, handles, 0)

    async def _discard(self, deliveries: list[DeliveredMessage]) -> int:
        """How many: somebody else may have some of them by now."""
        done = 0
        for source, batch in _by_source(deliveries).items():
            refused = await self._local.ack(source, [one.handle for one in batch])
            done += sum(one is None for one in refused)
        return done

    async def _move(self, act: MoveAct, ask: AskMove, deliveries: list[DeliveredMessage]) -> int:
        wall_ms = self._host.runtime.clock.wall_ms()
        for source, batch in _by_source(deliveries).items():
            letters: dict[TopicPartition, list[Record]] = {}
            for one in batch:
                # Edited where it is: in the same partition, behind the end of what this task looks at.
                target = (
                    TopicPartition(source.topic, source.partition)
                    if act.name == "edit"
                    else self._target(ask.destination, one.record)
                )
                self._need_may_write(ask, target.topic)
                letters.setdefault(target, []).append(act.written(source, one.record, wall_ms))
            handles = tuple(one.handle for one in batch)
            await self._transfers.transfer(
                self._layouts.hosted(source).load,
                letters,
                engine.Ack(source, handles, engine.Outcome.MOVED),
            )
            self.moved_total += len(batch)
        return len(deliveries)

    def _need_may_write(self, ask: AskMove, topic: str) -> None:
        """Where a message came from stands in a header, and whoever writes to a queue may have written that."""
        lacking = self.refusal(ask.owner, ask.owner_life, topic)
        if lacking:
            raise NotMoved(ErrorKind.ACCESS_DENIED, lacking)

    def _target(self, destination: str, record: Record) -> TopicPartition:
        raw = names.header(record.headers, names.DEAD_SOURCE)
        name = destination or (raw or b"").decode(errors="replace")
        spec = self._catalog.find(name)
        if spec is None:
            raise NotMoved(
                ErrorKind.QUEUE_DOES_NOT_EXIST,
                f"the queue {name} does not exist"
                if name
                else "a message does not say which queue it came from; name a destination",
            )
        try:
            return self._placement.choose_for_moved(spec, record)
        except HeadraceError as problem:
            raise NotMoved(problem.kind, problem.detail) from None

    # -- what is kept --------------------------------------------------------------------------------------------------

    def _stored(self, queue: str) -> list[MoveTask]:
        raw = self._host.image.opaque("moves").get(queue)
        try:
            return [] if raw is None else msgspec.json.decode(raw, type=list[MoveTask])
        except msgspec.DecodeError:
            return []

    async def _save(self, task: MoveTask, *, is_new: bool = False) -> bool:
        others = [one for one in self.tasks(task.source) if one.id != task.id]
        key = keys.opaque("moves", task.source)
        known = sorted([task, *others], key=lambda one: one.started_ms, reverse=True)
        value = msgspec.json.encode(known[:KEPT_TASKS])
        compares = (Expect(key, "mod", self._host.image.mod_revision(key)),) if is_new else ()
        try:
            result = await self._host.metadata.commit(
                Change(compares, (PutKey(key, value),), f"move task of {task.source}: {task.status}")
            )
        except HeadraceError as problem:
            if is_new:
                raise
            log.warning("the progress of the move of %s is not saved: %s", task.source, problem.detail)
            return False
        return result.succeeded

    def _incarnation(self) -> str:
        me = self._host.image.broker(self._host.node_id)
        return "" if me is None else me.registration.incarnation

    def _runner_lives(self, task: MoveTask) -> bool:
        mine = task.runner == self._incarnation()
        return not mine and any(
            node.registration.incarnation == task.runner for node in self._host.image.live_brokers()
        )


def _by_source(deliveries: list[DeliveredMessage]) -> dict[Source, list[DeliveredMessage]]:
    found: dict[Source, list[DeliveredMessage]] = {}
    for one in deliveries:
        found.setdefault(one.source, []).append(one)
    return found


def _compiled(text: str) -> Filter | None:
    if not text:
        return None
    try:
        return compile_filter(text)
    except FilterProblem as problem:
        raise HeadraceError(ErrorKind.INVALID_FILTER, problem.detail) from None


def _matches(accepts: Filter | None, one: DeliveredMessage) -> bool:
    return accepts is None or _accepts(accepts, one.source, one.record)


def _accepts(accepts: Filter, source: Source, record: Record) -> bool:
    return accepts.matches(
        FilterInput(
            record.key,
            record.value,
            record.headers,
            record.timestamp,
            record.offset,
            source.topic,
            source.partition,
        )
    )
