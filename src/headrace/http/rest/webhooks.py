"""Door: webhooks: add, look at, change, test, pause, resume, confirm, retry, remove, and what became of deliveries.

GET|POST           /api/v1/webhooks                          POST {"queue": "jobs", "url": "https://…"}; with "topics" the queue is
                                                             made: a subscription over them, with "filter", "start", "fifo"
GET|PATCH|DELETE   /api/v1/webhooks/{webhook}
POST               /api/v1/webhooks/{webhook}/test | pause | resume | retry | confirm | rotate-secret
GET                /api/v1/webhooks/{webhook}/deliveries?limit=50&failed

A secret is in the answer to the request that made it, and never again (X25). Numbers come from every broker that works on a webhook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.routing.wrong_broker import WrongBroker
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, HeadraceError, NameTaken, Unknown
from headrace.core.ids import topic_name_problem
from headrace.core.ports import Clock
from headrace.http.contract import FLAG, Contract, Param, whole
from headrace.http.declared import Door, route
from headrace.http.forwarding import Forwarder
from headrace.http.messages import Answer, Request, Response
from headrace.http.rest.forms.webhooks import (
    PROBLEMS,
    TAG,
    AddedWebhook,
    Confirmation,
    DeliveryPage,
    NewSecret,
    Retried,
    RetryRequest,
    Rotated,
    ShownDelivery,
    ShownWebhook,
    Tested,
    WebhookPage,
)
from headrace.http.rest.reading import answer, body_of, invalid, number
from headrace.push.bodies import Form
from headrace.push.circuit import CircuitState
from headrace.push.couriers import Couriers
from headrace.push.delivery_log import KEPT
from headrace.push.signature import SigningSecret
from headrace.push.spec import MAX_BATCH, MAX_CONCURRENCY, Name, Retry, WebhookSpec
from headrace.push.target import BadTarget, parse_target
from headrace.queues.config import fifo_queue, standard_queue
from headrace.records.filters import FilterProblem, compile_filter
from headrace.security.rights import GROUP, OWN, TOPIC, alter_configs, describe, needs, read, write
from headrace.security.standing import StandingOrders

T = TypeVar("T", bound=msgspec.Struct)

PEER_S = 2.0
"""A broker that does not answer in time is left out."""
CONFIRM_S = 5.0
"""How long adding waits for the endpoint to confirm; it may do so later, too."""
_CIRCUITS = [CircuitState.CLOSED.value, CircuitState.HALF_OPEN.value, CircuitState.OPEN.value]
"""From good to bad."""
HINT = "--webhook-allow-http, --webhook-networks and --webhook-ports of headrace serve allow more, for development"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said about a webhook, now or later."""

    url: Annotated[str, Meta(min_length=1, max_length=2_048)] | msgspec.UnsetType = msgspec.UNSET
    form: Form | msgspec.UnsetType = msgspec.UNSET
    batch_size: Annotated[int, Meta(ge=1, le=MAX_BATCH)] | msgspec.UnsetType = msgspec.UNSET
    batch_wait_ms: Annotated[int, Meta(ge=0, le=60_000)] | msgspec.UnsetType = msgspec.UNSET
    timeout_ms: Annotated[int, Meta(ge=100, le=30_000)] | msgspec.UnsetType = msgspec.UNSET
    max_concurrency: Annotated[int, Meta(ge=1, le=MAX_CONCURRENCY)] | msgspec.UnsetType = msgspec.UNSET
    rate: Annotated[float, Meta(ge=0, le=1_000_000)] | msgspec.UnsetType = msgspec.UNSET
    retry: Retry | msgspec.UnsetType = msgspec.UNSET

    def given(self) -> dict[str, Any]:
        return {
            name: value
            for name in Options.__struct_fields__
            if (value := getattr(self, name)) is not msgspec.UNSET
        }


