"""Driver: one webhook on this broker: an ordinary consumer of its queue that receives, posts, and acknowledges what was taken.

It receives only what it may send at once: the concurrency the endpoint takes, an unbroken circuit, the rate cap and the memory of
all couriers decide that before anything is leased. So a slow or dead endpoint costs neither memory nor deliveries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.queueing import names
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.rooms import QueueRooms
from headrace.broker.queueing.routing.peer_calls import DeliveredMessage
from headrace.broker.queueing.specs import QueueSpec
from headrace.broker.runtime import Runtime
from headrace.broker.supervision import Supervised
from headrace.core.errors import HeadraceError
from headrace.core.limits import MIB
from headrace.push import bodies
from headrace.push.backoff import retry_after_ms
from headrace.push.circuit import Circuit
from headrace.push.concurrency import ConcurrencyLimit
from headrace.push.delivery_log import Attempt, DeliveryLog, shown_text
from headrace.push.endpoint import EndpointClient, NoAnswer, NotSent
from headrace.push.rate import RateCap
from headrace.push.registry import WebhookRegistry
from headrace.push.signature import signed_headers
from headrace.push.spec import WebhookSpec
from headrace.push.verdict import NO_ANSWER, PushOutcome, PushVerdict, honours_retry_after, judge, why
from headrace.queues.commands import Handle, Source
from headrace.security.rights import Operation, Resource
from headrace.security.standing import StandingOrders

if TYPE_CHECKING:
    from headrace.push.spans import DeliverySpans

log = logging.getLogger(__name__)

MAX_BODY_BYTES = MIB
"""Of a batch; a single message may be larger."""
MAX_TAKE = 100
"""Messages of one receive."""
MAX_TAKES = 16
"""Receives of a FIFO queue at once."""
LEASE_MARGIN_MS = 5_000
"""A lease outlives the request by this, so that no answer comes too late. After a crash it has to run out, so it is short."""
IDLE_MS = 5_000
TROUBLE_MS = 250
STARVED_MS = 50


class CourierBudget:
    """Bytes of messages that all couriers of this broker hold at once."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 64 * MIB) -> None:
        self.limit = limit
        self.used = 0

    @property
    def left(self) -> int:
        return self.limit - self.used


class Job(NamedTuple):
    """One request."""

    deliveries: tuple[DeliveredMessage, ...]
    size: int
    leased_ms: int = 0
    """Monotonic, not later than the lease began."""
    in_order: bool = False
    """Of a FIFO queue: what follows a failure may not overtake it (R59)."""


class Result(NamedTuple):
    verdict: PushVerdict
    status: int
    detail: str
    retry_after_ms: int | None
    refused_ids: frozenset[str]
    """Of a batch that was taken in part."""


