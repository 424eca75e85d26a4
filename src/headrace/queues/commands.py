"""Machine: what can be asked of a queue shard, what it answers, and what it wants done.

A command about messages names them by `Handle`, what a receipt says (R56). Batches are answered entry by entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from headrace.core.errors import ErrorKind
from headrace.core.plan import AnyCommand, Command, Plan, Rejected, Reply
from headrace.queues.config import DEFAULT_PRIORITY, QueueConfig
from headrace.queues.ranges import Range


class Source(NamedTuple):
    """One data partition as one queue reads it: the unit of state. A subscription over many topics has many."""

    queue: str
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.queue}<{self.topic}-{self.partition}"


class Handle(NamedTuple):
    """One delivery of one message (R56). `epoch` keeps a receipt from before a failover from acking another's lease."""

    offset: int
    delivery: int
    epoch: int


class LoggedMessage(NamedTuple):
    """What is special about a message, as the driver read it from the log. Plain tuples in this order do as well.

    A message with nothing special is not mentioned at all; that is what keeps a big backlog small.
    """

    offset: int
    due_ms: int = 0
    """Wall clock; not to be delivered before."""
    group: bytes = b""
    """The message group of a FIFO queue, the tenant of a fair one."""
    dedup_id: bytes = b""
    priority: int = DEFAULT_PRIORITY
    expires_ms: int = 0
    """Wall clock; not to be delivered from then on. 0 is never."""
    timestamp_ms: int = 0
    """The log's timestamp, which is what the deduplication window is measured in (R59)."""


class Outcome(IntEnum):
    """Why a message is done. The values are journaled."""

    ACKED = 1
    GAP = 2
    EXPIRED = 3
    CANCELLED = 4
    MOVED = 5
    ARCHIVED = 6
    DUPLICATE = 7


class DeathReason(IntEnum):
    """Why a message goes to the dead letters. The values are journaled."""

    MAX_DELIVERIES = 1
    REJECTED = 2
    EXPIRED = 3


