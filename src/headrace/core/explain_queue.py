"""Kernel: why a queue is behind, or why nobody gets anything from it (5.6). Rules over what is known, as of groups (core/explain.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.core.explain import Finding, not_well, span_of

AGAIN = 3
"""Deliveries from which on a message is one that fails."""
STANDING_MS = 30_000
"""A queue whose oldest message is younger is not standing: somebody may be about to receive."""
MUCH_FASTER = 1.05


@dataclass(frozen=True, slots=True)
class HeldFacts:
    """A message in somebody's hands."""

    place: str
    deliveries: int
    holder: str
    ends_in_ms: int


@dataclass(frozen=True, slots=True)
class BlockedFacts:
    """A message group of a FIFO queue that waits behind one message."""

    group: str
    waiting: int
    place: str
    deliveries: int
    in_flight: bool


@dataclass(frozen=True, slots=True)
class PushFacts:
    """A webhook that is fed from it."""

    name: str
    state: str
    """active, paused, disabled, pending."""
    circuit: str
    """closed, open, half_open."""
    reason: str


@dataclass(frozen=True, slots=True)
class QueueFacts:
    name: str
    ready: int
    in_flight: int
    delayed: int
    paused: bool
    in_per_s: float
    """Into its topics."""
    done_per_s: float
    oldest_age_ms: int
    max_deliveries: int
    dead_letter: str
    filtered: bool = False
    """What comes into its topics is not all for it."""
    held: tuple[HeldFacts, ...] = ()
    blocked: tuple[BlockedFacts, ...] = ()
    webhooks: tuple[PushFacts, ...] = ()
    troubles: tuple[str, ...] = field(default=())

    @property
    def backlog(self) -> int:
        return self.ready + self.in_flight

    @property
    def is_taken_from(self) -> bool:
        return self.in_flight > 0 or self.done_per_s > 0


QueueRule = Callable[[QueueFacts], Iterator[Finding]]


def explain_queue(facts: QueueFacts) -> list[Finding]:
    """The most telling first. Empty: nothing is known that would hold it up."""
    return [finding for rule in RULES for finding in rule(facts)]


def broker_in_trouble(facts: QueueFacts) -> Iterator[Finding]:
    if facts.backlog and facts.troubles:
        yield not_well(facts.troubles)


def paused(facts: QueueFacts) -> Iterator[Finding]:
    if facts.paused:
        yield Finding(
            "paused",
            f"It is paused: nobody receives any of its {facts.ready:,} messages until it is resumed.",
            "paused",
            "Resume it.",
            f"headrace queue set {facts.name} --resume",
        )


def webhook(facts: QueueFacts) -> Iterator[Finding]:
    if not facts.backlog:
        return
    for one in facts.webhooks:
        because = f": {one.reason}" if one.reason else ""
        if one.state != "active":
            yield Finding(
                "webhook",
                f"The webhook {one.name} that is fed from it is {one.state}{because}.",
                f"{facts.ready:,} messages wait for it",
                "See that its endpoint answers, then let it go on.",
                f"headrace webhook resume {one.name}",
            )
        elif one.circuit != "closed":
            yield Finding(
                "webhook",
                f"The webhook {one.name} rests: its endpoint failed several times in a row.",
                one.reason or f"circuit {one.circuit.replace('_', ' ')}",
                "See what the endpoint answers; it is tried again by itself.",
                f"headrace webhook deliveries {one.name}",
            )


def blocked(facts: QueueFacts) -> Iterator[Finding]:
    held_up = [one for one in facts.blocked if one.waiting]
    if held_up:
        worst = max(held_up, key=lambda one: (one.deliveries, one.waiting))
        state = "in flight" if worst.in_flight else "resting before its next try"
        yield Finding(
            "blocked",
            f"{sum(one.waiting for one in held_up):,} messages of {len(held_up)} message groups wait each behind one that is not done.",
            f"group {worst.group or '(none)'}: {worst.waiting:,} behind {worst.place}, delivered {worst.deliveries} ×, {state}",
            "Look at that message; within a group nothing is handed out before it is done, dead or let go.",
            f"headrace queue groups {facts.name}",
        )


