"""Machine: what comes due in a shard of groups."""

from __future__ import annotations

from typing import NamedTuple

SESSION = "session"
"""A member's silence has lasted too long."""
PHASE = "phase"
"""A step that a group or one member has to take has not been taken."""
CLEANUP = "cleanup"
"""Offsets, or an empty group, may have to be forgotten."""


class Deadline(NamedTuple):
    """What comes due: `kind` tells the machine which rule applies; `member_id` is empty for a whole group."""

    kind: str
    group_id: str
    member_id: str = ""
