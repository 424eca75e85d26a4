"""Door: why a queue is behind, or hands out nothing (5.6): the facts are gathered here, the rules are in core/explain_queue.py.

GET /api/v1/queues/{queue}/explain     asked by a broker: what this one alone sees of it
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.broker.history import QueueNow, Sampler
from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import HeadraceError
from headrace.core.explain_queue import (
    BlockedFacts,
    HeldFacts,
    PushFacts,
    QueueFacts,
    explain_queue,
)
from headrace.core.ports import Clock
from headrace.http.contract import Contract
from headrace.http.declared import Door, route
from headrace.http.messages import Answer, Request
from headrace.http.rest.forms.administration import Explained
from headrace.http.rest.forms.explaining import (
    BlockedGroup,
    FedWebhook,
    HeldMessage,
    QueueExplanation,
)
from headrace.http.rest.reading import answer, queue_of
from headrace.http.whole import Whole
from headrace.push.circuit import CircuitState
from headrace.push.couriers import Couriers
from headrace.security.rights import GROUP, describe, needs

LOOKED_AT = 500
SHOWN = 20


class QueueExplainDoor(Door):
    def __init__(
        self,
        clock: Clock,
        queues: Queues,
        sampler: Sampler,
        whole: Whole,
        couriers: Couriers,
        troubles: Callable[[], list[str]],
    ) -> None:
        self._clock = clock
        self._queues = queues
        self._sampler = sampler
        self._whole = whole
        self._couriers = couriers
        self._troubles = troubles

    @route(
        "GET",
        "/api/v1/queues/{queue}/explain",
        needs(describe(GROUP, "{queue}")),
        Contract(
            "Why a queue is behind, or hands out nothing",
            "queues",
            {200: QueueExplanation},
            "Rules over what the brokers know; no guessing.",
        ),
    )
    async def _explain(self, request: Request) -> Answer:
        spec = queue_of(request, self._sampler.queues.find)
        lately = await self._whole.look()
        now = lately.queues.get(spec.name, QueueNow())
        if request.sender is None:
            now = await self._counted(spec, now)
        seen = QueueExplanation(
            queue=spec.name,
            ready=now.ready,
            in_flight=now.in_flight,
            delayed=now.delayed,
            sentence="",
            findings=[],
            held=self._held(spec),
            blocked=self._blocked(spec),
            webhooks=self._webhooks(spec),
        )
        for other in await self._whole.gather(request, QueueExplanation):
            seen.held += other.held
            seen.blocked += other.blocked
            for one in other.webhooks:
                seen.webhooks = [_worse(mine, one) for mine in seen.webhooks]
        if request.sender is None:
            in_per_s = sum(lately.topics[name].in_per_s for name in spec.topics if name in lately.topics)
            self._judge(spec, seen, now, in_per_s)
        return answer(seen)

    async def _counted(self, spec: QueueSpec, lately: QueueNow) -> QueueNow:
        """Rates are of the last seconds; what is there is counted now, because somebody who asks has just seen it. Where a broker
        that has a part of it does not answer, the last numbers must do: that is when people ask."""
        try:
            stats = await self._queues.stats(spec)
        except HeadraceError:
            return lately
        counts = [count for _, count in stats.counts]
        return replace(
            lately,
            ready=sum(count.visible for count in counts),
            in_flight=sum(count.in_flight for count in counts),
            delayed=sum(count.delayed for count in counts),
            paused=any(count.paused for count in counts),
            oldest_ms=self._clock.wall_ms() - stats.oldest_age_ms if stats.oldest_age_ms else 0,
        )

    def _judge(self, spec: QueueSpec, seen: QueueExplanation, now: QueueNow, in_per_s: float) -> None:
        facts = QueueFacts(
            name=spec.name,
            ready=now.ready,
            in_flight=now.in_flight,
            delayed=now.delayed,
            paused=now.paused,
            in_per_s=in_per_s,
            done_per_s=now.done_per_s,
            oldest_age_ms=max(0, self._clock.wall_ms() - now.oldest_ms) if now.oldest_ms else 0,
            max_deliveries=spec.queue_config.max_deliveries,
            dead_letter=spec.queue_config.dead_letter,
            filtered=bool(spec.filter),
            held=tuple(
                HeldFacts(one.place, one.deliveries, one.holder or "", one.ends_in_ms) for one in seen.held
            ),
            blocked=tuple(
                BlockedFacts(one.group, one.waiting, one.place, one.deliveries, one.in_flight)
                for one in seen.blocked
            ),
            webhooks=tuple(PushFacts(one.name, one.state, one.circuit, one.reason) for one in seen.webhooks),
            troubles=tuple(self._troubles()),
        )
        seen.findings = [Explained(**finding._asdict()) for finding in explain_queue(facts)]
        if seen.findings:
            seen.sentence = seen.findings[0].sentence
        elif facts.backlog == 0:
            seen.sentence = "Nothing waits in it."
        else:
            seen.sentence = (
                f"{facts.backlog:,} messages are not done, and nothing is known that would hold them up."
            )
        seen.held = sorted(seen.held, key=lambda one: -one.deliveries)[:SHOWN]
        seen.blocked = sorted(seen.blocked, key=lambda one: -one.waiting)[:SHOWN]

    def _held(self, spec: QueueSpec) -> list[HeldMessage]:
        now_ms = self._clock.now_ms()
        return [
            HeldMessage(
                place=f"{source.topic}/{source.partition}/{lock.offset}",
                deliveries=lock.deliveries,
                holder=lock.owner or None,
                ends_in_ms=max(0, lock.deadline_ms - now_ms),
            )
            for source, lock in self._sampler.queues.locks(spec, LOOKED_AT)
        ]

    def _blocked(self, spec: QueueSpec) -> list[BlockedGroup]:
        if not spec.queue_config.fifo:
            return []
        return [
            BlockedGroup(
                group=group.group.decode(errors="replace"),
                waiting=group.waiting,
                place=f"{source.topic}/{source.partition}/{group.by}",
                deliveries=group.deliveries,
                in_flight=group.in_flight > 0,
            )
            for source, group in self._sampler.queues.groups(spec, LOOKED_AT)
            if group.by >= 0
        ]

    def _webhooks(self, spec: QueueSpec) -> list[FedWebhook]:
        found = []
        for webhook in self._couriers.registry.all():
            if webhook.queue != spec.name:
                continue
            courier = self._couriers.courier(webhook)
            circuit = CircuitState.CLOSED if courier is None else courier.circuit.state
            reason = webhook.reason or self._couriers.unconfirmed.get(webhook.id, "")
            if courier is not None and not reason:
                last = courier.log.last
                reason = courier.problem or ("" if last is None or not last.detail else last.detail)
            found.append(
                FedWebhook(name=webhook.name, state=webhook.state, circuit=circuit.value, reason=reason)
            )
        return found


_CIRCUITS = tuple(state.value for state in (CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN))


def _worse(mine: FedWebhook, other: FedWebhook) -> FedWebhook:
    """Of one webhook, as two brokers see it."""
    if mine.name != other.name or _CIRCUITS.index(other.circuit) <= _CIRCUITS.index(mine.circuit):
        return mine
    return other
