"""Machine: order within a message group (R59).

One batch per group is outstanding at a time, and it is taken from the group's front. `Lanes` keeps groups that have
something in flight or resting out of the rotation, so what is in it may be handed out.
"""

from __future__ import annotations

from headrace.queues.lanes import Lane, Level
from headrace.queues.ranges import Range, Refuse


def pick_groups(level: Level, limit: int, refuse: Refuse | None) -> list[tuple[Range, int]]:
    """Whole groups one after the other, as SQS does it: as many as possible of one group, then of the next."""
    picked: list[tuple[Range, int]] = []
    for lane in level.values():
        if limit <= 0:
            break
        for run in lane.ready.head(limit, refuse):
            picked.append((run, lane.id))
            limit -= run[1] - run[0]
    return picked


def due_within_group(lane: Lane, due_ms: int) -> int:
    """A message may not be due before the one in front of it in its group: a delayed message delays those behind it.

    A message that was cancelled counts for those sent while others of its group still wait: late, never out of order.
    """
    return max(due_ms, lane.last_due_ms) if lane.scheduled else due_ms
