"""Machine: topics came, went or grew. Groups whose subscriptions notice have to assign anew."""

from __future__ import annotations

from headrace.core.plan import Fact, Plan
from headrace.groups.commands import GroupPlan
from headrace.groups.consumer.commands import TopicsChanged
from headrace.groups.consumer.facts import GroupEpochSet
from headrace.groups.consumer.state import ConsumerGroup
from headrace.groups.facts import TopicsSeen
from headrace.groups.share.facts import ShareEpochSet
from headrace.groups.share.state import ShareGroup
from headrace.groups.state import ClassicGroup
from headrace.groups.streams import draft as streams_draft
from headrace.groups.table import GroupTable
from headrace.groups.topics import TopicIndex


def topics_changed(table: GroupTable, command: TopicsChanged) -> GroupPlan:
    """The fingerprint is journaled, so a coordinator that just loaded knows what it missed, and only that."""
    if not command.topics:
        # The topic that this shard is a partition of exists. So this is not a cluster without topics but a broker
        # that does not know its cluster yet, and on its word every group would have to let everything go.
        return Plan(replies=command.answer(None))
    index = TopicIndex(command.topics, command.sees)
    facts: list[Fact] = [TopicsSeen(index)]
    for group in table.groups.values():
        if isinstance(group, ClassicGroup) or not group.members:
            continue  # classic members look at the topics themselves
        fingerprint = index.fingerprint(group.topics_subscribed(index))
        if fingerprint == group.fingerprint:
            continue
        if isinstance(group, ConsumerGroup):
            facts.append(GroupEpochSet(group.group_id, group.epoch + 1, fingerprint, -1))
        elif isinstance(group, ShareGroup):
            facts.append(ShareEpochSet(group.group_id, group.epoch + 1, fingerprint))
        else:
            facts.append(streams_draft.epoch_for(group, index))
    return Plan(tuple(facts), command.answer(None))
