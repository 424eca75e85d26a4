"""Machine: a follower of one partition: what it asks its leader for, and what it does with the answer (R11, R20-R26).

It holds its leader's log as a prefix and finds out where that stops being true by epochs, never by the high watermark
(R20, R22). Invariant: an answer counts only if it was asked for in the leader epoch we follow now, at the offset we are
at now; so late answers of an old leader change nothing. One object follows through all leader changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from headrace.core.errors import ErrorKind
from headrace.replication.leader import EpochCache

NO_LEADER: Final = -1


class FetchPlan(NamedTuple):
    """What to send to the leader (R22)."""

    leader: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


# -- events -----------------------------------------------------------------------------------------------------------


class LeaderChanged(NamedTuple):
    """Follow `leader` in `leader_epoch`; NO_LEADER: follow nobody for now."""

    leader: int
    leader_epoch: int
    unclean_epoch: int = -1
    """The last leader epoch that began with an unclean election, which someone has accepted the loss of (R27)."""


class Fetched(NamedTuple):
    """The leader's answer to `plan`: records (the driver holds the bytes) and what the leader knows."""

    plan: FetchPlan
    has_records: bool
    high_watermark: int
    log_start_offset: int


class Appended(NamedTuple):
    """The records of the last Fetched are in the log, which now ends at `end_offset` with a batch of `last_epoch`."""

    end_offset: int
    last_epoch: int


class Synced(NamedTuple):
    """Everything below `end_offset` is synced."""

    end_offset: int


class Diverged(NamedTuple):
    """The leader's answer to `plan`: our history parts from its own; its largest epoch <= ours ends there (R22)."""

    plan: FetchPlan
    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """The leader's answer to `plan`: the offset is not in its log."""

    plan: FetchPlan
    log_start_offset: int


class Truncated(NamedTuple):
    """Our log now ends at `end_offset` with a batch of `last_epoch` (-1 when empty), synced, metadata included (R23)."""

    end_offset: int
    last_epoch: int


class NotCut(NamedTuple):
    """A truncation or a restart could not begin (the disk is full); our log is as it was. The leader's next answer asks for it again."""


class FetchFailed(NamedTuple):
    """The leader refused `plan`, or did not answer (NETWORK_EXCEPTION)."""

    plan: FetchPlan
    kind: ErrorKind


FollowerEvent = (
    LeaderChanged | Fetched | Appended | Synced | Diverged | OutOfRange | Truncated | NotCut | FetchFailed
)


# -- effects ----------------------------------------------------------------------------------------------------------


class AppendRecords(NamedTuple):
    """Append the bytes that came with Fetched (R11: the log checks CRC, base offset and epochs), then say Appended."""


class SetHighWatermark(NamedTuple):
    """It may go down (R20)."""

    offset: int


class AdvanceLogStart(NamedTuple):
    offset: int


class TruncateTo(NamedTuple):
    """Cut the log and everything derived from it (R23), then say Truncated."""

    offset: int


class RestartAt(NamedTuple):
    """Drop the whole log and begin anew at `offset` (R26), then say Truncated."""

    offset: int


class GoOffline(NamedTuple):
    """An invariant is broken (R24): keep the bytes, stop following, raise the alarm."""

    reason: str


class RefreshMetadata(NamedTuple):
    """What we follow may be out of date; ask the coordinator, then try again after a pause."""


FollowerEffect = (
    AppendRecords | SetHighWatermark | AdvanceLogStart | TruncateTo | RestartAt | GoOffline | RefreshMetadata
)