def nobody_receives(facts: QueueFacts) -> Iterator[Finding]:
    if (
        facts.ready
        and facts.oldest_age_ms >= STANDING_MS
        and not facts.paused
        and not facts.is_taken_from
        and not facts.webhooks
        and not facts.blocked
    ):
        yield Finding(
            "nobody_receives",
            f"Nobody receives: {facts.ready:,} messages are ready, none is in flight and none was done lately.",
            f"0 in flight, the oldest for {span_of(facts.oldest_age_ms / 1000)}",
            "Start its workers.",
            f"headrace queue receive {facts.name}",
        )


def failing(facts: QueueFacts) -> Iterator[Finding]:
    again = [one for one in facts.held if one.deliveries >= AGAIN]
    if again:
        worst = max(again, key=lambda one: one.deliveries)
        if facts.dead_letter:
            step = f"Look at it; after {facts.max_deliveries} deliveries it goes to {facts.dead_letter}, or send it there now."
        else:
            step = "Look at it. The queue has no dead-letter queue, so it is tried for ever: give it one, or let go of it by hand."
        yield Finding(
            "failing",
            f"{len(again)} of the messages in flight were delivered {AGAIN} times or more: their workers do not get them done.",
            f"{worst.place} delivered {worst.deliveries} ×"
            + (f", held by {worst.holder}" if worst.holder else ""),
            step,
            f"headrace queue locks {facts.name}",
        )


def all_held(facts: QueueFacts) -> Iterator[Finding]:
    if facts.in_flight and not facts.ready and facts.done_per_s <= 0 and facts.held:
        last = max(facts.held, key=lambda one: one.ends_in_ms)
        yield Finding(
            "all_held",
            f"All {facts.in_flight:,} messages that are left are in somebody's hands, and none was done lately.",
            f"the last lock ends in {span_of(last.ends_in_ms / 1000)}"
            + (f", held by {last.holder}" if last.holder else ""),
            "They are handed out again when their locks end; if their workers are gone, let go of them.",
            f"headrace queue settle {facts.name} --all --release",
        )


def only_later(facts: QueueFacts) -> Iterator[Finding]:
    if facts.delayed and not facts.backlog:
        yield Finding(
            "only_later",
            f"All {facts.delayed:,} messages in it wait for their time.",
            "0 ready, 0 in flight",
            "Nothing to do, or move them.",
            f"headrace schedule list {facts.name}",
        )


def slower(facts: QueueFacts) -> Iterator[Finding]:
    if (
        facts.filtered
        or not facts.ready
        or facts.done_per_s <= 0
        or facts.in_per_s <= facts.done_per_s * MUCH_FASTER
    ):
        return
    yield Finding(
        "slower",
        "Its workers are slower than the senders; it never catches up like this.",
        f"in {facts.in_per_s:,.1f}/s, done {facts.done_per_s:,.1f}/s, {facts.in_flight:,} in flight",
        "Start more workers: a queue hands its messages to as many as ask.",
        f"headrace queue stats {facts.name}",
    )


def catching_up(facts: QueueFacts) -> Iterator[Finding]:
    gain = facts.done_per_s - facts.in_per_s
    if not facts.filtered and facts.ready and gain > 0 and facts.done_per_s > facts.in_per_s * MUCH_FASTER:
        yield Finding(
            "catching_up",
            f"It catches up, in about {span_of(facts.backlog / gain)} at this rate.",
            f"in {facts.in_per_s:,.1f}/s, done {facts.done_per_s:,.1f}/s, {facts.backlog:,} left",
            "Nothing to do.",
        )


RULES: tuple[QueueRule, ...] = (
    broker_in_trouble,
    paused,
    webhook,
    blocked,
    nobody_receives,
    failing,
    all_held,
    only_later,
    slower,
    catching_up,
)
