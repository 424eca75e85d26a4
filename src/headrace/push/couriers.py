"""Driver: the webhooks this broker works on: those whose queue has a partition that is led here. A new leader goes on where the
old one stopped, because where that is lies in the queue; and whoever leads the first partition asks pending endpoints to confirm.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headrace.broker.metadata import Metadata
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.replicas import Replicas
from headrace.broker.runtime import Runtime
from headrace.cluster.deltas import Delta, OpaqueChanged
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.measures import Family, Sample
from headrace.core.moments import rfc3339
from headrace.push import handshake
from headrace.push.backoff import RetryPolicy
from headrace.push.bodies import JSON
from headrace.push.courier import Courier, CourierBudget
from headrace.push.endpoint import EndpointClient, NoAnswer, NotSent, Resolve
from headrace.push.registry import WebhookRegistry
from headrace.push.signature import signed_headers
from headrace.push.spec import WebhookSpec
from headrace.push.target import TargetRules
from headrace.push.verdict import PushOutcome, why
from headrace.queues.commands import EndRest
from headrace.security.sealing import Sealer
from headrace.security.standing import StandingOrders

if TYPE_CHECKING:
    from headrace.push.spans import DeliverySpans

log = logging.getLogger(__name__)

LOOK_S = 1.0
CONFIRM_RETRY = RetryPolicy(initial_ms=2_000, multiplier=2.0, max_ms=10 * 60 * 1000, jitter=0.25)
MAX_CONFIRMATIONS = 20
FINISH_S = 1.0
TEST_TYPE = "webhook.test"


class Tested(NamedTuple):
    ok: bool
    status: int
    detail: str
    duration_ms: int


class Couriers:
    def __init__(
        self,
        runtime: Runtime,
        metadata: Metadata,
        replicas: Replicas,
        queues: Queues,
        rooms: QueueRooms,
        new_uuid: Callable[[], str],
        rules: TargetRules,
        *,
        ca_file: str = "",
        resolve: Resolve | None = None,
        standing: StandingOrders | None = None,
        sealer: Sealer | None = None,
        spans: DeliverySpans | None = None,
    ) -> None:
        self._spans = spans
        self._standing = standing
        self._runtime = runtime
        self._image = metadata.image
        self._queues = queues
        self._rooms = rooms
        self.registry = WebhookRegistry(runtime, metadata, new_uuid, sealer)
        self.client = EndpointClient(rules, ca_file=ca_file, resolve=resolve)
        self._budget = CourierBudget()
        self._couriers: dict[str, Courier] = {}
        """By id: a namesake that comes later begins anew."""
        self._retired = dict.fromkeys(PushOutcome, 0)
        """What couriers of webhooks that were removed did: a counter never falls."""
        self._confirming: dict[str, asyncio.Task[None]] = {}
        self.unconfirmed: dict[str, str] = {}
        """Why a pending webhook is still pending, by id."""
        self._news = asyncio.Event()
        self._judged = asyncio.Event()
        self._stopped = False
        metadata.listeners.append(self._heard)
        replicas.on_lead.append(lambda partition: self._news.set())
        replicas.on_resign.append(lambda partition: self._news.set())

    def refuse_ports(self, ports: set[int]) -> None:
        """This broker's own: it does not call itself."""
        self.client.rules = replace(self.client.rules, own_ports=frozenset(ports))

    # -- which of them work here ---------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Events bring news at once; the look now and then is for whatever came without one."""
        while not self._stopped:
            self._news.clear()
            self._refresh()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _heard(self, deltas: list[Delta]) -> None:
        changed = [delta.key for delta in deltas if isinstance(delta, OpaqueChanged)]
        if any(key.startswith(("webhooks/", "secrets/webhook.")) for key in changed):
            self.registry.load()
            self._news.set()
            self._tell_those_who_wait()
        elif any(key.startswith("queues/") for key in changed):
            self._news.set()

    def _refresh(self) -> None:
        known = {spec.id: spec for spec in self.registry.all()}
        for held in self._couriers.keys() - known.keys():
            gone = self._couriers.pop(held)
            gone.stop()
            for outcome, count in gone.outcomes.items():
                self._retired[outcome] += count
        for held in self._confirming.keys() - known.keys():
            self._confirming.pop(held).cancel()
            self.unconfirmed.pop(held, None)
        for spec in known.values():
            courier = self._couriers.get(spec.id)
            if spec.state == "active" and self._leads_some(spec):
                if courier is None:
                    courier = self._couriers[spec.id] = Courier(
                        self._runtime,
                        self._image.broker_id,
                        self._queues,
                        self._rooms,
                        self.registry,
                        self.client,
                        self._budget,
                        spec,
                        self._standing,
                        self._spans,
                    )
                courier.start(spec)
            elif courier is not None:
                courier.stop()
            if spec.state == "pending" and spec.id not in self._confirming and self._is_home(spec):
                self._confirming[spec.id] = self._runtime.spawn(
                    self._confirm(spec.name, spec.id), f"webhook {spec.name}: confirm"
                )

    def _leads_some(self, spec: WebhookSpec) -> bool:
        queue = self._queues.find(spec.queue)
        return queue is not None and bool(self._rooms.layouts.of(queue).local)

    def _is_home(self, spec: WebhookSpec) -> bool:
        queue = self._queues.find(spec.queue)
        sources = self._rooms.layouts.of(queue).sources if queue is not None else []
        return bool(sources) and self._rooms.layouts.home_of(sources[0]) == self._image.broker_id

    def courier(self, spec: WebhookSpec) -> Courier | None:
        """None when this broker has not sent anything for it."""
        return self._couriers.get(spec.id)

    # -- whose endpoint it is (X23) ------------------------------------------------------------------------------------

    async def _confirm(self, name: str, webhook_id: str) -> None:
        attempt = 0
        try:
            while attempt < MAX_CONFIRMATIONS:
                attempt += 1
                spec = self.registry.find(name)
                if (
                    spec is None
                    or spec.id != webhook_id
                    or spec.state != "pending"
                    or not self._is_home(spec)
                ):
                    return
                if (await self.ask_to_confirm(spec)).confirmed:
                    return
                draw = int.from_bytes(self._runtime.random_bytes(4), "big") / 2**32
                await asyncio.sleep(CONFIRM_RETRY.delay_ms(attempt, draw) / 1000)
        except HeadraceError as problem:
            log.info("webhook %s: %s", name, problem.detail)
        finally:
            if attempt < MAX_CONFIRMATIONS:  # else its owner has to say that it is there now
                self._confirming.pop(webhook_id, None)

    async def ask_to_confirm(self, spec: WebhookSpec) -> handshake.Confirmation:
        secrets = self.registry.secrets_of(spec.name)
        if secrets is None:
            return handshake.Confirmation(False, "there is no secret to sign with")
        wall_ms, cluster = self._runtime.clock.wall_ms(), self._image.cluster
        cluster_id = "" if cluster is None else cluster.cluster_id
        origin = f"headrace.{cluster_id}"
        answer = await handshake.ask(self.client, spec, secrets, origin, wall_ms)
        if answer.confirmed:
            if answer.rate and (not spec.rate or answer.rate < spec.rate):
                spec = await self.registry.change(spec.name, rate=answer.rate)
            await self.registry.confirm(spec)
            self.unconfirmed.pop(spec.id, None)
        elif answer.gone:
            await self.registry.change(spec.name, state="disabled", reason="the endpoint answered 410 (Gone)")
        else:
            self.unconfirmed[spec.id] = answer.detail
        self._tell_those_who_wait()
        return answer

    async def wait_for_confirmation(self, spec: WebhookSpec, seconds: float) -> None:
        """Until its home has asked once, or the time is up: for the answer to say how it stands."""
        try:
            async with asyncio.timeout(seconds):
                while spec.id not in self.unconfirmed:
                    now = self.registry.find(spec.name)
                    if now is None or now.id != spec.id or now.state != "pending":
                        return
                    await self._judged.wait()
        except TimeoutError:
            return

    def _tell_those_who_wait(self) -> None:
        judged, self._judged = self._judged, asyncio.Event()
        judged.set()

    async def confirm_with(self, name: str, token: str) -> WebhookSpec:
        """A person read the token at the endpoint."""
        spec, secrets = self.registry.get(name), self.registry.secrets_of(name)
        if secrets is None or not token or not hmac.compare_digest(secrets.token.encode(), token.encode()):
            raise HeadraceError(ErrorKind.INVALID_REQUEST, "that is not the token this endpoint was sent")
        return await self.registry.confirm(spec)

    # -- what people ask for -------------------------------------------------------------------------------------------

    async def test(self, name: str) -> Tested:
        """A signed request that is no message. A pending endpoint is asked to confirm, and gets nothing else (X23)."""
        spec = self.registry.get(name)
        clock = self._runtime.clock
        began_ms, wall_ms = clock.now_ms(), clock.wall_ms()
        if spec.state == "pending":
            asked = await self.ask_to_confirm(spec)
            return Tested(asked.confirmed, 0, asked.detail or "confirmed", clock.now_ms() - began_ms)
        body = msgspec.json.encode(
            {
                "type": TEST_TYPE,
                "timestamp": rfc3339(wall_ms),
                "data": {"webhook": spec.name, "queue": spec.queue},
            }
        )
        signed = signed_headers(self.registry.signing(name), f"test.{wall_ms}", wall_ms // 1000, body)
        try:
            answer = await self.client.send(
                spec.url, {"content-type": JSON, **signed}, body, spec.timeout_ms / 1000
            )
        except (NoAnswer, NotSent) as problem:
            return Tested(False, 0, str(problem), clock.now_ms() - began_ms)
        ok = 200 <= answer.status < 300
        return Tested(ok, answer.status, "" if ok else why(answer.status), clock.now_ms() - began_ms)

    async def retry_here(self, spec: WebhookSpec, attempt_id: str = "") -> int:
        """Everything that waits for its next try, or what one entry of the log is about, is tried now. How many there were."""
        queue = self._queues.find(spec.queue)
        courier = self.courier(spec)
        if queue is None or courier is None:
            return 0
        courier.circuit.reset()
        entry = courier.log.find(attempt_id) if attempt_id else None
        if attempt_id and entry is None:
            return 0
        count = 0
        for source, _ in self._rooms.layouts.of(queue).local:
            offsets: tuple[int, ...] | None = None
            if entry is not None:
                if (source.topic, source.partition) != (entry.topic, entry.partition):
                    continue
                offsets = tuple(range(entry.offset, entry.offset + entry.messages))
            count += await self._rooms.local.submit(source, EndRest(source, offsets))
        courier.wake()
        return count

    # -- numbers, end --------------------------------------------------------------------------------------------------

    def collect(self) -> Iterable[Family]:
        couriers = list(self._couriers.values())
        totals = {
            outcome: count + sum(courier.outcomes[outcome] for courier in couriers)
            for outcome, count in self._retired.items()
        }
        yield Family(
            "mq_webhook_deliveries_total",
            "counter",
            "Requests to webhooks by outcome.",
            [Sample((("outcome", outcome.value),), count) for outcome, count in totals.items()],
        )
        yield Family(
            "mq_webhook_in_flight",
            "gauge",
            "Requests on their way.",
            [Sample((("webhook", courier.spec.name),), courier.in_flight) for courier in couriers],
        )
        yield Family(
            "mq_webhook_concurrency_limit",
            "gauge",
            "Requests the endpoint gets at once.",
            [Sample((("webhook", courier.spec.name),), courier.limit.limit) for courier in couriers],
        )

    async def close(self) -> None:
        """Take nothing more; give what is on its way a moment to be answered and settled."""
        self._stopped = True
        self._news.set()
        for task in self._confirming.values():
            task.cancel()
        for courier in self._couriers.values():
            courier.stop()
        try:
            async with asyncio.timeout(FINISH_S):
                for courier in self._couriers.values():
                    await courier.finished()
        except TimeoutError:
            pass
        await self.client.close()
