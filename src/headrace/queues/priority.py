"""Machine: what to hand out next. The highest priority that has anything ready goes first, strictly.

Starvation of the low by the high is what priority means here; fairness is between tenants of one priority.
"""

from __future__ import annotations

from itertools import repeat

from headrace.queues.fairness import pick_turns
from headrace.queues.fifo import pick_groups
from headrace.queues.lanes import Lanes
from headrace.queues.ranges import Range, Refuse


def pick(lanes: Lanes, limit: int, refuse: Refuse | None) -> list[tuple[Range, int]]:
    """Up to `limit` offsets as (range, lane id). Changes nothing."""
    if len(lanes.levels) == 1 and len(lanes.levels[0]) == 1 and not lanes.fifo:  # as most queues are
        (lane,) = lanes.levels[0].values()
        return [*zip(lane.ready.head(limit, refuse), repeat(lane.id))]
    picked: list[tuple[Range, int]] = []
    deal = pick_groups if lanes.fifo else pick_turns
    for level in reversed(lanes.levels):
        if level:
            chosen = deal(level, limit, refuse)
            picked += chosen
            limit -= sum(end - first for (first, end), _ in chosen)
            if limit <= 0:
                break
    return picked