class AckType(IntEnum):
    """KIP-932 and KIP-1222, as on the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


# --- answers ---------------------------------------------------------------------------------------------------


Verdicts: TypeAlias = tuple[Rejected | None, ...]
"""For each handle of a command: None, or why it was refused."""


class Delivered(NamedTuple):
    """Neighbouring messages on the same delivery. `first_received_ms` is wall clock."""

    first: int
    end: int
    delivery: int
    first_received_ms: int


class ReceivedRuns(NamedTuple):
    runs: tuple[Delivered, ...] = ()
    epoch: int = 0
    """Goes into the receipts."""
    visibility_ms: int = 0
    limited: bool = False
    """Held back by max_in_flight (SQS: OverLimit)."""
    paused: bool = False

    def handles(self) -> list[Handle]:
        return [Handle(o, run.delivery, self.epoch) for run in self.runs for o in range(run.first, run.end)]


class Counts(NamedTuple):
    visible: int
    in_flight: int
    delayed: int
    """Scheduled, or resting after a release."""
    dying: int
    start_offset: int
    """The oldest message that is not done, if it is below end_offset."""
    end_offset: int
    indexed_to: int
    paused: bool


class Lock(NamedTuple):
    """A message that somebody has received and not settled."""

    offset: int
    deliveries: int
    deadline_ms: int
    """Monotonic."""
    visibility_ms: int
    owner: str
    """Who holds it, where the door knows: a member of a share group, a webhook, a move task."""
    epoch: int
    """Of the lease; with the offset and the deliveries it is the handle that the holder has (R56)."""


class MessageGroup(NamedTuple):
    """Messages of a FIFO queue that wait for each other."""

    group: bytes
    waiting: int
    in_flight: int
    resting: int
    """Released and not yet due again: it holds up the rest as one in flight does."""
    by: int
    """Offset of the message that the others wait for; -1: nothing holds them up."""
    deliveries: int
    owner: str
    until_ms: int
    """When the lock of that message, or its rest, ends; monotonic."""


class MessageState(IntEnum):
    UNKNOWN = 0
    """At or after the end of the log as this shard knows it."""
    AVAILABLE = 1
    ACQUIRED = 2
    SCHEDULED = 3
    RESTING = 4
    DYING = 5
    DONE = 6


class MessageStatus(NamedTuple):
    state: MessageState
    deliveries: int = 0
    until_ms: int = 0
    """ACQUIRED and RESTING: monotonic. SCHEDULED: wall clock."""
    owner: str = ""


class WantedRecords(NamedTuple):
    """What the driver should read from the log and pass in the next DataAvailable."""

    first: int
    end: int
    limit: int
    """How many more messages fit into the window."""
    gaps: tuple[Range, ...]
    """The parts of [first, end) that are not done; the rest need not be read. Bounded: `end` is cut to fit."""


# --- commands: queues ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Configure(Command[None]):
    """Create a queue or change it. Answer: None or Rejected."""

    queue: str
    config: QueueConfig


@dataclass(slots=True)
class Pause(Command[None]):
    """Hand out nothing more, or again (`paused=False`)."""

    queue: str
    paused: bool = True


@dataclass(slots=True)
class RemoveQueue(Command[None]):
    queue: str


@dataclass(slots=True)
class Open(Command[int]):
    """Begin to read a partition at `start_offset`. Answer: where the source stands, which is not `start_offset`
    when it was open already."""

    source: Source
    start_offset: int


@dataclass(slots=True)
class Close(Command[None]):
    """Forget a partition: the topic is gone or the subscription left it."""

    source: Source


@dataclass(slots=True)
class SetClock(Command[None]):
    """The wall clock as of now. Due times are compared with it until the next SetClock, moved on by the monotonic
    clock; so a jump of the wall clock matters only when the driver says so (R58)."""

    wall_ms: int


# --- commands: messages ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class DataAvailable(Command[None]):
    """The log grew: `end_offset` is the high watermark (or the last stable offset), `start_offset` where it begins.

    For an indexed queue `messages` tells, in ascending order, what is special in [wanted.first, indexed_to); `skipped`
    are ranges that the filter refuses or that hold no message (control records, compacted gaps); the rest is
    ordinary. For other queues all three are left out.
    """

    source: Source
    end_offset: int
    start_offset: int = 0
    indexed_to: int | None = None
    messages: Sequence[LoggedMessage] = ()
    skipped: Sequence[Range] = ()


@dataclass(slots=True)
class FindDuplicate(Command[int | None]):
    """Before a send: was this deduplication id seen within the window? Answer: the first one's offset, or None."""

    source: Source
    dedup_id: bytes
    wall_ms: int


@dataclass(slots=True)
class Receive(Command[ReceivedRuns]):
    """Answer: Received, at once, also when there is nothing; waiting is the driver's."""

    source: Source
    max_messages: int
    visibility_ms: int | None = None
    owner: str = ""
    below: int | None = None
    """Only offsets below this one; None: all."""


@dataclass(slots=True)
class Ack(Command[Verdicts]):
    """Done for good. Answer: a tuple of None or Rejected, one for each handle."""

    source: Source
    handles: tuple[Handle, ...]
    outcome: Outcome = Outcome.ACKED


@dataclass(slots=True)
class Release(Command[Verdicts]):
    """Give back; `delay_ms` None takes the queue's back-off, drawn with `draw` in [0, 1). `detail` ends in the headers of those
    that die of it. Answer as for Ack."""

    source: Source
    handles: tuple[Handle, ...]
    delay_ms: int | None = None
    draw: float = 0.0
    detail: str = ""


@dataclass(slots=True)
class ReleaseOwner(Command[None]):
    """A consumer left (KIP-932: its share session closed): all it holds, in every partition here, is given back."""

    queue: str
    owner: str


@dataclass(slots=True)
class EndRest(Command[int]):
    """Messages that rest after a release (None: all of them) are available now. Answer: how many there were."""

    source: Source
    offsets: tuple[int, ...] | None = None


@dataclass(slots=True)
class Extend(Command[Verdicts]):
    """The lease now ends `visibility_ms` from now; 0 gives back at once (SQS). Answer as for Ack."""

    source: Source
    handles: tuple[Handle, ...]
    visibility_ms: int
    stale_may_prolong: bool = False
    """An older receipt of a message may keep it for longer, too, but never for less long: somebody else works on it."""


