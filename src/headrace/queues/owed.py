"""Machine: what a queue still owes somebody, so that retention waits for it ([decision 0061](../../../docs/decisions/0061-retention-waits-for-what-is-owed.md)).

Retention counts from when a message was sent. A message with a delay can be had by nobody until it is due, so its time counts from
then; and one that is in somebody's hands, waits for its next attempt or is on its way to the dead letters is not taken away under them.
What is merely ready is nobody's yet and goes by its age.
"""

from __future__ import annotations

from headrace.queues.state import SourceState

DAY_MS = 24 * 60 * 60 * 1000


def owed_from(partition: SourceState, wall_ms: int, retention_ms: int) -> int:
    """The first offset that retention has to leave alone, among what has been looked at; where the log ends when there is none.

    Bounded: what is in flight or was given back counts for one retention time from its first receive, so a message that nobody ever
    finishes goes in the end.
    """
    grace_ms = retention_ms if retention_ms >= 0 else DAY_MS
    since_ms = wall_ms - grace_ms
    held = [offset for offset, lease in partition.leases.items() if lease.first_received_ms >= since_ms]
    held += [offset for offset, retry in partition.retries.items() if retry.first_received_ms >= since_ms]
    held += partition.dying
    held += (offset for offset, _ in partition.schedule.items(0, 1))
    fell_due = partition.dues.lowest(since_ms)
    if fell_due is not None and fell_due >= partition.start_offset:
        held.append(fell_due)
    return min(held, default=partition.end_offset)
