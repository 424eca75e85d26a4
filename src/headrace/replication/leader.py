"""Machine: the leader of one partition in one leader epoch: ISR and high watermark (R9-R19, R31).

Invariants: the high watermark never falls and never passes what every member of the maximal ISR holds (R12, R13); the
maximal ISR always includes everyone the coordinator might elect, because it only shrinks once the coordinator is
known to have taken the smaller one (R16). So whoever is elected has everything that was ever acknowledged.

With one replica every append or sync is a comparison and an addition; all else happens only when something changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace.core.errors import ErrorKind
from headrace.replication.events import (
    AdvanceHighWatermark,
    BrokerChanged,
    Diverging,
    FailWaiters,
    FollowerFetch,
    HigherEpochSeen,
    IsrChange,
    IsrCommitted,
    IsrRejected,
    IsrUnknown,
    LeaderEffect,
    LeaderEvent,
    LeaseChanged,
    LocalAppended,
    LocalDurable,
    PartitionRead,
    ProposeIsr,
    RefuseFetch,
    RequirementsChanged,
    RereadPartition,
    Resign,
    Stalled,
    StepDown,
    Tick,
)
from headrace.replication.progress import ReplicaProgress

__all__ = [
    "AdvanceHighWatermark",
    "BrokerChanged",
    "Diverging",
    "FailWaiters",
    "FollowerFetch",
    "HigherEpochSeen",
    "IsrChange",
    "IsrCommitted",
    "IsrRejected",
    "IsrUnknown",
    "Leader",
    "LeaderEffect",
    "LeaderEvent",
    "Leadership",
    "LeaseChanged",
    "LocalAppended",
    "LocalDurable",
    "PartitionRead",
    "ProposeIsr",
    "RefuseFetch",
    "RequirementsChanged",
    "RereadPartition",
    "Resign",
    "Stalled",
    "StepDown",
    "Tick",
]

DEFAULT_LAG_MAX_MS: Final = 10_000
_NOTHING: Final[list[LeaderEffect]] = []
"""Shared answer of a step without effects; never changed."""


class EpochEndLike(Protocol):
    @property
    def epoch(self) -> int: ...
    @property
    def end_offset(self) -> int: ...


class EpochCache(Protocol):
    """The log's memory of which epoch ended where."""

    def epoch_end(self, epoch: int, log_end: int) -> EpochEndLike: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Leadership:
    """What the coordinator says about a partition at the moment its leader takes over."""

    broker_id: int
    leader_epoch: int
    revision: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    min_isr: int = 1
    min_racks: int = 1
    rack: str | None = None
    waits_for_sync: bool = True
    """headrace.flush=commit: the leader counts what it has synced, not what it has written."""
    lag_max_ms: int = DEFAULT_LAG_MAX_MS


