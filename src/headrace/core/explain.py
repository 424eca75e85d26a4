"""Kernel: why a group is behind (5.6). Rules over what is known, each by itself, in the order in which a person should hear of them.

No guessing: a rule speaks when its evidence is there and is silent otherwise; nothing found is said so by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.ids import TopicPartition

STUCK_MS = 60_000
HOT_SHARE = 0.9
HOT_LEAST = 100
"""Below so many messages no partition is called hot."""
MUCH_FASTER = 1.05
SHOWN = 3


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    tp: TopicPartition
    committed: int | None
    start: int
    end: int
    """The last stable offset: what a reader of committed records can get."""
    written: int
    """The high watermark: above `end` while a transaction is open."""
    owner: str | None

    @property
    def lag(self) -> int:
        """To the end of the log, as Kafka's tools count; without a commit nobody knows where the group begins, so none (as there)."""
        return 0 if self.committed is None else max(0, self.written - max(self.committed, self.start))


@dataclass(frozen=True, slots=True)
class GroupFacts:
    name: str
    members: int
    partitions: tuple[PartitionFacts, ...]
    in_per_s: float
    """Into the topics that it reads."""
    out_per_s: float
    moved_ms: int | None
    """When it last committed progress, by the wall clock; None: not since the broker began."""
    since_ms: int
    """When the broker began to look."""
    now_ms: int
    troubles: tuple[str, ...] = field(default=())
    """What is not well with the broker itself."""

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.partitions)


class Finding(NamedTuple):
    cause: str
    sentence: str
    evidence: str
    next_step: str
    command: str = ""
    since_ms: int | None = None


Rule = Callable[[GroupFacts], Iterator[Finding]]


def explain(facts: GroupFacts) -> list[Finding]:
    """The most telling first. Empty: nothing is known that would hold it up."""
    return [finding for rule in RULES for finding in rule(facts)]


def _named(places: list[PartitionFacts]) -> str:
    names = ", ".join(str(one.tp) for one in places[:SHOWN])
    return names if len(places) <= SHOWN else f"{names} and {len(places) - SHOWN} more"


def below_start(facts: GroupFacts) -> Iterator[Finding]:
    lost = [one for one in facts.partitions if one.committed is not None and one.committed < one.start]
    if lost:
        count = sum(one.start - (one.committed or 0) for one in lost)
        yield Finding(
            "below_start",
            f"Retention has taken {count:,} messages that the group had not read.",
            f"committed below the start of {_named(lost)}",
            "Lengthen retention.ms of the topic; the group goes on where its reset policy says.",
            f"headrace topic alter {lost[0].tp.topic} -c retention.ms=14d",
        )


def nobody_reads(facts: GroupFacts) -> Iterator[Finding]:
    if facts.members == 0 and facts.lag:
        yield Finding(
            "nobody_reads",
            f"Nobody reads: the group has no members, and {facts.lag:,} messages wait.",
            "0 members",
            "Start its consumers.",
            f"headrace topic consume {facts.partitions[0].tp.topic} -g {facts.name}",
            facts.moved_ms,
        )


def nobody_owns(facts: GroupFacts) -> Iterator[Finding]:
    lost = [one for one in facts.partitions if one.owner is None and one.lag]
    if facts.members and lost:
        yield Finding(
            "nobody_owns",
            f"{len(lost)} of its partitions belong to no member, and {sum(one.lag for one in lost):,} messages wait in them.",
            f"no owner: {_named(lost)}",
            "A rebalance may be under way; if it stays, see that a member subscribes to that topic.",
            f"headrace group describe {facts.name}",
        )


def open_transaction(facts: GroupFacts) -> Iterator[Finding]:
    held = [one for one in facts.partitions if one.written > one.end]
    if held:
        count = sum(one.written - one.end for one in held)
        yield Finding(
            "open_transaction",
            f"An open transaction holds back {count:,} records from readers of committed ones.",
            f"last stable offset below the high watermark in {_named(held)}",
            "Find the producer; a transaction ends by itself after transaction.timeout.ms.",
            f"headrace topic describe {held[0].tp.topic}",
        )