class Courier:
    def __init__(
        self,
        runtime: Runtime,
        node_id: int,
        queues: Queues,
        rooms: QueueRooms,
        registry: WebhookRegistry,
        client: EndpointClient,
        budget: CourierBudget,
        spec: WebhookSpec,
        standing: StandingOrders | None = None,
        spans: DeliverySpans | None = None,
    ) -> None:
        self._spans = spans
        self._runtime = runtime
        self._node_id = node_id
        self._queues = queues
        self._rooms = rooms
        self._clock = runtime.clock
        self._registry = registry
        self._client = client
        self._budget = budget
        self.spec = spec
        self._standing = standing
        self.limit = ConcurrencyLimit(spec.max_concurrency)
        self.circuit = Circuit()
        self.log = DeliveryLog()
        self.outcomes: dict[PushOutcome, int] = dict.fromkeys(PushOutcome, 0)
        """Requests."""
        self.in_flight = 0
        self.problem = ""
        """Why nothing moves, when it is not the endpoint's doing."""
        self._rate = RateCap(spec.rate, self._clock.now_ms())
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        """Set while nothing is on its way."""
        self._idle.set()
        self._loop: Supervised | None = None
        self._typical_bytes = MIB
        self._waiting_since_ms: int | None = None
        self._attempts = 0
        self._takes = 1

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self._loop.done()

    def start(self, spec: WebhookSpec) -> None:
        """Begin, or go on under a changed spec."""
        if spec != self.spec:
            self.limit.set_maximum(spec.max_concurrency)
            self.spec = spec
            self._changed.set()
        if not self.is_running:
            self._loop = self._runtime.supervise(f"webhook {spec.name}", self._run)

    def stop(self) -> None:
        """Take nothing more. What is on its way is answered and settled."""
        if self._loop is not None:
            self._loop.cancel()
            self._loop = None

    async def finished(self) -> None:
        """Until nothing is on its way."""
        await self._idle.wait()

    def wake(self) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                rest_ms, arrival = await self._turn()
            except HeadraceError as problem:
                # No leader right now, a shard that loads, too much in flight elsewhere: all of it passes.
                self.problem = problem.detail
                rest_ms, arrival = TROUBLE_MS, None
            if rest_ms:
                await self._rest(rest_ms, arrival)

    async def _rest(self, rest_ms: int, arrival: asyncio.Event | None) -> None:
        waits = [asyncio.ensure_future(self._changed.wait())]
        if arrival is not None:
            waits.append(asyncio.ensure_future(arrival.wait()))
        try:
            await asyncio.wait(waits, timeout=rest_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _refusal(self, queue: QueueSpec) -> str:
        """Why its owner may not have what is in the queue (any more): asked before each batch."""
        if self._standing is None:
            return ""
        needed = [
            (Operation.READ, Resource.GROUP, queue.name),
            *((Operation.READ, Resource.TOPIC, topic) for topic in queue.topics),
        ]
        return self._standing.problem(self.spec.owner, self.spec.owner_life, needed)

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def _turn(self) -> tuple[int, asyncio.Event | None]:
        """Take what may be sent now. The answer is how long to rest, and what may end the rest."""
        spec, now_ms = self.spec, self._clock.now_ms()
        latest = self._registry.find(spec.name)
        if latest is None or latest.id != spec.id or latest.state != "active":
            return IDLE_MS, None  # it was paused, disabled or removed a moment ago
        queue = self._queues.find(spec.queue)
        if queue is None:
            self.problem = f"the queue {spec.queue} is gone"
            return IDLE_MS, None
        sources = self._rooms.layouts.of(queue).local
        if not sources:
            return IDLE_MS, None
        self.problem = self._refusal(queue)
        if self.problem:
            return IDLE_MS, None
        self._rate.set_rate(spec.rate * len(sources) / len(self._rooms.layouts.of(queue).sources), now_ms)
        room = min(
            self.limit.limit - self.in_flight, self.circuit.permits(now_ms), self._rate.permits(now_ms)
        )
        if room <= 0:
            wait_ms = max(self.circuit.wait_ms(now_ms), self._rate.wait_ms(now_ms))
            return wait_ms or IDLE_MS, None
        if self._budget.left <= 0:
            return STARVED_MS, None
        arrival = self._rooms.shards.arrival(queue.name)
        filling_ms = self._filling_ms(queue, now_ms)
        if filling_ms:
            return filling_ms, arrival
        takings = await self._take(queue, room)
        if not takings:
            return IDLE_MS, arrival
        self._waiting_since_ms = None
        for deliveries in takings:
            self._begin(queue, deliveries, now_ms)
        return 0, None

    async def _take(self, queue: QueueSpec, room: int) -> list[list[DeliveredMessage]]:
        """FIFO: one request's worth each, because whatever is leased together fails together, and the rest of its group waits;
        so several receives go at once while each of them finds something, and share a journal write."""
        takes = min(self._takes, room) if queue.queue_config.fifo else 1
        receives = [
            self._rooms.local.receive(
                queue,
                self._count(queue, room, takes),
                visibility_ms=self.spec.timeout_ms + LEASE_MARGIN_MS,
                owner=f"webhook/{self.spec.name}",
            )
            for _ in range(takes)
        ]
        answers = await asyncio.gather(*receives, return_exceptions=True)
        takings = [answer for answer in answers if not isinstance(answer, BaseException) and answer]
        problem = next((answer for answer in answers if isinstance(answer, BaseException)), None)
        if problem is not None and not takings:
            raise problem
        self._takes = min(self._takes * 2, MAX_TAKES) if len(takings) == takes else 1
        return takings

    def _count(self, queue: QueueSpec, room: int, takes: int) -> int:
        batch = self.spec.batch_size
        wanted = batch if queue.queue_config.fifo else room * batch
        return max(1, min(wanted, MAX_TAKE, self._budget.left // self._typical_bytes // takes))

    def _filling_ms(self, queue: QueueSpec, now_ms: int) -> int:
        """How much longer a batch that is not full should wait for more. Nothing is leased while it does."""
        spec = self.spec
        if spec.batch_size == 1 or not spec.batch_wait_ms:
            return 0
        ready = sum(count.visible for _, count in self._rooms.local.counts(queue))
        if ready >= spec.batch_size or not ready:
            if not ready:
                self._waiting_since_ms = None
            return 0
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms
        return max(0, self._waiting_since_ms + spec.batch_wait_ms - now_ms)

    def _begin(self, queue: QueueSpec, deliveries: Sequence[DeliveredMessage], leased_ms: int) -> None:
        in_order = queue.queue_config.fifo
        jobs = [
            job._replace(leased_ms=leased_ms, in_order=in_order)
            for job in cut(deliveries, self.spec.batch_size)
        ]
        for job in jobs:
            self._budget.used += job.size
            largest = max(bodies.size_of(delivery.record) for delivery in job.deliveries)
            self._typical_bytes = max(1, largest, self._typical_bytes * 9 // 10)
        for line in [jobs] if in_order else [[job] for job in jobs]:
            self.in_flight += 1
            self._idle.clear()
            self._rate.took(len(line))
            self._runtime.spawn(self._work(line), f"webhook {self.spec.name}: deliver")

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _work(self, line: list[Job]) -> None:
        """One after the other; what follows a failure goes back too."""
        left = list(line)
        try:
            while left:
                if not await self._still_leased(left[0]) or not await self._deliver(left[0]):
                    break
                self._budget.used -= left.pop(0).size
            for job in left[1:]:
                await self._give_back(job.deliveries, 0)
        except HeadraceError as problem:
            # The lease ends by itself, and the message comes again: at least once.
            log.info("webhook %s: %s", self.spec.name, problem.detail)
        finally:
            self._budget.used -= sum(job.size for job in left)
            self.in_flight -= 1
            self._changed.set()
            if not self.in_flight:
                self._idle.set()

    async def _still_leased(self, job: Job) -> bool:
        """A disk that stood still, or those before it in line, may have used up the lease: nothing is sent that is not ours."""
        now_ms = self._clock.now_ms()
        if now_ms - job.leased_ms < LEASE_MARGIN_MS / 2:
            return True
        lease_ms = self.spec.timeout_ms + LEASE_MARGIN_MS
        for source, handles in by_source(job.deliveries).items():
            if any(refusal is not None for refusal in await self._queues.extend(source, handles, lease_ms)):
                return False
        return True

    async def _deliver(self, job: Job) -> bool:
        """True when all of it was taken."""
        spec, started_ms, wall_ms = self.spec, self._clock.now_ms(), self._clock.wall_ms()
        generation = self.circuit.began()
        messages = [
            bodies.PushMessage(
                one.message_id, one.source.topic, one.source.partition, one.handle.delivery, one.record
            )
            for one in job.deliveries
        ]
        span = None if self._spans is None else self._spans.begin(spec, messages)
        traced = bodies.trace_headers(messages) if span is None else span.headers()
        try:
            result = await self._post(spec, messages, traced, wall_ms)
        except asyncio.CancelledError:
            self.circuit.abandoned(generation)
            raise
        if span is not None:
            taken_up = result.verdict.outcome is PushOutcome.DELIVERED and not result.refused_ids
            span.end(result.verdict.outcome.value, result.status, taken=taken_up)
        now_ms = self._clock.now_ms()
        self._learn(result, generation, now_ms - started_ms, now_ms)
        if result.verdict.outcome is PushOutcome.GONE:
            log.warning("webhook %s is disabled: its endpoint answered 410", spec.name)
            await self._registry.disable(spec, "the endpoint answered 410 (Gone)")
        taken, refused = split(job, result)
        attempt = max(delivery.handle.delivery for delivery in job.deliveries)
        delay_ms = 0
        if refused and result.verdict.outcome is not PushOutcome.GONE:
            delay_ms = spec.retry.policy.delay_ms(attempt, self._draw(), result.retry_after_ms)
        self._note(job, result, attempt, wall_ms, now_ms - started_ms, delay_ms if refused else 0)
        await self._settle(taken)
        await self._give_back(
            refused, delay_ms, result.detail or "the endpoint's answer lists it as not taken"
        )
        return not refused

    async def _post(
        self,
        spec: WebhookSpec,
        messages: Sequence[bodies.PushMessage],
        traced: Mapping[str, str],
        wall_ms: int,
    ) -> Result:
        made = (
            bodies.one(spec.form, messages[0]) if spec.batch_size == 1 else bodies.many(spec.form, messages)
        )
        secrets = self._registry.signing(spec.name)
        if not secrets:
            return Result(
                PushVerdict(PushOutcome.REFUSED, True),
                NO_ANSWER,
                "there is no secret to sign with",
                None,
                _NONE,
            )
        headers = {
            **made.headers,
            **traced,
            **signed_headers(secrets, made.id, wall_ms // 1000, made.body),
        }
        try:
            answer = await self._client.send(spec.url, headers, made.body, spec.timeout_ms / 1000)
        except NotSent as problem:
            return Result(PushVerdict(PushOutcome.REFUSED, True), NO_ANSWER, str(problem), None, _NONE)
        except NoAnswer as problem:
            return Result(PushVerdict(PushOutcome.FAILED, True), NO_ANSWER, str(problem), None, _NONE)
        verdict = judge(answer.status)
        if verdict.outcome is PushOutcome.DELIVERED:
            ids = [message.id for message in messages]
            refused = bodies.failures_in(answer.body, ids) if spec.batch_size > 1 else _NONE
            return Result(verdict, answer.status, "", None, refused)
        said = shown_text(answer.body)
        detail = why(answer.status) + (f": {said}" if said else "")
        asked = retry_after_ms(answer.headers.get("retry-after", ""), wall_ms)
        return Result(
            verdict, answer.status, detail, asked if honours_retry_after(answer.status) else None, _NONE
        )

    def _learn(self, result: Result, generation: int, latency_ms: int, now_ms: int) -> None:
        """What this says about the endpoint."""
        self.outcomes[result.verdict.outcome] += 1
        if result.retry_after_ms is not None:
            self.circuit.abandoned(generation)
            self.circuit.hold(now_ms + result.retry_after_ms)
            self.limit.failed(latency_ms, now_ms)
        elif result.verdict.endpoint_failed:
            if self.circuit.failed(generation, now_ms, self._draw()):
                log.warning("webhook %s rests: %s", self.spec.name, result.detail)
            self.limit.failed(latency_ms, now_ms)
        else:
            self.circuit.succeeded(generation)
            if result.verdict.outcome is PushOutcome.DELIVERED:
                self.limit.succeeded(latency_ms, self.in_flight, now_ms)

    def _note(
        self, job: Job, result: Result, attempt: int, wall_ms: int, duration_ms: int, delay_ms: int
    ) -> None:
        first = job.deliveries[0]
        self._attempts += 1
        detail = result.detail
        if result.refused_ids:
            detail = f"{len(result.refused_ids)} of {len(job.deliveries)} were not taken"
        self.log.add(
            Attempt(
                id=f"{self._node_id}-{wall_ms:x}-{self._attempts}",
                at_ms=wall_ms,
                message_id=first.message_id,
                messages=len(job.deliveries),
                topic=first.source.topic,
                partition=first.source.partition,
                offset=first.record.offset,
                attempt=attempt,
                outcome=result.verdict.outcome.value,
                status=result.status,
                duration_ms=duration_ms,
                detail=detail,
                next_ms=wall_ms + duration_ms + delay_ms if delay_ms else 0,
            )
        )

    # -- settling ------------------------------------------------------------------------------------------------------

    async def _settle(self, deliveries: Sequence[DeliveredMessage]) -> None:
        for source, handles in by_source(deliveries).items():
            await self._queues.ack(source, handles)

    async def _give_back(
        self, deliveries: Sequence[DeliveredMessage], delay_ms: int, detail: str = ""
    ) -> None:
        for source, handles in by_source(deliveries).items():
            await self._queues.release(source, handles, delay_ms, detail)

    def _draw(self) -> float:
        return int.from_bytes(self._runtime.random_bytes(4), "big") / 2**32


_NONE: frozenset[str] = frozenset()


def cut(deliveries: Sequence[DeliveredMessage], batch_size: int) -> list[Job]:
    """Into requests: at most so many messages and so many bytes each, in order."""
    jobs: list[Job] = []
    batch: list[DeliveredMessage] = []
    size = 0
    for delivery in deliveries:
        added = bodies.size_of(delivery.record)
        if batch and (len(batch) >= batch_size or size + added > MAX_BODY_BYTES):
            jobs.append(Job(tuple(batch), size))
            batch, size = [], 0
        batch.append(delivery)
        size += added
    if batch:
        jobs.append(Job(tuple(batch), size))
    return jobs


def split(job: Job, result: Result) -> tuple[list[DeliveredMessage], list[DeliveredMessage]]:
    """(taken, refused). In a FIFO queue a message behind a refused one of its group counts as refused (R59)."""
    if result.verdict.outcome is not PushOutcome.DELIVERED:
        return [], list(job.deliveries)
    taken: list[DeliveredMessage] = []
    refused: list[DeliveredMessage] = []
    stuck: set[bytes] = set()
    for delivery in job.deliveries:
        group = group_of(delivery) if job.in_order else b""
        if delivery.message_id in result.refused_ids or (job.in_order and group in stuck):
            refused.append(delivery)
            stuck.add(group)
        else:
            taken.append(delivery)
    return taken, refused


def group_of(delivery: DeliveredMessage) -> bytes:
    record = delivery.record
    return names.header(record.headers, names.GROUP) or record.key or b""


def by_source(deliveries: Sequence[DeliveredMessage]) -> dict[Source, list[Handle]]:
    found: dict[Source, list[Handle]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.source, []).append(delivery.handle)
    return found