class Leader:
    """One object per leader epoch. Before the first append the driver has stored (epoch, log end) in the cache (R10)."""

    def __init__(
        self,
        leadership: Leadership,
        epochs: EpochCache,
        *,
        end_offset: int,
        durable_end: int,
        high_watermark: int,
        now_ms: int,
    ) -> None:
        self.broker_id = leadership.broker_id
        self.leader_epoch = leadership.leader_epoch
        self.epoch_start_offset = end_offset
        """LESO: below it others wrote, so until the high watermark is here we do not know what is committed (R19)."""
        self.high_watermark = min(high_watermark, end_offset)
        self.stepped_down = False
        self._epochs = epochs
        self._end = end_offset
        self._durable = durable_end
        self._waits_for_sync = leadership.waits_for_sync
        self._min_isr = leadership.min_isr
        self._min_racks = leadership.min_racks
        self._lag_max_ms = leadership.lag_max_ms
        self._lease_held = True
        self._revision = leadership.revision
        self._replicas = leadership.replicas
        self._isr = leadership.isr
        self.is_left_alone = _is_left_alone(leadership.isr, leadership.replicas)
        """Nobody confirms that we still lead, though others could. A partition with one replica has nobody by choice (R36)."""
        self._elr = leadership.elr
        self._proposal: ProposeIsr | None = None
        self._lost: frozenset[int] = frozenset()
        """Members of proposals whose outcome is unknown (R5); until a newer revision is seen they might be in the ISR."""
        self._must_reread = False
        self._racks: dict[int, str | None] = {self.broker_id: leadership.rack}
        self._live: dict[int, int] = {}
        """Live broker -> its epoch."""
        self._registered: dict[int, int] = {}
        """Broker -> the epoch of its registration, the last one known."""
        self._followers: dict[int, ReplicaProgress] = {}
        self._waited_for: list[ReplicaProgress] = []
        self._may_commit = False
        self._forget_absent(now_ms)
        self._recompute()

    # -- what others ask ----------------------------------------------------------------------------------------------

    @property
    def isr(self) -> tuple[int, ...]:
        """As the coordinator is known to have it."""
        return self._isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return self._replicas

    @property
    def needs_ticks(self) -> bool:
        """Whether time alone can change anything. A leader without followers, who knows how things stand, waits for nobody."""
        return bool(
            len(self._replicas) > 1
            or len(self._isr) > 1
            or self._must_reread
            or self._lost
            or self._proposal is not None
            or self._elr
        )

    @property
    def knows_what_is_committed(self) -> bool:
        """R19, R21: everything earlier leaders acknowledged is below the high watermark by now."""
        return self.high_watermark >= self.epoch_start_offset

    def acks_all_refusal(self) -> ErrorKind | None:
        """Why an acks=all produce is not taken (R17), before anything is appended."""
        if self.stepped_down:
            return ErrorKind.NOT_LEADER_OR_FOLLOWER
        if len(self._isr) == len(self._replicas) and self._min_racks <= 1:  # nobody is missing
            return None
        return None if self._isr_is_large_enough() else ErrorKind.NOT_ENOUGH_REPLICAS

    def acks_some_refusal(self) -> ErrorKind | None:
        """Why an acks=0 or acks=1 produce is not taken: they trust our word alone, so we must be sure of it (R7)."""
        return None if self._lease_held and not self.stepped_down else ErrorKind.NOT_LEADER_OR_FOLLOWER

    def read_refusal(self) -> ErrorKind | None:
        """Why a consumer can't read here: a leader that may have been replaced would answer with the past (R7)."""
        return None if self._lease_held and not self.stepped_down else ErrorKind.NOT_LEADER_OR_FOLLOWER

    def latest_offset_refusal(self) -> ErrorKind | None:
        """Why ListOffsets(latest) can't be answered (R7, R19)."""
        refusal = self.read_refusal()
        if refusal is not None or self.knows_what_is_committed:
            return refusal
        return ErrorKind.OFFSET_NOT_AVAILABLE

    def epoch_refusal(self, leader_epoch: int) -> ErrorKind | None:
        """R9, for any request that carries an epoch; -1 means that it carries none."""
        if self.stepped_down:
            return ErrorKind.NOT_LEADER_OR_FOLLOWER
        if leader_epoch == -1 or leader_epoch == self.leader_epoch:
            return None
        if leader_epoch < self.leader_epoch:
            return ErrorKind.FENCED_LEADER_EPOCH
        return ErrorKind.UNKNOWN_LEADER_EPOCH

    # -- events -------------------------------------------------------------------------------------------------------

    def step(self, event: LeaderEvent, now_ms: int) -> list[LeaderEffect]:
        """The only mutator. The list that comes back must not be changed."""
        if self.stepped_down:
            if type(event) is FollowerFetch:
                return [RefuseFetch(ErrorKind.NOT_LEADER_OR_FOLLOWER)]
            return _NOTHING
        return _HANDLERS[type(event)](self, event, now_ms)

    def appended(self, end_offset: int) -> list[LeaderEffect]:
        """What `step` does with LocalAppended, without the ceremony: each produced batch comes here."""
        if self.stepped_down:
            return _NOTHING
        self._end = end_offset
        # While syncs count, an append alone commits nothing.
        return _NOTHING if self._waits_for_sync else self._advance()

    def _local_appended(self, event: LocalAppended, now_ms: int) -> list[LeaderEffect]:
        return self.appended(event.end_offset)

    def _local_durable(self, event: LocalDurable, now_ms: int) -> list[LeaderEffect]:
        self._durable = max(self._durable, event.end_offset)
        return self._advance()

    def _follower_fetch(self, event: FollowerFetch, now_ms: int) -> list[LeaderEffect]:
        refusal = self.epoch_refusal(event.leader_epoch)
        if refusal is ErrorKind.UNKNOWN_LEADER_EPOCH:
            return [RefuseFetch(refusal), *self._superseded(event.leader_epoch)]
        if refusal is not None:
            return [RefuseFetch(refusal)]
        progress = self._followers.get(event.replica_id)
        if progress is None:
            return [RefuseFetch(ErrorKind.NOT_LEADER_OR_FOLLOWER)]
        if self._is_from_another_life(event):
            return [RefuseFetch(ErrorKind.STALE_BROKER_EPOCH)]
        diverging = self._divergence(event.fetch_offset, event.last_fetched_epoch)
        if diverging is not None:
            return [diverging]
        progress.fetched(event.fetch_offset, event.broker_epoch, self._end, now_ms)
        effects = self._advance()
        proposal = self._expansion(event.replica_id, progress)
        return effects if proposal is None else [*effects, *self._propose(proposal)]

    def _isr_committed(self, event: IsrCommitted, now_ms: int) -> list[LeaderEffect]:
        if event.revision <= self._revision:
            return _NOTHING
        return self._take(event.revision, self._replicas, event.isr, event.elr, now_ms)

    def _isr_rejected(self, event: IsrRejected, now_ms: int) -> list[LeaderEffect]:
        """R16: back to what is committed. Something we compared is no longer so: find out what before the next try."""
        if not self._is_answer_to_proposal(event.revision):
            return _NOTHING
        self._roll_back()
        return [RereadPartition(), *self._advance()]

    def _roll_back(self) -> None:
        self._proposal, self._must_reread = None, True
        self._recompute()

    def _isr_unknown(self, event: IsrUnknown, now_ms: int) -> list[LeaderEffect]:
        """R5, R16: wait for both the old and the new ISR until a newer revision settles it."""
        if not self._is_answer_to_proposal(event.revision):
            return _NOTHING
        self._keep_in_mind()
        self._roll_back()
        return [RereadPartition()]

    def _keep_in_mind(self) -> None:
        if self._proposal is not None:
            self._lost = self._lost.union(self._proposal.isr)

    def _is_answer_to_proposal(self, revision: int) -> bool:
        return self._proposal is not None and self._proposal.revision == revision

    def _partition_read(self, event: PartitionRead, now_ms: int) -> list[LeaderEffect]:
        if event.leader_epoch > self.leader_epoch:
            return self._superseded(event.leader_epoch)
        if event.revision < self._revision or event.leader_epoch < self.leader_epoch:
            return _NOTHING
        if event.revision == self._revision:
            self._must_reread = False
            return _NOTHING
        return self._take(event.revision, event.replicas, event.isr, event.elr, now_ms)

    def _broker_changed(self, event: BrokerChanged, now_ms: int) -> list[LeaderEffect]:
        self._racks[event.broker_id] = event.rack
        if event.broker_epoch >= 0:
            self._registered[event.broker_id] = event.broker_epoch
        if event.live:
            self._live[event.broker_id] = event.broker_epoch
        else:
            self._live.pop(event.broker_id, None)
        progress = self._followers.get(event.broker_id)
        if progress is not None and event.broker_epoch not in (-1, progress.broker_epoch):
            progress.forget(event.broker_epoch)
        self._recompute()
        return self._advance()

    def _requirements_changed(self, event: RequirementsChanged, now_ms: int) -> list[LeaderEffect]:
        self._min_isr, self._min_racks = event.min_isr, event.min_racks
        self._waits_for_sync = event.waits_for_sync
        self._recompute()
        effects = self._advance()
        cleared = self._elr_clearance()
        return effects if cleared is None else [*effects, *self._propose(cleared)]

    def _higher_epoch_seen(self, event: HigherEpochSeen, now_ms: int) -> list[LeaderEffect]:
        return self._superseded(event.leader_epoch) if event.leader_epoch > self.leader_epoch else _NOTHING

    def _lease_changed(self, event: LeaseChanged, now_ms: int) -> list[LeaderEffect]:
        self._lease_held = event.held
        return _NOTHING

    def _tick(self, event: Tick, now_ms: int) -> list[LeaderEffect]:
        if self._must_reread:
            return [RereadPartition()]
        proposal = (
            self._settlement() or self._shrinkage(now_ms) or self._next_expansion() or self._elr_clearance()
        )
        return self._advance() if proposal is None else self._propose(proposal)

    def _stalled(self, event: Stalled, now_ms: int) -> list[LeaderEffect]:
        """R15: look whether we still lead, and do not blame the followers for our own absence."""
        self._excuse_followers(now_ms)
        return [RereadPartition()]

    def _resign(self, event: Resign, now_ms: int) -> list[LeaderEffect]:
        return self._end_leadership(event.kind, "resigned")

    # -- high watermark -----------------------------------------------------------------------------------------------

    def _advance(self) -> list[LeaderEffect]:
        if not self._may_commit:
            return _NOTHING
        reached = self._reached_by_all()
        if reached <= self.high_watermark:
            return _NOTHING
        self.high_watermark = reached
        return [AdvanceHighWatermark(reached)]

    def _reached_by_all(self) -> int:
        """R12: what every member of the maximal ISR holds, in this epoch and in its broker's present life."""
        reached = self._durable if self._waits_for_sync else self._end
        for progress in self._waited_for:
            if progress.end_offset < reached:
                reached = progress.end_offset
        return reached

    def _recompute(self) -> None:
        """Whom the high watermark waits for and whether it may move at all; kept between changes for speed."""
        others = sorted(member for member in self._maximal_isr() if member != self.broker_id)
        self._waited_for = [self._followers[member] for member in others]
        self._may_commit = self._isr_is_large_enough() and self._elr_is_covered()

    def _maximal_isr(self) -> set[int]:
        """R13: everyone the coordinator might think in sync."""
        proposed = self._proposal.isr if self._proposal is not None else ()
        return {*self._isr, *proposed, *self._lost}

    def _isr_is_large_enough(self) -> bool:
        """R12, R17: committed ISR only; a proposed member does not count before the coordinator has it."""
        if len(self._isr) < min(self._min_isr, len(self._replicas)):
            return False
        return self._min_racks <= 1 or self._racks_in_sync() >= self._min_racks

    def _racks_in_sync(self) -> int:
        """Brokers that do not say where they are are nowhere: they can't make an ack mean two data centres."""
        return len({rack for member in self._isr if (rack := self._racks.get(member)) is not None})

    def _elr_is_covered(self) -> bool:
        """R28: while the coordinator may elect someone from the ELR, nothing may be committed without them.

        The ISR can be large enough beside a non-empty ELR when min.insync.replicas was just lowered.
        """
        return set(self._elr) <= set(self._isr)

    # -- ISR ----------------------------------------------------------------------------------------------------------

    def _expansion(self, replica_id: int, progress: ReplicaProgress) -> ProposeIsr | None:
        if replica_id in self._isr or not self._may_propose() or not self._may_join(replica_id, progress):
            return None
        isr = (*self._isr, replica_id)
        return ProposeIsr(isr, IsrChange.EXPAND, self._revision, {replica_id: progress.broker_epoch})

    def _next_expansion(self) -> ProposeIsr | None:
        """A follower that was ready while another proposal was under way and waits in a long poll now."""
        for replica_id in sorted(self._followers):
            proposal = self._expansion(replica_id, self._followers[replica_id])
            if proposal is not None:
                return proposal
        return None

    def _may_join(self, replica_id: int, progress: ReplicaProgress) -> bool:
        """R14."""
        return (
            progress.has_fetched
            and progress.end_offset >= self.high_watermark
            and progress.end_offset >= self.epoch_start_offset
            and self._live.get(replica_id) == progress.broker_epoch
        )

    def _shrinkage(self, now_ms: int) -> ProposeIsr | None:
        if not self._may_propose():
            return None
        slow = [
            member
            for member in self._isr
            if member != self.broker_id
            and self._followers[member].is_too_slow(self._end, now_ms, self._lag_max_ms)
        ]
        if not slow:
            return None
        # R30: we are never among the slow, so the ISR is never empty.
        isr = tuple(member for member in self._isr if member not in slow)
        return ProposeIsr(isr, IsrChange.SHRINK, self._revision, {})

    def _elr_clearance(self) -> ProposeIsr | None:
        """The ISR is large enough, so the ELR has to go (R28); until it has, nothing is committed."""
        if (
            not self._elr
            or not self._may_propose()
            or len(self._isr) < min(self._min_isr, len(self._replicas))
        ):
            return None
        return ProposeIsr(self._isr, IsrChange.CLEAR_ELR, self._revision, {})

    def _may_propose(self) -> bool:
        """One proposal at a time (R13), from a state we know (R2, R5), and none when we may have been replaced (R7)."""
        return self._proposal is None and not self._must_reread and not self._lost and self._lease_held

    def _propose(self, proposal: ProposeIsr) -> list[LeaderEffect]:
        self._proposal = proposal
        self._recompute()
        return [proposal]

    def _settlement(self) -> ProposeIsr | None:
        """The partition is still as it was when a proposal got lost, so that one may yet arrive. Writing the partition as
        it is settles it: either that succeeds, or the lost one has.
        """
        if not self._lost or self._proposal is not None or not self._lease_held:
            return None
        return ProposeIsr(self._isr, IsrChange.SETTLE, self._revision, {})

    def _take(
        self,
        revision: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        elr: tuple[int, ...],
        now_ms: int,
    ) -> list[LeaderEffect]:
        """The partition as committed. A proposal that compared an older revision can no longer happen."""
        had_enough = self._isr_is_large_enough()
        self._revision, self._replicas, self._isr, self._elr = revision, replicas, isr, elr
        self.is_left_alone = _is_left_alone(isr, replicas)
        self._proposal, self._lost, self._must_reread = None, frozenset(), False
        self._forget_absent(now_ms)
        self._recompute()
        effects = self._advance()
        if had_enough and not self._isr_is_large_enough():
            # R17: what waits can't be acknowledged with too few copies.
            effects = [*effects, FailWaiters(ErrorKind.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
        proposal = self._next_expansion() or self._elr_clearance()
        return effects if proposal is None else [*effects, *self._propose(proposal)]

    def _forget_absent(self, now_ms: int) -> None:
        """One Progress per follower there is; a replica that was removed and comes back starts anew (R35)."""
        self._followers = {
            replica: self._followers.get(replica) or ReplicaProgress(now_ms)
            for replica in self._replicas
            if replica != self.broker_id
        }

    def _excuse_followers(self, now_ms: int) -> None:
        for progress in self._followers.values():
            progress.excuse(now_ms)

    # -- fencing ------------------------------------------------------------------------------------------------------

    def _is_from_another_life(self, event: FollowerFetch) -> bool:
        """R12, R14, A2: a delayed fetch of a broker that has restarted since speaks of data it may have lost; and a life
        that nobody has heard of is no life.
        """
        return event.broker_epoch != self._registered.get(event.replica_id, -1)

    def _divergence(self, fetch_offset: int, last_fetched_epoch: int) -> Diverging | None:
        """R22: where a follower's history parts from ours, or None if what it holds is what we hold."""
        if last_fetched_epoch < 0:
            return None
        found = self._epochs.epoch_end(last_fetched_epoch, self._end)
        if found.epoch < last_fetched_epoch or found.end_offset < fetch_offset:
            return Diverging(found.epoch, found.end_offset)
        return None

    def _superseded(self, leader_epoch: int) -> list[LeaderEffect]:
        """R31: in the same tick."""
        effects = self._end_leadership(ErrorKind.NOT_LEADER_OR_FOLLOWER, f"epoch {leader_epoch} has begun")
        return [*effects, RereadPartition()]

    def _end_leadership(self, kind: ErrorKind, reason: str) -> list[LeaderEffect]:
        """R18: what was not committed while we led is never acknowledged by us."""
        self.stepped_down = True
        self._may_commit = False
        return [FailWaiters(kind), StepDown(reason)]


_HANDLERS: Final[dict[type, Callable[[Leader, Any, int], list[LeaderEffect]]]] = {
    LocalAppended: Leader._local_appended,
    LocalDurable: Leader._local_durable,
    FollowerFetch: Leader._follower_fetch,
    IsrCommitted: Leader._isr_committed,
    IsrRejected: Leader._isr_rejected,
    IsrUnknown: Leader._isr_unknown,
    PartitionRead: Leader._partition_read,
    BrokerChanged: Leader._broker_changed,
    RequirementsChanged: Leader._requirements_changed,
    HigherEpochSeen: Leader._higher_epoch_seen,
    LeaseChanged: Leader._lease_changed,
    Tick: Leader._tick,
    Stalled: Leader._stalled,
    Resign: Leader._resign,
}


def _is_left_alone(isr: Sequence[int], replicas: Sequence[int]) -> bool:
    return len(isr) == 1 < len(replicas)
