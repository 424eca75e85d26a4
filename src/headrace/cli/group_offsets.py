"""Command: groups as the broker knows them: state, members, committed offsets, and how far they are behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, ConsumerGroupType

from headrace.cli.broker_link import EARLIEST, LATEST, BrokerLink
from headrace.cli.failure import Exit, Failure, did_you_mean


class Committed(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    start: int
    end: int

    @property
    def lag(self) -> int:
        """A committed offset below the log's start has lost what was in between."""
        return max(0, self.end - max(self.offset, self.start))


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
    return str(group.state.name).lower().replace("_", "-")


def type_name(group: Any) -> str:
    kind = getattr(group, "type", ConsumerGroupType.UNKNOWN)
    return "classic" if kind is ConsumerGroupType.UNKNOWN else str(kind.name).lower()


def committed_offsets(link: BrokerLink, names: list[str]) -> list[Committed]:
    """Every committed offset of these groups with the ends of its partition, in order."""
    found: list[tuple[str, str, int, int]] = []
    for name in names:
        request = [ConsumerGroupTopicPartitions(name)]
        futures = link.admin.list_consumer_group_offsets(request, request_timeout=link.timeout_s)
        answer = link.answer(futures[name], f'group "{name}"')
        found += [
            (name, entry.topic, entry.partition, entry.offset)
            for entry in answer.topic_partitions
            if entry.error is None and entry.offset >= 0
        ]
    known = link.topics()
    partitions = {
        (topic, number)
        for _, topic, number, _ in found
        if topic in known and number in known[topic].partitions
    }
    starts, ends = link.offsets(partitions, EARLIEST), link.offsets(partitions, LATEST)
    return [
        Committed(
            name,
            topic,
            number,
            offset,
            starts.get((topic, number), offset),
            ends.get((topic, number), offset),
        )
        for name, topic, number, offset in sorted(found)
    ]