class Follower:
    def __init__(
        self,
        epochs: EpochCache,
        *,
        end_offset: int,
        durable_end: int,
        last_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        waits_for_sync: bool = True,
    ) -> None:
        """`high_watermark` is the checkpointed one (R20), `last_epoch` that of the log's last batch, -1 when empty."""
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.end_offset = end_offset
        self.high_watermark = min(high_watermark, end_offset)
        self.offline = False
        self.waits_for_sync = waits_for_sync
        """headrace.flush=commit: our next fetch tells the leader that we have a record, so it must be on disk first."""
        self._epochs = epochs
        self._durable = durable_end
        self._last_epoch = last_epoch
        self._log_start = log_start_offset
        self._may_lose = False
        self._busy = False
        """An append or a truncation is under way; nothing is asked for meanwhile."""
        self._leader_high_watermark = -1

    def next_fetch(self) -> FetchPlan | None:
        """What to ask for now; None while there is nobody to ask, the log is being changed or not yet synced."""
        if self.leader == NO_LEADER or self.offline or self._busy or not self._is_safe_to_confirm():
            return None
        return FetchPlan(self.leader, self.leader_epoch, self.end_offset, self._last_epoch)

    def _is_safe_to_confirm(self) -> bool:
        return not self.waits_for_sync or self._durable >= self.end_offset

    def step(self, event: FollowerEvent) -> list[FollowerEffect]:
        """The only mutator."""
        return [] if self.offline else _HANDLERS[type(event)](self, event)

    # -- leaders ------------------------------------------------------------------------------------------------------

    def _leader_changed(self, event: LeaderChanged) -> list[FollowerEffect]:
        if event.leader_epoch < self.leader_epoch:
            return []
        # An unclean election since we last agreed with a leader may have cost what we think committed (R24).
        if event.unclean_epoch > max(self.leader_epoch, self._last_epoch):
            self._may_lose = True
        self.leader, self.leader_epoch = event.leader, event.leader_epoch
        return []

    def _counts(self, plan: FetchPlan) -> bool:
        """R9, R25: only what was asked in this epoch, at the offset where the log ends now."""
        return (
            plan.leader_epoch == self.leader_epoch
            and plan.leader == self.leader
            and plan.fetch_offset == self.end_offset
            and plan.last_fetched_epoch == self._last_epoch
            and not self._busy
        )

    def _fetch_failed(self, event: FetchFailed) -> list[FollowerEffect]:
        if event.plan.leader_epoch != self.leader_epoch:
            return []
        return [RefreshMetadata()]

    # -- records ------------------------------------------------------------------------------------------------------

    def _fetched(self, event: Fetched) -> list[FollowerEffect]:
        if not self._counts(event.plan):
            return []
        self._leader_high_watermark = event.high_watermark
        self._may_lose = False
        effects: list[FollowerEffect] = []
        if self._log_start < event.log_start_offset <= self.end_offset:
            self._log_start = event.log_start_offset
            effects.append(AdvanceLogStart(event.log_start_offset))
        if event.has_records:
            self._busy = True
            effects.append(AppendRecords())
            return effects
        return [*effects, *self._follow_high_watermark()]

    def _appended(self, event: Appended) -> list[FollowerEffect]:
        self._busy = False
        self.end_offset, self._last_epoch = event.end_offset, event.last_epoch
        return self._follow_high_watermark()

    def _synced(self, event: Synced) -> list[FollowerEffect]:
        self._durable = max(self._durable, min(event.end_offset, self.end_offset))
        return []

    def _follow_high_watermark(self) -> list[FollowerEffect]:
        """R20."""
        offset = min(self._leader_high_watermark, self.end_offset)
        if offset == self.high_watermark:
            return []
        self.high_watermark = offset
        return [SetHighWatermark(offset)]

    # -- truncation ---------------------------------------------------------------------------------------------------

    def _diverged(self, event: Diverged) -> list[FollowerEffect]:
        if not self._counts(event.plan):
            return []
        return self._truncate(self._truncation_point(event.epoch, event.end_offset))

    def _truncation_point(self, leader_knows_epoch: int, leader_end: int) -> int:
        """R22: the end of what both sides call that epoch. The next fetch looks again from there."""
        if leader_knows_epoch < 0:
            return self._log_start
        own = self._epochs.epoch_end(leader_knows_epoch, self.end_offset)
        return max(self._log_start, min(own.end_offset, leader_end))

    def _truncate(self, offset: int) -> list[FollowerEffect]:
        if offset >= self.end_offset:
            return self._break_off(
                f"leader {self.leader} finds us diverging, but at {offset}, past our end {self.end_offset}"
            )
        if self._loses_committed(offset):
            return self._break_off(
                f"leader {self.leader} in epoch {self.leader_epoch} wants us to truncate to {offset}, "
                f"below our high watermark {self.high_watermark}"
            )
        self._busy = True
        return [TruncateTo(offset)]

    def _loses_committed(self, offset: int) -> bool:
        """R24."""
        return offset < self.high_watermark and not self._may_lose

    def _out_of_range(self, event: OutOfRange) -> list[FollowerEffect]:
        """R26: what we would need next was deleted by retention; nothing of ours can be completed any more."""
        if not self._counts(event.plan):
            return []
        if event.log_start_offset <= self.end_offset:
            # Our end is past the leader's, and it could not tell where we part; only epochs may decide that.
            return self._break_off(f"our end {self.end_offset} is past the log of leader {self.leader}")
        self._busy = True
        return [RestartAt(event.log_start_offset)]

    def _truncated(self, event: Truncated) -> list[FollowerEffect]:
        self._busy = False
        if event.end_offset > self.end_offset:
            self._log_start = event.end_offset
        self.end_offset, self._last_epoch, self._durable = (
            event.end_offset,
            event.last_epoch,
            event.end_offset,
        )
        if self.high_watermark <= self.end_offset:
            return []
        self.high_watermark = self.end_offset
        return [SetHighWatermark(self.high_watermark)]

    def _not_cut(self, event: NotCut) -> list[FollowerEffect]:
        self._busy = False
        return []

    def _break_off(self, reason: str) -> list[FollowerEffect]:
        self.offline = True
        return [GoOffline(reason)]


_HANDLERS: Final[dict[type, Callable[[Follower, Any], list[FollowerEffect]]]] = {
    LeaderChanged: Follower._leader_changed,
    Fetched: Follower._fetched,
    Appended: Follower._appended,
    Synced: Follower._synced,
    Diverged: Follower._diverged,
    OutOfRange: Follower._out_of_range,
    Truncated: Follower._truncated,
    NotCut: Follower._not_cut,
    FetchFailed: Follower._fetch_failed,
}
