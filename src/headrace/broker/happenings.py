"""Driver: what happens to the cluster, as this broker sees it: from the metadata that it follows anyway, and from looks at its own state once a second.

Nothing is written anywhere: a broker tells what it has seen since it began, and the one that is asked puts together what all of them have
([decision 0093](../../../docs/decisions/0093-what-happened-is-told-by-who-saw-it.md)). Nothing is added to the paths of produce and fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from headrace.broker.history import Sampler
from headrace.cluster.deltas import (
    BrokerDown,
    BrokerUp,
    ControllerChanged,
    Delta,
    OpaqueChanged,
    PartitionChanged,
    TopicConfigChanged,
    TopicCreated,
    TopicGone,
)
from headrace.cluster.image import ClusterImage
from headrace.core.happenings import Happenings, Severity, Thing
from headrace.core.ids import is_internal
from headrace.core.ports import Clock

Look = Callable[[], Mapping[str, str | None]]
"""What each check of health says now; None is well."""

MOMENTARY = frozenset(("loop", "broker"))
"""Checks that say something about a moment: the loop is late, the broker is starting. A broker that is fenced is told by the metadata."""
ENDED = {"COMPLETED": "ended", "CANCELLED": "was stopped", "FAILED": "failed"}


class News(NamedTuple):
    kind: str
    severity: Severity
    thing: Thing
    name: str
    text: str


class _Hook(msgspec.Struct):
    """As much of a webhook as is told."""

    state: str = ""
    reason: str = ""


class _Task(msgspec.Struct):
    """As much of a move as is told."""

    id: str = ""
    act: str = ""
    status: str = ""
    moved: int = 0


class Observer:
    def __init__(self, clock: Clock, image: ClusterImage, sampler: Sampler, look: Look) -> None:
        self._clock = clock
        self._image = image
        self._sampler = sampler
        self._look = look
        self.happenings = Happenings()
        self.began_ms = clock.wall_ms()
        self._hooks = {name: _hook(raw).state for name, raw in image.opaque("webhooks").items()}
        self._moves = {task.id: task.status for raw in image.opaque("moves").values() for task in _tasks(raw)}
        self._unwell: set[str] = set()
        self._dead: dict[str, bool] = {}
        """Of graveyards whose messages lie here: whether there are any."""
        self._paused: dict[str, bool] = {}

    # -- from the metadata: every broker sees the same ----------------------------------------------------------------

    def heard(self, deltas: list[Delta]) -> None:
        wall_ms = self._clock.wall_ms()
        for delta in deltas:
            for news in self._told_by(delta):
                self.happenings.note(wall_ms, *news)

    def _told_by(self, delta: Delta) -> Iterator[News]:
        match delta:
            case PartitionChanged():
                yield from _of_partition(delta)
            case OpaqueChanged(key, value):
                space, _, name = key.partition("/")
                if space == "webhooks":
                    yield from self._of_webhook(name, value)
                elif space == "moves":
                    yield from self._of_moves(name, value)
            case TopicCreated(topic) if not topic.internal:
                yield News("topic-created", "info", "topic", topic.name, "was created")
            case TopicGone(name=name) if not is_internal(name):
                yield News("topic-deleted", "info", "topic", name, "was deleted")
            case TopicConfigChanged(topic, _) if not topic.internal:
                yield News("topic-configured", "info", "topic", topic.name, "has other configs")
            case BrokerUp(broker):
                yield News("broker-up", "good", "broker", str(broker.id), "is there")
            case BrokerDown(broker_id=number, fenced=fenced):
                text = "does not answer, and is fenced" if fenced else "has gone"
                yield News("broker-down", "error", "broker", str(number), text)
            case ControllerChanged(controller) if controller is not None:
                yield News(
                    "controller-elected", "info", "broker", str(controller.broker_id), "is the controller"
                )
            case _:
                return

    def _of_webhook(self, name: str, value: bytes | None) -> Iterator[News]:
        hook, before = _hook(value), self._hooks.pop(name, None)
        if value is None:
            return
        self._hooks[name] = hook.state
        if before is None or before == hook.state:
            return
        if hook.state == "active":
            yield News("webhook-changed", "good", "webhook", name, "delivers")
        else:
            kind = "webhook-disabled" if hook.state == "disabled" else "webhook-changed"
            yield News(kind, "warning", "webhook", name, f"is {hook.state}: {hook.reason}".rstrip(": "))

    def _of_moves(self, queue: str, value: bytes | None) -> Iterator[News]:
        for task in _tasks(value):
            before = self._moves.get(task.id)
            self._moves[task.id] = task.status
            if before == task.status:
                continue
            if task.status in ENDED:
                severity: Severity = "error" if task.status == "FAILED" else "info"
                text = f"had a {task.act} that {ENDED[task.status]} after {task.moved:,} messages"
                yield News("move-ended", severity, "queue", queue, text)
            elif before is None:
                yield News("move-begun", "info", "queue", queue, f"has a {task.act} under way")

    # -- from this broker's own state, once a second ------------------------------------------------------------------

    def look(self) -> None:
        for news in (*self._of_health(), *self._of_queues()):
            self.happenings.note(self._clock.wall_ms(), *news, everywhere=False)

    def _of_health(self) -> Iterator[News]:
        number = str(self._image.broker_id)
        unwell = {name: text for name, text in self._look().items() if text and name not in MOMENTARY}
        for name in unwell.keys() - self._unwell:
            yield News("trouble", "error", "broker", number, f"is not well: {name}: {unwell[name]}")
        for name in self._unwell - unwell.keys():
            yield News("trouble-over", "good", "broker", number, f"is well again: {name}")
        self._unwell = set(unwell)

    def _of_queues(self) -> Iterator[News]:
        queues = self._sampler.lately.queues
        graveyards = {spec.queue_config.dead_letter for spec in self._sampler.queues.specs()} - {""}
        for name in graveyards & queues.keys():
            there = queues[name].ready + queues[name].in_flight > 0
            if self._dead.get(name, there) != there:
                yield (
                    News("dead-letters-begin", "warning", "queue", name, "has dead letters")
                    if there
                    else News("dead-letters-end", "good", "queue", name, "has no dead letters any more")
                )
            self._dead[name] = there
        for name, queue in queues.items():
            if self._paused.get(name, queue.paused) != queue.paused:
                kind, text = ("queue-paused", "is paused") if queue.paused else ("queue-resumed", "goes on")
                yield News(kind, "info", "queue", name, text)
            self._paused[name] = queue.paused
        for known in (self._dead, self._paused):
            for gone in known.keys() - queues.keys():
                del known[gone]


def _of_partition(delta: PartitionChanged) -> Iterator[News]:
    topic, partition, old, new, _ = delta
    if old is None:
        return
    name = f"{topic.name}-{partition}"
    if new.leader < 0 <= old.leader:
        yield News(
            "leader-lost", "error", "partition", name, f"has no leader; broker {old.leader} was the last"
        )
    elif new.leader != old.leader:
        before = f" instead of broker {old.leader}" if old.leader >= 0 else ""
        yield News("leader-elected", "info", "partition", name, f"is led by broker {new.leader}{before}")
    for broker in sorted(set(old.isr) - set(new.isr)):
        yield News("isr-shrunk", "warning", "partition", name, f"is not in sync at broker {broker} any more")
    for broker in sorted(set(new.isr) - set(old.isr)):
        yield News("isr-grown", "good", "partition", name, f"is in sync at broker {broker}")
    if set(old.replicas) != set(new.replicas):
        text = f"has its replicas at brokers {', '.join(map(str, new.replicas))}"
        yield News("replicas-moved", "info", "partition", name, text)


def _hook(raw: bytes | None) -> _Hook:
    try:
        return _Hook() if raw is None else msgspec.json.decode(raw, type=_Hook)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Hook()


def _tasks(raw: bytes | None) -> list[_Task]:
    try:
        return [] if raw is None else msgspec.json.decode(raw, type=list[_Task])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