class NewWebhook(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: Annotated[str, Meta(min_length=1, max_length=249)]
    name: Name | None = None
    secret: Annotated[str, Meta(max_length=200)] | None = None
    topics: Annotated[list[str], Meta(max_length=100)] = []
    filter: Annotated[str, Meta(max_length=10_000)] = ""
    start: Literal["earliest", "latest"] = "latest"
    fifo: bool = False
    dead_letter: str = ""
    max_deliveries: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


LOOK = needs(describe(GROUP, "queue of {webhook}"))
CHANGE = needs(
    alter_configs(GROUP, "queue of {webhook}"),
    read(GROUP, "queue of {webhook}"),
    read(TOPIC, "topics of queue of {webhook}"),
)


class WebhookDoor(Door):
    def __init__(
        self,
        clock: Clock,
        image: ClusterImage,
        new_uuid: Callable[[], str],
        queues: Queues,
        catalog: QueueCatalog,
        couriers: Couriers,
        forwarder: Forwarder,
        standing: StandingOrders,
    ) -> None:
        self._standing = standing
        self._clock = clock
        self._image = image
        self._new_uuid = new_uuid
        self._queues = queues
        self._catalog = catalog
        self._couriers = couriers
        self._registry = couriers.registry
        self._forwarder = forwarder

    def _spec(self, request: Request) -> WebhookSpec:
        return self._registry.get(request.params["webhook"])

    # -- what there is -------------------------------------------------------------------------------------------------

    @route(
        "GET",
        "/api/v1/webhooks",
        OWN.showing(describe(GROUP)),
        Contract("List webhooks", TAG, {200: WebhookPage}, problems=()),
    )
    async def _list(self, request: Request) -> Answer:
        shown = {
            spec.name: self._shown(spec) for spec in self._registry.all() if request.sees(GROUP, spec.queue)
        }
        for other in await self._others(request, WebhookPage):
            for item in other.items:
                if item.name in shown:
                    _merge(shown[item.name], item)
        return answer(WebhookPage(items=list(shown.values()), next_cursor=None))

    @route("GET", "/api/v1/webhooks/{webhook}", LOOK, Contract("Look at a webhook", TAG, {200: ShownWebhook}))
    async def _describe(self, request: Request) -> Answer:
        shown = self._shown(self._spec(request))
        for other in await self._others(request, ShownWebhook):
            _merge(shown, other)
        return answer(shown)

    def _shown(self, spec: WebhookSpec) -> ShownWebhook:
        courier = self._couriers.courier(spec)
        last = courier.log.last if courier is not None else None
        works = courier is not None and courier.is_running
        reason = spec.reason or self._couriers.unconfirmed.get(spec.id, "")
        if courier is not None and courier.problem:
            reason = courier.problem
        if self._queues.find(spec.queue) is None:
            reason = f"the queue {spec.queue} does not exist"
        return ShownWebhook(
            name=spec.name,
            queue=spec.queue,
            url=spec.url,
            state=spec.state,
            reason=reason,
            form=spec.form,
            batch_size=spec.batch_size,
            batch_wait_ms=spec.batch_wait_ms,
            timeout_ms=spec.timeout_ms,
            max_concurrency=spec.max_concurrency,
            rate=spec.rate,
            retry=spec.retry,
            owner=spec.owner,
            secrets=len(self._registry.signing(spec.name)),
            created_ms=spec.created_ms,
            confirmed_ms=spec.confirmed_ms,
            delivered=courier.log.delivered if courier is not None else 0,
            failed=courier.log.failed if courier is not None else 0,
            in_flight=courier.in_flight if courier is not None else 0,
            concurrency=courier.limit.limit if courier is not None and works else 0,
            circuit=courier.circuit.state.value if courier is not None else CircuitState.CLOSED.value,
            last_ms=last.at_ms if last is not None else 0,
            last_status=last.status if last is not None else 0,
            last_detail=last.detail if last is not None else "",
        )

    @route(
        "GET",
        "/api/v1/webhooks/{webhook}/deliveries",
        LOOK,
        Contract(
            "The delivery log",
            TAG,
            {200: DeliveryPage},
            query=(
                Param("limit", "the newest so many", whole(1, KEPT, 50)),
                Param("failed", "only these", FLAG),
            ),
        ),
    )
    async def _deliveries(self, request: Request) -> Answer:
        spec = self._spec(request)
        limit = number(request, "limit", 50, 1, KEPT)
        courier = self._couriers.courier(spec)
        found = (
            courier.log.newest(limit, failed_only="failed" in request.query) if courier is not None else []
        )
        items = [ShownDelivery(**entry._asdict()) for entry in found]
        for other in await self._others(request, DeliveryPage):
            items += other.items
        items.sort(key=lambda item: item.at_ms, reverse=True)
        return answer(DeliveryPage(items=items[:limit], next_cursor=None))

    async def _others(self, request: Request, kind: type[T]) -> list[T]:
        """What the other brokers say to the same request; nothing when one of them asks."""
        if request.sender is not None:
            return []
        me = self._image.broker_id
        asked = [self._ask(request, node.id, kind) for node in self._image.live_brokers() if node.id != me]
        return [found for found in await asyncio.gather(*asked) if found is not None]

    async def _ask(self, request: Request, broker_id: int, kind: type[T]) -> T | None:
        try:
            async with asyncio.timeout(PEER_S):
                got = await self._forwarder.forward(request, WrongBroker(broker_id, request.path))
            return msgspec.json.decode(got.body, type=kind) if got.status == 200 else None
        except (HeadraceError, TimeoutError, msgspec.DecodeError):
            return None

    # -- changes -------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/webhooks",
        needs(
            alter_configs(GROUP, "body.queue"),
            read(GROUP, "body.queue"),
            read(TOPIC, "topics of body.queue", "body.topics[]"),
            write(TOPIC, "topics of body.dead_letter"),
        ),
        Contract("Add a webhook", TAG, {201: AddedWebhook}, body=(NewWebhook,), problems=PROBLEMS),
    )
    async def _add(self, request: Request) -> Answer:
        wanted = body_of(request, NewWebhook)
        if wanted.url is msgspec.UNSET:
            raise invalid("url: where to?")
        self._check_url(wanted.url)
        secret = _given_secret(wanted.secret) or self._registry.new_secret()
        name = wanted.name or self._registry.free_name(wanted.queue)
        if self._registry.find(name) is not None:
            raise NameTaken(ErrorKind.CONFLICT, f'a webhook called "{name}" exists already')
        now_ms = self._clock.wall_ms()
        spec = WebhookSpec(
            name=name,
            id=self._new_uuid(),
            queue=wanted.queue,
            owns_queue=bool(wanted.topics),
            created_ms=now_ms,
            changed_ms=now_ms,
            **self._standing.of(request.access)._asdict(),
            **wanted.given(),
        )
        await self._ensure_queue(wanted)
        try:
            spec = await self._registry.add(spec, secret)
        except HeadraceError:
            if wanted.topics:
                await self._catalog.delete(wanted.queue, with_topic=False)
            raise
        await self._couriers.wait_for_confirmation(spec, CONFIRM_S)
        shown = self._shown(self._registry.get(spec.name))
        added = AddedWebhook(**asdict(shown), secret=secret.reveal())
        return answer(added, 201, (("cache-control", "no-store"),))

    def _check_url(self, url: str) -> None:
        try:
            parse_target(url, self._couriers.client.rules)
        except BadTarget as problem:
            raise HeadraceError(ErrorKind.INVALID_REQUEST, str(problem), HINT) from None

    async def _ensure_queue(self, wanted: NewWebhook) -> None:
        """One that is there; or, when topics are named, a subscription that is made for this webhook."""
        if not wanted.topics:
            if wanted.filter or wanted.fifo or wanted.dead_letter or wanted.max_deliveries:
                raise invalid(
                    "filter, fifo, dead_letter and max_deliveries belong to the queue",
                    "name topics, and a subscription with them is made; or PATCH /api/v1/queues/{queue}",
                )
            if self._queues.find(wanted.queue) is None:
                raise Unknown(
                    ErrorKind.NOT_FOUND,
                    f'there is no queue called "{wanted.queue}"',
                    f"headrace queue create {wanted.queue}, or name topics (--topic) to subscribe to them",
                )
            return
        if (problem := topic_name_problem(wanted.queue)) is not None:
            raise invalid(f"queue: {problem}")
        for topic in wanted.topics:
            if self._image.topic(topic) is None:
                raise Unknown(ErrorKind.UNKNOWN_TOPIC_OR_PARTITION, f'there is no topic called "{topic}"')
        if wanted.topics == [wanted.queue]:
            raise invalid("a subscription needs a name of its own, not the topic's")
        if wanted.dead_letter and self._queues.find(wanted.dead_letter) is None:
            raise Unknown(
                ErrorKind.NOT_FOUND,
                f'there is no queue called "{wanted.dead_letter}" for dead letters',
                "POST /api/v1/queues makes one.",
            )
        await self._catalog.create(self._subscription(wanted))

    def _subscription(self, wanted: NewWebhook) -> QueueSpec:
        if wanted.filter:
            try:
                compile_filter(wanted.filter)
            except FilterProblem as problem:
                raise HeadraceError(ErrorKind.INVALID_FILTER, problem.detail) from None
        make = fifo_queue if wanted.fifo else standard_queue
        config = make(
            filtered=bool(wanted.filter),
            dead_letter=wanted.dead_letter,
            max_deliveries=wanted.max_deliveries or (5 if wanted.dead_letter else 0),
        )
        now_ms = self._clock.wall_ms()
        spec = QueueSpec(
            name=wanted.queue,
            id=self._new_uuid(),
            topics=tuple(dict.fromkeys(wanted.topics)),
            kind="subscription",
            filter=wanted.filter,
            start=wanted.start,
            created_ms=now_ms,
            changed_ms=now_ms,
        )
        return with_config(spec, config)

    @route(
        "PATCH",
        "/api/v1/webhooks/{webhook}",
        CHANGE,
        Contract("Change a webhook", TAG, {200: ShownWebhook}, body=(Options,), problems=PROBLEMS),
    )
    async def _change(self, request: Request) -> Answer:
        spec = self._spec(request)
        changes = body_of(request, Options).given()
        url = changes.pop("url", spec.url)
        if url != spec.url:
            self._check_url(url)
        spec = await self._registry.change(
            spec.name, **changes, **self._standing.of(request.access)._asdict()
        )
        if url != spec.url:
            spec = await self._registry.retarget(spec.name, url)
            await self._couriers.wait_for_confirmation(spec, CONFIRM_S)
        return answer(self._shown(self._registry.get(spec.name)))

    @route(
        "DELETE",
        "/api/v1/webhooks/{webhook}",
        CHANGE,
        Contract(
            "Remove a webhook", TAG, {204: None}, query=(Param("keep_queue", "and leave its queue", FLAG),)
        ),
    )
    async def _remove(self, request: Request) -> Answer:
        spec = await self._registry.remove(self._spec(request).name)
        shared = any(other.queue == spec.queue for other in self._registry.all())
        is_there = self._queues.find(spec.queue) is not None
        if spec.owns_queue and is_there and not shared and "keep_queue" not in request.query:
            await self._catalog.delete(spec.queue, with_topic=False)
        return Response(b"", 204, "")

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/pause",
        CHANGE,
        Contract("Stop sending", TAG, {200: ShownWebhook}, problems=PROBLEMS),
    )
    async def _pause(self, request: Request) -> Answer:
        spec = self._spec(request)
        if spec.state not in ("active", "paused"):
            raise HeadraceError(
                ErrorKind.CONFLICT, f"the webhook is {spec.state}, so nothing is sent to it anyway"
            )
        return answer(self._shown(await self._registry.change(spec.name, state="paused")))

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/resume",
        CHANGE,
        Contract("Go on sending", TAG, {200: ShownWebhook}, problems=PROBLEMS),
    )
    async def _resume(self, request: Request) -> Answer:
        spec = self._spec(request)
        if spec.state in ("paused", "disabled"):
            # X23: whoever never confirmed has to do so first.
            state = "active" if spec.confirmed_ms else "pending"
            spec = await self._registry.change(
                spec.name, state=state, reason="", **self._standing.of(request.access)._asdict()
            )
        return answer(self._shown(spec))

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/confirm",
        CHANGE,
        Contract(
            "Confirm an endpoint by hand", TAG, {200: ShownWebhook}, body=(Confirmation,), problems=PROBLEMS
        ),
    )
    async def _confirm(self, request: Request) -> Answer:
        token = body_of(request, Confirmation).token
        return answer(self._shown(await self._couriers.confirm_with(self._spec(request).name, token)))

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/rotate-secret",
        CHANGE,
        Contract(
            "A new signing secret",
            TAG,
            {200: Rotated},
            body=(NewSecret,),
            body_required=False,
            problems=PROBLEMS,
        ),
    )
    async def _rotate(self, request: Request) -> Answer:
        spec = self._spec(request)
        wanted = body_of(request, NewSecret)
        secret = _given_secret(wanted.secret) or self._registry.new_secret()
        await self._registry.rotate(spec.name, secret, wanted.overlap_ms)
        shown = Rotated(name=spec.name, secret=secret.reveal(), overlap_ms=wanted.overlap_ms)
        return answer(shown, headers=(("cache-control", "no-store"),))

    # -- trying --------------------------------------------------------------------------------------------------------

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/test",
        CHANGE,
        Contract("Send a test message", TAG, {200: Tested}, problems=PROBLEMS),
    )
    async def _test(self, request: Request) -> Answer:
        spec = self._spec(request)
        tested = await self._couriers.test(spec.name)
        return answer(Tested(name=spec.name, **tested._asdict(), state=self._registry.get(spec.name).state))

    @route(
        "POST",
        "/api/v1/webhooks/{webhook}/retry",
        CHANGE,
        Contract(
            "Try again now", TAG, {200: Retried}, body=(RetryRequest,), body_required=False, problems=PROBLEMS
        ),
    )
    async def _retry(self, request: Request) -> Answer:
        spec = self._spec(request)
        count = await self._couriers.retry_here(spec, body_of(request, RetryRequest).delivery)
        count += sum(other.retried for other in await self._others(request, Retried))
        return answer(Retried(name=spec.name, retried=count))


def _given_secret(text: str | None) -> SigningSecret | None:
    if text is None:
        return None
    try:
        return SigningSecret.parse(text)
    except ValueError as problem:
        raise invalid(f"secret: {problem}") from None


def _merge(shown: ShownWebhook, other: ShownWebhook) -> None:
    """Another broker's numbers about the same webhook."""
    shown.delivered += other.delivered
    shown.failed += other.failed
    shown.in_flight += other.in_flight
    shown.concurrency += other.concurrency
    shown.reason = shown.reason or other.reason
    shown.circuit = max(shown.circuit, other.circuit, key=_CIRCUITS.index)
    if other.last_ms > shown.last_ms:
        shown.last_ms, shown.last_status, shown.last_detail = (
            other.last_ms,
            other.last_status,
            other.last_detail,
        )
