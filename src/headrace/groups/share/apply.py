"""Machine: what each fact of share groups does to a shard's table."""

from __future__ import annotations

from headrace.groups.assigned_apply import Apply, KindOfGroup
from headrace.groups.share import facts
from headrace.groups.share.state import ShareGroup

_KIND = KindOfGroup(ShareGroup)

APPLY: dict[type, Apply] = {
    facts.ShareEpochSet: _KIND.set_epoch,
    facts.ShareMemberSubscribed: _KIND.put,
    facts.ShareTargetsSet: _KIND.put,
    facts.ShareTargetLoaded: _KIND.load_target,
    facts.ShareCurrentSet: _KIND.put,
    facts.ShareMemberLeft: _KIND.remove_member,
    facts.ShareGroupDeleted: _KIND.delete,
}
