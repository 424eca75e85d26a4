"""Door: queues and subscriptions themselves: list, create, change, purge, pause, delete.

GET|POST           /api/v1/queues                     POST also makes subscriptions: {"topics": [...], "filter": "..."}
GET|PATCH|DELETE   /api/v1/queues/{queue}
GET|POST           /api/v1/subscriptions              the same for subscriptions alone: they have "topics"
GET|PATCH|DELETE   /api/v1/subscriptions/{queue}
POST               /api/v1/queues/{queue}/purge | pause | resume
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace
from typing import Any

from msgspec import UNSET, structs

from headrace.broker.history import Lately, QueueNow
from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.core.ids import topic_name_problem
from headrace.core.ports import Clock
from headrace.http.contract import Contract, Param, one_of
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.administration import SORTED
from headrace.http.rest.forms.queues import (
    CHANGE_PROBLEMS,
    KEEP_TOPIC,
    PAGE,
    ListedQueue,
    NewElastic,
    NewQueue,
    NewSubscription,
    Paused,
    Purged,
    QueueChange,
    QueuePage,
    ShownQueue,
)
from headrace.http.rest.paging import SortKeys, page, sorted_window
from headrace.http.rest.reading import answer, body_of, invalid, said
from headrace.http.whole import Whole
from headrace.queues.config import Backoff, QueueConfig, fifo_queue, standard_queue
from headrace.queues.elastic import Elastic
from headrace.records.filters import FilterProblem, compile_filter
from headrace.security.rights import (
    CLUSTER,
    GROUP,
    OWN,
    TOPIC,
    alter_configs,
    create,
    delete,
    describe,
    either,
    needs,
    read,
    write,
)

_CONFIG_FIELDS = {field.name for field in fields(QueueConfig)} & set(QueueChange.__struct_fields__)


_TOPICS = "body.topics[] or body.name"
MAKE_QUEUE = needs(
    alter_configs(GROUP, "body.name"),
    either(create(CLUSTER), create(TOPIC, _TOPICS), read(TOPIC, _TOPICS)),
    write(TOPIC, "topics of body.dead_letter"),
)
"""Its topic is made when it is new; whoever names a dead-letter queue writes to it."""

LISTED = (
    Param("with", "rates: numbers of the shown ones"),
    Param("sort", "name, ready, in_flight, delayed, age or done; - before it turns it round", SORTED),
    *PAGE,
)


def _sort_keys(lately: Lately) -> SortKeys:
    nothing = QueueNow()

    def of(name: str) -> QueueNow:
        return lately.queues.get(name, nothing)

    return {
        "ready": lambda name: of(name).ready,
        "in_flight": lambda name: of(name).in_flight,
        "delayed": lambda name: of(name).delayed,
        # The older, the more: what has no message is younger than everything.
        "age": lambda name: -of(name).oldest_ms if of(name).oldest_ms else -1e15,
        "done": lambda name: of(name).done_per_s,
    }


class AdminQueueDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        new_uuid: Callable[[], str],
        queues: Queues,
        catalog: QueueCatalog,
        whole: Whole,
    ) -> None:
        self._clock = clock
        self._image = image
        self._new_uuid = new_uuid
        self._queues = queues
        self._catalog = catalog
        self._whole = whole

    def _spec(self, request: Request) -> QueueSpec:
        name = request.params["queue"]
        spec = self._queues.find(name)
        if spec is None:
            raise Unknown(
                ErrorKind.NOT_FOUND, f'there is no queue called "{name}"', f"headrace queue create {name}"
            )
        return spec

    # -- what there is -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/queues",
        OWN.showing(describe(GROUP)),
        Contract(
            "List queues",
            "queues",
            {200: QueuePage},
            query=(Param("kind", "only these", one_of("queue", "subscription")), *LISTED),
            problems=(400,),
        ),
    )
    async def _list(self, request: Request) -> Answer:
        kind = request.query.get("kind", "")
        if kind not in ("", "queue", "subscription"):
            raise invalid("kind is queue or subscription")
        return await self._listed(request, kind)

    @route(
        "GET",
        "/api/v1/subscriptions",
        OWN.showing(describe(GROUP)),
        Contract("List subscriptions", "subscriptions", {200: QueuePage}, query=LISTED, problems=(400,)),
    )
    async def _list_subscriptions(self, request: Request) -> Answer:
        return await self._listed(request, "subscription")

    async def _listed(self, request: Request, kind: str) -> Answer:
        specs = {
            spec.name: spec
            for spec in self._catalog.all()
            if kind in ("", spec.kind) and request.sees(GROUP, spec.name)
        }
        wanted = request.query.get("with", "").split(",")
        lately = await self._whole.look() if "rates" in wanted or "sort" in request.query else Lately()
        shown, cursor, total = sorted_window(request, specs, _sort_keys(lately))
        rows = [ListedQueue(**structs.asdict(await self._shown(specs[name]))) for name in shown]
        if "rates" in wanted:
            for row in rows:
                row.done_per_s = round(lately.queues.get(row.name, QueueNow()).done_per_s, 2)
                took_in = (lately.topics[topic].in_per_s for topic in row.topics if topic in lately.topics)
                row.in_per_s = round(sum(took_in), 2)
        return page(request, rows, cursor, total)

    @route(
        "GET",
        "/api/v1/queues/{queue}",
        needs(describe(GROUP, "{queue}")),
        Contract("Look at a queue", "queues", {200: ShownQueue}),
    )
    @route(
        "GET",
        "/api/v1/subscriptions/{queue}",
        needs(describe(GROUP, "{queue}")),
        Contract("Look at a subscription", "subscriptions", {200: ShownQueue}),
    )
    async def _describe(self, request: Request) -> Answer:
        return answer(await self._shown(self._spec(request)))

    async def _shown(self, spec: QueueSpec) -> ShownQueue:
        stats = await self._queues.stats(spec)
        counts = [count for _, count in stats.counts]
        config = spec.queue_config
        sources = self._queues.sources(spec)
        total = len(sources)
        answered = {source for source, _ in stats.counts}
        return ShownQueue(
            name=spec.name,
            kind=spec.kind,
            topics=list(spec.topics),
            fifo=config.fifo,
            ready=sum(count.visible for count in counts),
            in_flight=sum(count.in_flight for count in counts),
            delayed=sum(count.delayed for count in counts),
            dying=sum(count.dying for count in counts),
            oldest_age_ms=stats.oldest_age_ms,
            paused=any(count.paused for count in counts),
            dead_letter=config.dead_letter,
            max_deliveries=config.max_deliveries,
            visibility_ms=config.visibility_ms,
            default_delay_ms=spec.default_delay_ms,
            filter=spec.filter,
            start=spec.start,
            config={name: value for name, value in asdict(config).items() if name != "queue_id"},
            tags=spec.tags,
            dead_letter_of=[
                other.name for other in self._catalog.all() if other.queue_config.dead_letter == spec.name
            ],
            created_ms=spec.created_ms,
            partitions=total,
            unknown_partitions=sum(source not in answered for source in sources),
            active_partitions=min(spec.active or total, total),
            moving=spec.moving_from > 0,
            elastic=spec.elastic,
        )

    # -- changes -------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/queues",
        MAKE_QUEUE,
        Contract("Create a queue", "queues", {201: ShownQueue}, body=(NewQueue,), problems=CHANGE_PROBLEMS),
    )
    async def _create(self, request: Request) -> Answer:
        return await self._make(body_of(request, NewQueue))

    async def _make(self, body: NewQueue) -> Answer:
        name, topics = body.name, body.topics or [body.name]
        problem = topic_name_problem(name)
        if problem is not None:
            raise invalid(f"name: {problem}")
        is_queue = topics == [name]
        if not is_queue:
            for topic in topics:
                if self._image.topic(topic) is None:
                    raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"')
        now_ms = self._clock.wall_ms()
        is_fifo = name.endswith(".fifo") if body.fifo is UNSET else body.fifo
        base = fifo_queue() if is_fifo else standard_queue()
        start = body.start
        if start is UNSET:
            start = "earliest" if is_queue else "latest"
        spec = QueueSpec(
            name=name,
            id=self._new_uuid(),
            topics=tuple(topics),
            kind="queue" if is_queue else "subscription",
            start=start,
            created_ms=now_ms,
            changed_ms=now_ms,
            **_spec_changes(body),
        )
        await self._catalog.create(with_config(spec, self._config(base, body, spec.filter)), body.partitions)
        return answer(await self._shown(self._catalog.spec(name)), 201)

    @route(
        "POST",
        "/api/v1/subscriptions",
        MAKE_QUEUE,
        Contract(
            "Subscribe to topics",
            "subscriptions",
            {201: ShownQueue},
            body=(NewSubscription,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _subscribe(self, request: Request) -> Answer:
        body = body_of(request, NewSubscription)
        if body.topics == [body.name]:
            raise invalid(
                'a subscription has topics: {"name": "billing", "topics": ["orders"]}',
                "POST /api/v1/queues makes a queue with a topic of its own.",
            )
        return await self._make(body)

    @route(
        "DELETE",
        "/api/v1/subscriptions/{queue}",
        needs(delete(GROUP, "{queue}")),
        Contract("Delete a subscription", "subscriptions", {204: None}, "Its topics stay."),
    )
    async def _unsubscribe(self, request: Request) -> Answer:
        spec = self._spec(request)
        if spec.kind != "subscription":
            raise HeadraceError(
                ErrorKind.NOT_FOUND,
                f'"{spec.name}" is a queue, not a subscription',
                f"DELETE /api/v1/queues/{spec.name} deletes it, with its topic.",
            )
        await self._catalog.delete(spec.name, with_topic=False)
        return Response(b"", 204, "")

    @route(
        "PATCH",
        "/api/v1/queues/{queue}",
        needs(alter_configs(GROUP, "{queue}"), write(TOPIC, "topics of body.dead_letter")),
        Contract(
            "Change a queue", "queues", {200: ShownQueue}, body=(QueueChange,), problems=CHANGE_PROBLEMS
        ),
    )
    @route(
        "PATCH",
        "/api/v1/subscriptions/{queue}",
        needs(alter_configs(GROUP, "{queue}"), write(TOPIC, "topics of body.dead_letter")),
        Contract(
            "Change a subscription",
            "subscriptions",
            {200: ShownQueue},
            body=(QueueChange,),
            problems=CHANGE_PROBLEMS,
        ),
    )
    async def _change(self, request: Request) -> Answer:
        spec = self._spec(request)
        body = body_of(request, QueueChange)
        changes = _spec_changes(body)
        config = self._config(spec.queue_config, body, changes.get("filter", spec.filter))
        await self._catalog.change(spec.name, config=with_config(spec, config).config, **changes)
        return answer(await self._shown(self._catalog.spec(spec.name)))

    def _config(self, base: QueueConfig, body: QueueChange, filter_text: str) -> QueueConfig:
        given = {name: value for name in _CONFIG_FIELDS if (value := getattr(body, name)) is not UNSET}
        if body.backoff is not UNSET and body.backoff is not None:
            given["backoff"] = Backoff(**said(body.backoff))
        if given.get("priorities") or base.priorities:
            given.setdefault("fair", False)
        dead_letter = given.get("dead_letter", "")
        if dead_letter and self._queues.find(dead_letter) is None:
            raise Unknown(
                ErrorKind.NOT_FOUND,
                f'there is no queue called "{dead_letter}" for dead letters',
                "POST /api/v1/queues makes one.",
            )
        return replace(base, filtered=bool(filter_text), **given)

    @route(
        "DELETE",
        "/api/v1/queues/{queue}",
        needs(delete(GROUP, "{queue}"), delete(TOPIC, "topics of {queue}")),
        Contract("Delete a queue", "queues", {204: None}, "With its topic.", query=(KEEP_TOPIC,)),
    )
    async def _delete(self, request: Request) -> Answer:
        spec = self._spec(request)
        await self._catalog.delete(spec.name, with_topic=request.query.get("keep_topic") is None)
        return Response(b"", 204, "")

    @route(
        "POST",
        "/api/v1/queues/{queue}/purge",
        needs(delete(GROUP, "{queue}")),
        Contract("Empty a queue", "queues", {200: Purged}),
    )
    async def _purge(self, request: Request) -> Answer:
        spec = self._spec(request)
        stats = await self._queues.stats(spec)
        count = sum(c.visible + c.in_flight + c.delayed for _, c in stats.counts)
        await self._queues.purge(spec, 0)
        return answer(Purged(purged=count))

    @route(
        "POST",
        "/api/v1/queues/{queue}/pause",
        needs(alter_configs(GROUP, "{queue}")),
        Contract("Stop handing out", "queues", {200: Paused}),
    )
    async def _pause(self, request: Request) -> Answer:
        return await self._set_paused(request, True)

    @route(
        "POST",
        "/api/v1/queues/{queue}/resume",
        needs(alter_configs(GROUP, "{queue}")),
        Contract("Go on handing out", "queues", {200: Paused}),
    )
    async def _resume(self, request: Request) -> Answer:
        return await self._set_paused(request, False)

    async def _set_paused(self, request: Request, paused: bool) -> Answer:
        spec = self._spec(request)
        await self._queues.pause(spec, paused=paused)
        return answer(Paused(paused=paused))


def _spec_changes(body: QueueChange) -> dict[str, Any]:
    """What the body says of the queue itself and not of its engine. Raises INVALID_FILTER."""
    changes = {
        name: value
        for name in ("filter", "default_delay_ms", "tags")
        if (value := getattr(body, name)) is not UNSET
    }
    if body.filter:
        try:
            compile_filter(body.filter)
        except FilterProblem as problem:
            raise HeadraceError(ErrorKind.INVALID_FILTER, problem.detail) from None
    if body.elastic is not UNSET:
        changes["elastic"] = None if body.elastic is None else _elastic(body.elastic)
    return changes


def _elastic(given: NewElastic) -> Elastic:
    elastic = Elastic(**said(given))
    problem = elastic.problem()
    if problem is not None:
        raise invalid(problem)
    return elastic
