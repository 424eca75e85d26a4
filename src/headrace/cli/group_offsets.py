"""Command: groups as the broker knows them: state, members, committed offsets, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType

from headrace.cli.broker_link import BrokerLink, Span
from headrace.cli.failure import Exit, Failure, did_you_mean


class GroupPosition(NamedTuple):
    """Where a group stands on one partition of a topic that it reads."""

    group: str
    topic: str
    partition: int
    committed: int | None
    """None: it reads the topic, but has committed nothing here yet; where it would begin is up to its consumers."""
    start: int
    end: int

    @property
    def lag(self) -> int | None:
        """A committed offset below the log's start has lost what was in between."""
        return None if self.committed is None else max(0, self.end - max(self.committed, self.start))


def group_names(link: BrokerLink) -> list[str]:
    listed = link.answer(link.admin.list_consumer_groups(request_timeout=link.timeout_s))
    return sorted(group.group_id for group in listed.valid)


def need_groups(link: BrokerLink, names: Iterable[str]) -> list[str]:
    """These names, without repetition; not-found with the nearest name when one does not exist."""
    known = group_names(link)
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in known:
            raise no_such_group(link, name, known)
    return wanted


def no_such_group(link: BrokerLink, name: str, known: Iterable[str]) -> Failure:
    return Failure(
        Exit.NOT_FOUND,
        f'group "{name}" does not exist on {link.profile.bootstrap}',
        did_you_mean(name, known) or "headrace group list",
        code="GROUP_ID_NOT_FOUND",
    )


def descriptions(link: BrokerLink, names: list[str]) -> dict[str, Any]:
    if not names:
        return {}
    futures = link.admin.describe_consumer_groups(names, request_timeout=link.timeout_s)
    return {name: link.answer(future, f'group "{name}"') for name, future in futures.items()}


def state_name(group: Any) -> str:
    """The client's names say rebalancing where Kafka says Rebalance; REST writes preparing-rebalance (F54)."""
    return str(group.state.name).lower().replace("_", "-").replace("rebalancing", "rebalance")


def type_name(group: Any) -> str:
    kind = getattr(group, "type", ConsumerGroupType.UNKNOWN)
    return "classic" if kind is ConsumerGroupType.UNKNOWN else str(kind.name).lower()


def positions(link: BrokerLink, names: list[str]) -> list[GroupPosition]:
    """Where these groups stand on every partition of every topic they have committed anything for, in order."""
    known = link.topics()
    committed = {name: _committed(link, name) for name in names}
    topics = {topic for offsets in committed.values() for topic, _ in offsets}
    spans = link.spans({topic: known[topic] for topic in topics if topic in known})
    found = []
    for name, offsets in committed.items():
        read = {topic for topic, _ in offsets}
        for key in sorted({*offsets, *(key for key in spans if key[0] in read)}):
            offset = offsets.get(key)
            # The topic may be gone; what was committed for it is still there.
            span = spans.get(key, Span(offset or 0, offset or 0))
            found.append(GroupPosition(name, *key, offset, span.start, span.end))
    return found


def _committed(link: BrokerLink, name: str) -> dict[tuple[str, int], int]:
    request = [ConsumerGroupTopicPartitions(name)]
    futures = link.admin.list_consumer_group_offsets(request, request_timeout=link.timeout_s)
    answer = link.answer(futures[name], f'group "{name}"')
    return {
        (entry.topic, entry.partition): entry.offset
        for entry in answer.topic_partitions
        if entry.error is None and entry.offset >= 0
    }
