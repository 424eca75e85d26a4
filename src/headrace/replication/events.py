"""Machine: the words in which a Leader hears from its driver (events) and answers it (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from headrace.core.errors import ErrorKind

# -- what the leader is told ------------------------------------------------------------------------------------------


class LocalAppended(NamedTuple):
    end_offset: int


class LocalDurable(NamedTuple):
    """Everything below `end_offset` is synced."""

    end_offset: int


class FollowerFetch(NamedTuple):
    """A replica asks for `fetch_offset`, so it holds everything below it (R22: if it got there the same way as we did)."""

    replica_id: int
    broker_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int


class IsrCommitted(NamedTuple):
    """The proposed ISR is in the coordinator, at `revision`."""

    revision: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]


class IsrRejected(NamedTuple):
    """The proposal that compared `revision` was definitely refused: nothing of it happened."""

    revision: int


class IsrUnknown(NamedTuple):
    """Nobody knows whether the proposal that compared `revision` was taken, or still will be (R5)."""

    revision: int


class PartitionRead(NamedTuple):
    """The partition as the coordinator has it, at `revision`; from the watch or from a read."""

    revision: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]


class BrokerChanged(NamedTuple):
    """How another broker stands. `live`: registered, not fenced, not stopping."""

    broker_id: int
    broker_epoch: int
    live: bool
    rack: str | None = None


class RequirementsChanged(NamedTuple):
    """The topic's configs changed."""

    min_isr: int
    min_racks: int
    waits_for_sync: bool


class HigherEpochSeen(NamedTuple):
    """Some fetch or response carried a leader epoch above ours."""

    leader_epoch: int


class LeaseChanged(NamedTuple):
    """Whether our own registration is known to be alive (R7)."""

    held: bool


class Tick(NamedTuple):
    """Time has passed; sent about every second."""


class Stalled(NamedTuple):
    """The event loop stood still or the process was stopped (R15)."""


class Resign(NamedTuple):
    """Stop leading: the driver's own decision (shutdown, failed disk)."""

    kind: ErrorKind = ErrorKind.NOT_LEADER_OR_FOLLOWER


LeaderEvent = (
    LocalAppended
    | LocalDurable
    | FollowerFetch
    | IsrCommitted
    | IsrRejected
    | IsrUnknown
    | PartitionRead
    | BrokerChanged
    | RequirementsChanged
    | HigherEpochSeen
    | LeaseChanged
    | Tick
    | Stalled
    | Resign
)


# -- what the leader wants done ---------------------------------------------------------------------------------------


class AdvanceHighWatermark(NamedTuple):
    """Everything below `offset` is committed: answer producers, wake consumers."""

    offset: int


class IsrChange(Enum):
    EXPAND = "expand"
    SHRINK = "shrink"
    CLEAR_ELR = "clear_elr"
    SETTLE = "settle"
    """The ISR as it is, written again: it moves the revision, so a lost proposal can no longer happen."""


class ProposeIsr(NamedTuple):
    """Compare-and-swap the ISR; answer with IsrCommitted, IsrRejected or IsrUnknown.

    `revision` is the one to compare the partition with, `joining` the broker epoch each new member fetched under (R14).
    """

    isr: tuple[int, ...]
    change: IsrChange
    revision: int
    joining: Mapping[int, int]


class RefuseFetch(NamedTuple):
    """Answer this follower's fetch with an error; nothing was learnt from it."""

    kind: ErrorKind


class Diverging(NamedTuple):
    """Answer this follower's fetch with a diverging epoch (R22); nothing was learnt from it."""

    epoch: int
    end_offset: int


class FailWaiters(NamedTuple):
    """Every producer that waits for acks=all gets this answer."""

    kind: ErrorKind


class RereadPartition(NamedTuple):
    """Read the partition from the coordinator and come back with PartitionRead."""


class StepDown(NamedTuple):
    """This leadership is over; the machine refuses everything from now on."""

    reason: str


LeaderEffect = (
    AdvanceHighWatermark | ProposeIsr | RefuseFetch | Diverging | FailWaiters | RereadPartition | StepDown
)
