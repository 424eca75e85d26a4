"""A dumb model of one queue partition: one row per message, everything by looking at all of them."""

from __future__ import annotations

from copy import deepcopy

from queue_desk import EPOCH_MS

from headrace.queues.commands import Handle, LoggedMessage, MessageState
from headrace.queues.config import QueueConfig

READY, LEASED, SCHEDULED = MessageState.AVAILABLE, MessageState.ACQUIRED, MessageState.SCHEDULED
RESTING, DYING, DONE = MessageState.RESTING, MessageState.DYING, MessageState.DONE


class Row:
    def __init__(self, message: LoggedMessage, *, skipped: bool) -> None:
        self.message = message
        self.offset = message.offset
        self.skipped = skipped
        self.state = READY
        self.deliveries = 0
        self.journaled_deliveries = 0
        self.until_ms = 0
        self.visibility_ms = 0
        self.received_ms = 0
        self.delay_ms = 0
        self.due_ms = message.due_ms
        self.handle: Handle | None = None
        """The receipt of the current delivery, while it counts."""
        self.faded: Handle | None = None
        """The same after a crash, when its journaled lease had ended before: it may or may not be remembered."""
        self.owner = ""
        self.retry_move_ms: int | None = None

    @property
    def known(self) -> bool:
        """Delivered before, so it is not judged by its due time any more."""
        return self.deliveries > 0 or self.state is DYING


