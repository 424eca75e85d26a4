"""Machine: what each fact of streams groups does to a shard's table."""

from __future__ import annotations

from headrace.groups.assigned_apply import Apply, KindOfGroup
from headrace.groups.streams import facts
from headrace.groups.streams.state import StreamsGroup

_KIND = KindOfGroup(StreamsGroup)

APPLY: dict[type, Apply] = {
    facts.StreamsEpochSet: _KIND.set_epoch,
    facts.TopologySet: _KIND.put,
    facts.StreamsMemberSet: _KIND.put,
    facts.StreamsTargetsSet: _KIND.put,
    facts.StreamsTargetLoaded: _KIND.load_target,
    facts.StreamsCurrentSet: _KIND.put,
    facts.StreamsCurrentForgotten: _KIND.put_if_there,
    facts.StreamsMemberLeft: _KIND.remove_member,
    facts.StreamsGroupDeleted: _KIND.delete,
    facts.AssignmentDelayed: _KIND.put,
    facts.ShutdownRequested: _KIND.put_if_there,
}
