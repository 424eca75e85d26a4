"""Machine: acknowledgements as share consumers send them (KIP-932; renew: KIP-1222).

A member names ranges and, for each offset, whether it was no record (gap), is accepted, released, rejected or to be
kept longer. It must hold all of them: if it does not hold one, nothing of the request happens and the answer is
INVALID_RECORD_STATE. Offsets below the start are done and are passed over.
"""

from __future__ import annotations

from headrace.core.errors import ErrorKind
from headrace.core.plan import Plan, Rejected
from headrace.queues.board import Board
from headrace.queues.commands import (
    Acknowledge,
    AckType,
    DeathReason,
    Outcome,
    QueuePlan,
    no_such_source,
)
from headrace.queues.deadlines import Lease
from headrace.queues.draft import QueueDraft
from headrace.queues.extend import plan_extension
from headrace.queues.facts import Doomed
from headrace.queues.ranges import as_ranges
from headrace.queues.state import SourceState

_KNOWN_TYPES = frozenset(AckType)


def decide_acknowledge(board: Board, command: Acknowledge, now_ms: int) -> QueuePlan:
    partition = board.partitions.get(command.source)
    if partition is None:
        return Plan(replies=no_such_source(command, command.source))
    verdicts = _verdicts(partition, command)
    if isinstance(verdicts, Rejected):
        return Plan(replies=command.answer(verdicts))
    by_type: dict[int, list[tuple[int, Lease]]] = {}
    for offset in sorted(verdicts):
        by_type.setdefault(verdicts[offset], []).append((offset, partition.leases[offset]))
    draft = QueueDraft(partition, now_ms + board.wall_offset_ms)
    for ack_type, outcome in ((AckType.ACCEPT, Outcome.ACKED), (AckType.GAP, Outcome.GAP)):
        if ack_type in by_type:
            draft.settle(as_ranges(offset for offset, _ in by_type[ack_type]), outcome)
    if released := by_type.get(AckType.RELEASE):
        draft.give_back(released, [0] * len(released))
    draft.kill(
        [Doomed(offset, lease.delivery) for offset, lease in by_type.get(AckType.REJECT, ())],
        DeathReason.REJECTED,
    )
    if renewed := by_type.get(AckType.RENEW):
        plan_extension(draft, renewed, partition.config.visibility_ms)
    if len(partition.leases) >= partition.config.max_in_flight:
        draft.wake_receivers()
    return draft.plan(command, None)


def _verdicts(partition: SourceState, command: Acknowledge) -> dict[int, int] | Rejected:
    verdicts: dict[int, int] = {}
    for first, last, types in command.batches:
        size = last - first + 1
        if size < 1 or len(types) not in (1, size) or not _KNOWN_TYPES.issuperset(types):
            return Rejected(
                ErrorKind.INVALID_REQUEST, f"batch {first}-{last} has {len(types)} acknowledge types"
            )
        low = max(first, partition.start_offset)
        if last - low + 1 > len(partition.leases):  # also keeps a range of 2^63 from being walked
            return Rejected(ErrorKind.INVALID_RECORD_STATE, f"batch {first}-{last} is more than is acquired")
        for offset in range(low, last + 1):
            lease = partition.leases.get(offset)
            if lease is None or lease.owner != command.owner or offset in verdicts:
                return Rejected(
                    ErrorKind.INVALID_RECORD_STATE, f"offset {offset} is not acquired by this member"
                )
            verdicts[offset] = types[0] if len(types) == 1 else types[offset - first]
    return verdicts