class QueueModel:
    def __init__(self, config: QueueConfig) -> None:
        self.config = config
        self.now_ms = 0
        self.start = 0
        self.rows: list[Row] = []
        self.kept: dict[bytes, tuple[int, int]] = {}
        self.last_due_ms: dict[tuple[int, bytes], int] = {}
        self.receipts: list[Handle] = []
        """All that were ever given out."""

    def copy(self) -> QueueModel:
        return deepcopy(self)

    @property
    def wall_ms(self) -> int:
        return self.now_ms + EPOCH_MS

    def group(self, row: Row) -> tuple[int, bytes]:
        level = row.message.priority if self.config.priorities else 0
        return level, row.message.group if self.config.fifo or self.config.fair else b""

    def in_state(self, state: MessageState) -> list[Row]:
        return [row for row in self.rows if row.state is state]

    def expired(self, row: Row) -> bool:
        return self.config.ttl and 0 < row.message.expires_ms <= self.wall_ms

    # --- the log -----------------------------------------------------------------------------------------------------

    def send(self, message: LoggedMessage, *, skipped: bool) -> None:
        row = Row(message._replace(offset=len(self.rows)), skipped=skipped)
        self.rows.append(row)
        self.deduplicate(row)
        self.sort_in(row)

    def is_duplicate(self, row: Row) -> bool:
        """By the log alone: another with its id came before it, within the window."""
        message, window_ms = row.message, self.config.dedup_window_ms
        return bool(window_ms and message.dedup_id) and any(
            other.message.dedup_id == message.dedup_id
            and 0 <= message.timestamp_ms - other.message.timestamp_ms < window_ms
            for other in self.rows[: row.offset]
        )

    def deduplicate(self, row: Row) -> None:
        dedup_id = row.message.dedup_id
        if not self.config.dedup_window_ms or not dedup_id:
            return
        kept = self.kept.get(dedup_id)
        if kept is not None and row.message.timestamp_ms - kept[0] < self.config.dedup_window_ms:
            row.state = DONE
        else:
            self.kept[dedup_id] = (row.message.timestamp_ms, row.offset)

    def sort_in(self, row: Row) -> None:
        """The message is read from the log, for the first time or again."""
        if row.state is DONE:
            return
        if row.skipped:
            row.state = DONE
            return
        if row.known:
            return
        due_ms = row.due_ms if self.config.delays else 0
        ahead = [
            o for o in self.rows[: row.offset] if o.state is SCHEDULED and self.group(o) == self.group(row)
        ]
        if self.config.fifo and ahead:
            due_ms = max(due_ms, self.last_due_ms[self.group(row)])  # also of one that was cancelled since
        waits = due_ms > self.wall_ms or (self.config.fifo and bool(ahead))
        row.state = SCHEDULED if waits else READY
        row.until_ms = due_ms if waits else 0
        if waits:
            self.last_due_ms[self.group(row)] = due_ms

    def read_again(self, start: int) -> None:
        self.start = start
        for row in self.rows[:start]:
            row.state = DONE
        for row in self.rows[start:]:
            if row.state in (READY, SCHEDULED) and not row.known:
                row.state = READY
        for row in self.rows[start:]:
            self.sort_in(row)

    # --- receive -------------------------------------------------------------------------------------------------------

    def receivable(self) -> list[Row]:
        """What may be handed out; of a FIFO group that has something outstanding, nothing."""
        ready = [row for row in self.in_state(READY) if not self.expired(row)]
        if self.config.fifo:
            busy = {self.group(row) for row in self.rows if row.state in (LEASED, RESTING)}
            ready = [row for row in ready if self.group(row) not in busy]
        return ready

    def lease(self, handle: Handle, visibility_ms: int, owner: str) -> None:
        row = self.rows[handle.offset]
        assert row.state is READY
        row.state = LEASED
        row.deliveries += 1
        row.handle = handle
        row.faded = None
        row.owner = owner
        row.visibility_ms = visibility_ms
        row.received_ms = self.now_ms
        row.until_ms = self.now_ms + visibility_ms
        if self.config.journaled_leases:
            row.journaled_deliveries = row.deliveries
        self.receipts.append(handle)

    # --- and after -------------------------------------------------------------------------------------------------------

    def holds(self, handle: Handle) -> bool:
        row = self.rows[handle.offset]
        return row.state is LEASED and row.handle == handle

    def may_ack(self, handle: Handle) -> bool:
        row = self.rows[handle.offset]
        late = row.state in (READY, RESTING) and not self.config.fifo
        return row.state is DONE or ((row.state is LEASED or late) and row.handle == handle)

    def may_be_forgotten(self, handle: Handle) -> bool:
        """A journal that was checkpointed since does not know who held a message that was given back."""
        row = self.rows[handle.offset]
        return row.state in (READY, RESTING) and not self.config.fifo and row.faded == handle

    def finish(self, row: Row) -> None:
        row.state = DONE
        row.handle = None

    def die(self, row: Row, *, expired: bool = False) -> None:
        row.handle = None
        if self.config.dead_letter and (not expired or self.config.dead_letter_expired):
            row.state = DYING
            row.retry_move_ms = None
        else:
            self.finish(row)

    def give_back(self, row: Row, delay_ms: int) -> None:
        if self.expired(row):
            self.die(row, expired=True)
        elif self.config.max_deliveries and row.deliveries >= self.config.max_deliveries:
            self.die(row)
        else:
            row.journaled_deliveries = row.deliveries
            row.delay_ms = delay_ms
            row.state = RESTING if delay_ms > 0 else READY
            row.until_ms = self.now_ms + delay_ms if delay_ms > 0 else 0

    def extend(self, row: Row, visibility_ms: int) -> None:
        row.visibility_ms = visibility_ms
        row.until_ms = self.now_ms + visibility_ms

    def restart_at(self, offset: int, duplicates: set[int]) -> None:
        """`duplicates` are those that were found to be duplicates again; after so long, some are not."""
        for row in self.rows:
            row.state = READY
            row.deliveries = row.journaled_deliveries = 0
            row.handle = row.faded = None
            row.due_ms = row.message.due_ms
            dedup_id = row.message.dedup_id
            if row.offset < offset or not self.config.dedup_window_ms or not dedup_id:
                continue
            if row.offset in duplicates:
                row.state = DONE
            elif dedup_id not in self.kept or self.kept[dedup_id][1] < row.offset:
                self.kept[dedup_id] = (row.message.timestamp_ms, row.offset)
        self.read_again(offset)

    # --- time --------------------------------------------------------------------------------------------------------------

    def next_change(self) -> int | None:
        times = [row.until_ms for row in self.rows if row.state in (LEASED, RESTING)]
        times += [row.until_ms - EPOCH_MS for row in self.in_state(SCHEDULED)]
        times += [
            row.message.expires_ms - EPOCH_MS
            for row in self.rows
            if self.config.ttl and row.message.expires_ms and row.state in (READY, RESTING, SCHEDULED)
        ]
        return min(times, default=None)

    def tick(self, until_ms: int) -> None:
        while (at := self.next_change()) is not None and at <= until_ms:
            self.now_ms = max(self.now_ms, at)
            self.happen()
        self.now_ms = until_ms
        for row in self.in_state(DYING):
            if row.retry_move_ms is not None and row.retry_move_ms <= until_ms:
                row.retry_move_ms = None

    def happen(self) -> None:
        for row in self.rows:
            if row.state is LEASED and row.until_ms <= self.now_ms:
                self.give_back(row, 0)
            elif row.state in (READY, RESTING, SCHEDULED) and self.expired(row):
                self.die(row, expired=True)
            elif (row.state is RESTING and row.until_ms <= self.now_ms) or (
                row.state is SCHEDULED and row.until_ms <= self.wall_ms
            ):
                row.state = READY
                row.until_ms = 0

    def crash(self) -> None:
        """Leases go, or start again in full; so do rests (R58). Receipts from before count only for journaled leases."""
        for row in self.rows:
            if row.state is LEASED and self.config.journaled_leases:
                row.until_ms = self.now_ms + row.visibility_ms
                row.received_ms = self.now_ms
                row.owner = ""
                continue
            if row.state is LEASED:
                row.state = READY
                row.until_ms = 0
            if self.config.journaled_leases and row.handle is not None:
                row.faded = row.handle
            row.handle = None
            row.retry_move_ms = None
            if row.state is RESTING:
                row.until_ms = self.now_ms + row.delay_ms
