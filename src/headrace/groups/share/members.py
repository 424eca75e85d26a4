"""Machine: a member of a share group. Immutable: facts carry it, and the state keeps it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.groups.consumer.members import NOTHING, Assignment


class ShareSubscription(NamedTuple):
    topics: tuple[str, ...] = ()
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


class ShareMember(NamedTuple):
    member_id: str
    subscription: ShareSubscription = ShareSubscription()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = NOTHING