@dataclass(slots=True)
class RejectMessages(Command[Verdicts]):
    """To the dead letters, whatever the count. `detail` ends in the dead letter's headers. Answer as for Ack."""

    source: Source
    handles: tuple[Handle, ...]
    detail: str = ""


@dataclass(slots=True)
class Acknowledge(Command[None]):
    """KIP-932: batches of (first, last, types), last included; one type for all or one for each offset.
    All or nothing. Answer: None or Rejected."""

    source: Source
    owner: str
    batches: tuple[tuple[int, int, tuple[int, ...]], ...]


@dataclass(slots=True)
class DeadLettersWritten(Command[Verdicts]):
    """The dead letters are written. The driver puts the records of this command's facts into the same transaction as
    the dead letters (R60); if that transaction aborts, the shard has to be loaded again."""

    source: Source
    offsets: tuple[int, ...]


@dataclass(slots=True)
class Released(Command[None]):
    """The log has copies of these: they are done, whatever state they are in."""

    source: Source
    offsets: tuple[int, ...]


@dataclass(slots=True)
class MoveFailed(Command[None]):
    """Nothing was moved; ask again in `retry_ms`."""

    source: Source
    offsets: tuple[int, ...]
    retry_ms: int


@dataclass(slots=True)
class Purge(Command[None]):
    """Everything before `upto` (None: the end) is done, also what is in flight or delayed. Twice within
    `min_interval_ms` is PURGE_QUEUE_IN_PROGRESS (SQS: 60 s)."""

    source: Source
    upto: int | None = None
    min_interval_ms: int = 0


@dataclass(slots=True)
class SeekSource(Command[None]):
    """Start over at `offset` (KIP-932: alter the share-partition start offset)."""

    source: Source
    offset: int


# --- commands: schedules and questions -------------------------------------------------------------------------


@dataclass(slots=True)
class ListSchedules(Command[tuple[tuple[int, int], ...]]):
    """Answer: ((offset, due_ms), ...) in offset order; continue from the last offset + 1."""

    source: Source
    from_offset: int = 0
    limit: int = 100


@dataclass(slots=True)
class MoveSchedule(Command[None]):
    source: Source
    offset: int
    due_ms: int


@dataclass(slots=True)
class CancelSchedule(Command[None]):
    source: Source
    offset: int


@dataclass(slots=True)
class Describe(Command[Counts]):
    """Answer: Counts."""

    source: Source


@dataclass(slots=True)
class Holding(Command[bool | None]):
    """Whether there is something of a message group below `upto`; None as long as not everything has been looked at and what
    was does not tell."""

    source: Source
    group: bytes
    upto: int


@dataclass(slots=True)
class HeldGroups(Command[tuple[bytes, ...] | None]):
    """Which message groups there is something of below `upto`; None as long as not everything has been looked at."""

    source: Source
    upto: int


@dataclass(slots=True)
class Peek(Command[tuple[int, ...]]):
    """Answer: a tuple of offsets that a Receive could hand out, lowest first. Changes nothing."""

    source: Source
    limit: int = 10
    from_offset: int = 0


@dataclass(slots=True)
class Inspect(Command[MessageStatus]):
    """Answer: the MessageStatus of one offset."""

    source: Source
    offset: int


# --- effects ---------------------------------------------------------------------------------------------------


class WakeReceivers(NamedTuple):
    queue: str


class MoveToDeadLetter(NamedTuple):
    """Write to `dead_letter` and then say Moved, in one transaction (R60), or MoveFailed. Asked once; asked again only
    after MoveFailed and after a reload."""

    source: Source
    dead_letter: str
    offset: int
    reason: DeathReason
    deliveries: int
    detail: str = ""


class ReadAhead(NamedTuple):
    """The window has room again: read `shard.wanted(source)` and pass it in."""

    source: Source


QueueEffect: TypeAlias = WakeReceivers | MoveToDeadLetter | ReadAhead
QueuePlan: TypeAlias = Plan[QueueEffect]


def no_such_source(command: AnyCommand, source: Source) -> tuple[Reply, ...]:
    return command.answer(Rejected(ErrorKind.QUEUE_DOES_NOT_EXIST, f"no queue state for {source}"))
