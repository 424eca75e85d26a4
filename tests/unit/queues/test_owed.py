"""What retention has to leave alone (decision 0061)."""

from __future__ import annotations

from typing import Any

from headrace.core.plan import Command
from headrace.queues.commands import (
    Ack,
    Configure,
    DataAvailable,
    Handle,
    LoggedMessage,
    Open,
    Receive,
    Source,
)
from headrace.queues.config import standard_queue
from headrace.queues.dues import MAX_MINUTES, Dues
from headrace.queues.shard import QueueShard

SOURCE = Source("jobs", "jobs", 0)
HOUR_MS = 3_600_000
RETENTION_MS = 10 * HOUR_MS


class Play:
    def __init__(self) -> None:
        self.shard = QueueShard(lease_epoch=1, wall_offset_ms=0)
        self.now_ms = 1_000
        self.tell(Configure("jobs", standard_queue()))
        self.tell(Open(SOURCE, 0))

    def tell(self, command: Command[Any]) -> None:
        for fact in self.shard.decide(command, self.now_ms).facts:
            self.shard.apply(fact, self.now_ms)

    def has(self, *messages: LoggedMessage) -> None:
        end = messages[-1].offset + 1
        self.tell(DataAvailable(SOURCE, end, 0, end, messages))

    def pass_time(self, hours: float) -> None:
        self.now_ms += int(hours * HOUR_MS)
        while (at := self.shard.next_deadline()) is not None and at <= self.now_ms:
            for fact in self.shard.expire(self.now_ms).facts:
                self.shard.apply(fact, self.now_ms)

    @property
    def owed(self) -> int | None:
        return self.shard.owed_from(self.now_ms, RETENTION_MS)


def test_nothing_is_owed_of_what_is_ready() -> None:
    play = Play()
    play.has(LoggedMessage(0), LoggedMessage(1))
    assert play.owed == 2
    assert QueueShard(lease_epoch=1, wall_offset_ms=0).owed_from(0, RETENTION_MS) is None


def test_what_waits_is_owed_until_its_retention_time_after_it_fell_due() -> None:
    play = Play()
    play.has(LoggedMessage(0), LoggedMessage(1, due_ms=play.now_ms + 30 * HOUR_MS), LoggedMessage(2))
    assert play.owed == 1
    play.pass_time(29)
    assert play.owed == 1
    play.pass_time(1.1)
    play.pass_time(9)
    assert play.owed == 1, "due for nine hours"
    play.pass_time(2)
    assert play.owed == 3


def test_what_fell_due_while_nobody_led_is_owed_too() -> None:
    play = Play()
    play.now_ms = 40 * HOUR_MS
    play.has(LoggedMessage(0), LoggedMessage(1, due_ms=35 * HOUR_MS), LoggedMessage(2, due_ms=20 * HOUR_MS))
    assert play.owed == 1
    play.pass_time(6)
    assert play.owed == 3


def test_what_is_in_flight_is_owed_for_one_retention_time_from_its_first_receive() -> None:
    play = Play()
    play.has(LoggedMessage(0), LoggedMessage(1))
    play.tell(Receive(SOURCE, 1, 50 * HOUR_MS, ""))
    assert play.owed == 0
    play.pass_time(9)
    assert play.owed == 0
    play.pass_time(2)
    assert play.owed == 2


def test_what_is_done_is_owed_to_nobody() -> None:
    play = Play()
    play.has(LoggedMessage(0, due_ms=play.now_ms + 1), LoggedMessage(1))
    play.pass_time(1)
    play.tell(Receive(SOURCE, 1, HOUR_MS, ""))
    epoch = (1 << 20) + 1
    play.tell(Ack(SOURCE, (Handle(0, 1, epoch),)))
    assert play.shard.is_done(SOURCE, 0)
    assert play.owed == 2


def test_the_notes_of_what_fell_due_stay_few_and_forget_nothing_too_early() -> None:
    dues = Dues()
    for minute in range(MAX_MINUTES + 100):
        dues.note(minute * 60_000, 1_000_000 - minute)
    assert dues.lowest(0) == 1_000_000 - MAX_MINUTES - 99
    assert len(dues._lowest) <= MAX_MINUTES
    assert dues.lowest((MAX_MINUTES + 100) * 60_000) is None
