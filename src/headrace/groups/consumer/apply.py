"""Machine: what each fact of consumer groups does to a shard's table."""

from __future__ import annotations

from headrace.groups.assigned_apply import Apply, KindOfGroup
from headrace.groups.consumer import facts
from headrace.groups.consumer.state import ConsumerGroup

_KIND = KindOfGroup(ConsumerGroup)

APPLY: dict[type, Apply] = {
    facts.GroupEpochSet: _KIND.set_epoch,
    facts.MemberSubscribed: _KIND.put,
    facts.TargetsSet: _KIND.put,
    facts.TargetLoaded: _KIND.load_target,
    facts.CurrentSet: _KIND.put,
    facts.AssignmentTold: _KIND.put_if_there,
    facts.MemberLeft: _KIND.remove_member,
    facts.CurrentForgotten: _KIND.put_if_there,
    facts.ConsumerGroupDeleted: _KIND.delete,
}