def no_commit(facts: GroupFacts) -> Iterator[Finding]:
    unknown = [one for one in facts.partitions if one.committed is None and one.written > one.start]
    if unknown:
        count = sum(one.written - one.start for one in unknown)
        yield Finding(
            "no_commit",
            f"Nothing is committed yet for {len(unknown)} of its partitions, with {count:,} messages in them that are not counted as lag.",
            f"no commit: {_named(unknown)}",
            "Its consumers begin there where their auto.offset.reset says, or where you move the group to.",
            f"headrace group seek {facts.name} --to start -t {unknown[0].tp.topic}:{unknown[0].tp.partition}",
        )


def stuck(facts: GroupFacts) -> Iterator[Finding]:
    since = facts.since_ms if facts.moved_ms is None else facts.moved_ms
    if facts.members and facts.lag and facts.now_ms - since >= STUCK_MS:
        worst = max(facts.partitions, key=lambda one: one.lag)
        at = worst.committed or worst.start
        yield Finding(
            "stuck",
            f"It has members and has committed nothing for {(facts.now_ms - since) // 60_000} min.",
            f"{worst.tp} stands at {at:,}",
            "Look at the message it stands at, and at the log of its consumer.",
            f"headrace topic consume {worst.tp.topic} -p {worst.tp.partition} -o {at} -n 1",
            since,
        )


def one_partition(facts: GroupFacts) -> Iterator[Finding]:
    if len(facts.partitions) < 2 or facts.lag < HOT_LEAST:
        return
    worst = max(facts.partitions, key=lambda one: one.lag)
    if worst.owner is not None and worst.lag >= HOT_SHARE * facts.lag:
        yield Finding(
            "one_partition",
            f"One partition has {worst.lag * 100 // facts.lag} % of what is behind.",
            f"{worst.tp}: {worst.lag:,} of {facts.lag:,}",
            "A key that is used much more than others goes to one partition; look at the keys of its newest messages.",
            f"headrace topic consume {worst.tp.topic} -p {worst.tp.partition} -o -100 -f '%k\\n'",
        )


def slower(facts: GroupFacts) -> Iterator[Finding]:
    if not facts.members or not facts.lag or facts.in_per_s <= facts.out_per_s * MUCH_FASTER:
        return
    if facts.out_per_s <= 0:
        return  # that is not slow, that is stuck
    spare = len(facts.partitions) - facts.members
    wanted = max(1, round(facts.members * facts.in_per_s / facts.out_per_s) - facts.members)
    if spare > 0:
        step = f"Start {min(spare, wanted)} more consumers: it has {len(facts.partitions)} partitions for {facts.members} members."
    else:
        step = f"More consumers would not help: it has {len(facts.partitions)} partitions and {facts.members} members. Make each faster, or grow the topic."
    yield Finding(
        "slower",
        "Its consumers are slower than the writers; it never catches up like this.",
        f"in {facts.in_per_s:,.1f}/s, read {facts.out_per_s:,.1f}/s",
        step,
    )


def catching_up(facts: GroupFacts) -> Iterator[Finding]:
    gain = facts.out_per_s - facts.in_per_s
    if facts.members and facts.lag and gain > 0 and facts.out_per_s > facts.in_per_s * MUCH_FASTER:
        seconds = facts.lag / gain
        yield Finding(
            "catching_up",
            f"It catches up, in about {span_of(seconds)} at this rate.",
            f"in {facts.in_per_s:,.1f}/s, read {facts.out_per_s:,.1f}/s, {facts.lag:,} behind",
            "Nothing to do.",
        )


def broker_in_trouble(facts: GroupFacts) -> Iterator[Finding]:
    if facts.lag and facts.troubles:
        yield not_well(facts.troubles)


def not_well(troubles: tuple[str, ...]) -> Finding:
    return Finding(
        "broker",
        "The broker itself is not well.",
        "; ".join(troubles[:SHOWN]),
        "See to that first.",
        "headrace doctor",
    )


RULES: tuple[Rule, ...] = (
    broker_in_trouble,
    below_start,
    nobody_reads,
    nobody_owns,
    open_transaction,
    no_commit,
    stuck,
    slower,
    one_partition,
    catching_up,
)


def span_of(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, seconds):.0f} s"
