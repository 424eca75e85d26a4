"""Machine: the simple assignor of KIP-932: every partition has a reader, every member has work, nobody moves in vain.

Topic by topic: with at least as many partitions as subscribers the partitions are dealt out to the members; with
fewer, the members are dealt out to the partitions, so that each partition is shared by about the same number.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from headrace.groups.consumer.assignors import GroupReader
from headrace.groups.consumer.members import NOTHING, Assignment, TopicIdPartition
from headrace.groups.topics import TopicIndex

Item = TypeVar("Item", bound=Hashable)
Bin = TypeVar("Bin", bound=Hashable)


def assign_simple(
    readers: Sequence[GroupReader], previous: Mapping[str, Assignment], index: TopicIndex
) -> dict[str, Assignment]:
    result: dict[str, list[TopicIdPartition]] = {reader.member_id: [] for reader in readers}
    for number, topic in enumerate(sorted({topic for reader in readers for topic in reader.topics})):
        info = index.topics[topic]
        members = [reader.member_id for reader in readers if topic in reader.topics]
        turn = number % len(members)
        members = members[turn:] + members[:turn]  # it is not always the same members that get one more
        parts = [(info.topic_id, p) for p in range(info.partition_count)]
        had = {m: [p for p in parts if p in previous.get(m, NOTHING)] for m in members}
        if len(members) <= len(parts):
            owner = {part: m for m in members for part in had[m]}
            pairs = [(m, part) for part, m in _deal(parts, members, owner).items()]
        else:
            place = {m: mine[0] for m, mine in had.items() if mine}
            pairs = list(_deal(members, parts, place).items())
        for member_id, part in pairs:
            result[member_id].append(part)
    return {member_id: frozenset(parts) for member_id, parts in result.items()}


def _deal(items: Sequence[Item], bins: Sequence[Bin], before: Mapping[Item, Bin]) -> dict[Item, Bin]:
    """Each item in one bin, bins equally full within one, and items where they were as far as that allows."""
    share, extra = divmod(len(items), len(bins))
    held: dict[Bin, list[Item]] = {bin_: [] for bin_ in bins}
    for item in items:
        if item in before:
            held[before[item]].append(item)
    fullest_first = sorted(bins, key=lambda bin_: -min(len(held[bin_]), share + 1))
    quota = {bin_: share + (position < extra) for position, bin_ in enumerate(fullest_first)}
    result = {item: bin_ for bin_ in bins for item in held[bin_][: quota[bin_]]}
    room = [bin_ for bin_ in bins for _ in range(quota[bin_] - min(len(held[bin_]), quota[bin_]))]
    homeless = [item for item in items if item not in result]
    result.update(zip(homeless, room, strict=True))
    return result
