"""Codec: what one broker asks another about queues, as msgpack. A question is a `PeerQuestion[A]`, and `A` is its answer."""

from __future__ import annotations

from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Rejected
from headrace.queues.commands import Counts, Handle, Source
from headrace.records.build import Record

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class DeliveredMessage(NamedTuple):
    """One message in the hands of one receiver."""

    source: Source
    record: Record
    handle: Handle
    first_received_ms: int
    message_id: str


class Sent(NamedTuple):
    message_id: str
    partition: int
    offset: int
    duplicate: bool = False


class Outgoing(NamedTuple):
    record: Record
    dedup_id: bytes = b""


class SentSome(NamedTuple):
    """Of several messages in order: so many are in the queue, and the one behind them is not, or nobody knows."""

    sent: list[Sent]
    problem: Rejected | None = None


class QueueStats(NamedTuple):
    """How one queue stands on one broker."""

    counts: list[tuple[Source, Counts]]
    oldest_age_ms: int


class ShareOffset(NamedTuple):
    start_offset: int
    leader_epoch: int
    lag: int


class MovedSome(NamedTuple):
    moved: int
    exhausted: bool
    skipped: int = 0
    """Wanted, and left alone because the edits do not fit them."""


class PeerQuestion(msgspec.Struct, Generic[A_co], frozen=True, tag=True, kw_only=True):
    """Tags are names on the wire, and stay when a class gets a better one: brokers of two versions ask each other.

    Which life of the queue and of its topics is meant is said by their ids (lives.py); a broker of the version before says none."""

    queue: str
    queue_id: str = ""
    topic_ids: dict[str, bytes] = {}


class AskReceive(PeerQuestion[list[DeliveredMessage]], frozen=True, kw_only=True):
    count: int
    visibility_ms: int | None
    wait_ms: int
    owner: str
    patient: bool = False
    """Whether to wait a while for what is being loaded."""


class AskArrivals(PeerQuestion[int], frozen=True, kw_only=True, tag="AskNews"):
    """Wait until something may have become available since the number that was seen last. The answer is what to say next
    time; it takes nothing."""

    seen: int
    wait_ms: int


class AskSend(PeerQuestion[SentSome], frozen=True, kw_only=True):
    """Messages of one group, in their order, or a single one. `queue` is empty for one that nobody deduplicates."""

    topic: str
    partition: int
    messages: tuple[Outgoing, ...]
    routed_in: int = -1
    """The era in which the old home of a group that moves sent it on; -1: it did not."""
    era: int = -1
    """To be written only as long as the queue is in this era (placement.py); -1: at any time."""
    hops: int = 0


class AskLeftBehind(PeerQuestion[int], frozen=True, kw_only=True, tag="AskStrays"):
    """How many message groups lie in a partition that they do not belong to any more, in this era of the queue."""

    source: Source
    era: int


class AskSettle(PeerQuestion[list[Rejected | None]], frozen=True, kw_only=True):
    source: Source
    how: Literal["ack", "extend", "release", "reject"]
    handles: tuple[Handle, ...]
    amount_ms: int | None = None
    detail: str = ""
    stale_may_prolong: bool = False


class AskStats(PeerQuestion[QueueStats], frozen=True, kw_only=True, tag="AskStanding"):
    pass


class AskPurge(PeerQuestion[None], frozen=True, kw_only=True):
    min_interval_ms: int


class AskPause(PeerQuestion[None], frozen=True, kw_only=True):
    paused: bool


class AskPeek(PeerQuestion[list[tuple[Source, Record]]], frozen=True, kw_only=True):
    limit: int
    source: Source | None = None
    """None: of all that the broker has."""
    from_offset: int = 0


class AskScheduled(PeerQuestion[list[tuple[int, Record]]], frozen=True, kw_only=True):
    """Messages that wait for their time, from an offset on."""

    source: Source
    from_offset: int
    limit: int


class AskShareOffset(PeerQuestion[ShareOffset], frozen=True, kw_only=True):
    """Where a share group stands in a partition; set it or forget it first."""

    topic: str
    partition: int
    action: Literal["find", "set", "forget"]
    offset: int = -1


class AskMove(PeerQuestion[MovedSome], frozen=True, kw_only=True):
    """Move some of what this broker leads of a queue, for a task that another broker runs. `count` 0 ends the task."""

    task_id: str
    destination: str
    filter: str
    count: int
    act: Literal["redrive", "edit", "discard"] = "redrive"
    edits: tuple[str, ...] = ()
    by: str = ""
    owner: str = ""
    owner_life: str = ""


AnyQuestion = (
    AskReceive
    | AskArrivals
    | AskSend
    | AskLeftBehind
    | AskSettle
    | AskStats
    | AskPurge
    | AskPause
    | AskPeek
    | AskScheduled
    | AskMove
    | AskShareOffset
)

_encoder = msgspec.msgpack.Encoder()
_questions = msgspec.msgpack.Decoder(AnyQuestion)
_refusals = msgspec.msgpack.Decoder(Rejected)
_answers = {
    question: msgspec.msgpack.Decoder(get_args(question.__orig_bases__[0])[0])
    for question in get_args(AnyQuestion)
}

OK, REFUSED = b"\x00", b"\x01"


def encode_question(question: PeerQuestion[A]) -> bytes:
    return _encoder.encode(question)


def decode_question(raw: bytes) -> AnyQuestion:
    try:
        question: AnyQuestion = _questions.decode(raw)
        return question
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise HeadraceError(ErrorKind.INVALID_REQUEST, str(problem)) from None


def encode_answer(value: object) -> bytes:
    return OK + _encoder.encode(value)


def encode_refusal(problem: HeadraceError) -> bytes:
    return REFUSED + _encoder.encode(Rejected(problem.kind, problem.detail))


def decode_answer(question: PeerQuestion[A], raw: bytes) -> A:
    """What was answered; a refusal is raised."""
    try:
        if raw[:1] == OK:
            answer: A = _answers[type(question)].decode(raw[1:])
            return answer
        refusal = _refusals.decode(raw[1:])
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as problem:
        raise HeadraceError(
            ErrorKind.UNKNOWN_SERVER_ERROR, f"a peer's answer makes no sense: {problem}"
        ) from None
    raise HeadraceError(refusal.kind, refusal.detail)
