"""How a queue learns what is in the log: piece by piece, one chain of pieces for each backlog, and nothing left out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.broker.queueing import intake as intake_module
from headrace.broker.queueing.hosting import Hosted, QueueShards
from headrace.broker.queueing.intake import MAX_LOOKED, Intake, Seen
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.core.ids import TopicPartition
from headrace.core.plan import Plan
from headrace.log.aborted import AbortedTransaction
from headrace.queues.commands import Configure, Open, Source, Wanted
from headrace.queues.config import QueueConfig
from headrace.queues.shard import QueueShard
from headrace.records.batch import scan
from headrace.records.build import Record, build_batch, build_control_batch

NOW = 1_700_000_000_000
SOURCE = Source("q", "t", 0)
FAR = (("headrace-deliver-at", str(NOW + 3_600_000).encode()),)


class Data:
    """A log in memory."""

    tp = TopicPartition("t", 0)
    start_offset = 0

    def __init__(self) -> None:
        self.log = self
        self.content = b""
        self.last_stable_offset = self.high_watermark = 0
        self.aborted: list[AbortedTransaction] = []
        self.reads = 0

    def add(self, records: list[Record], **options: Any) -> None:
        self.content += build_batch(records, base_offset=self.high_watermark, wall_ms=NOW, **options)
        self.last_stable_offset = self.high_watermark = self.high_watermark + len(records)

    def read(self, offset: int, max_bytes: int, upto: int) -> bytes:
        """Whole batches, the first of them however large it is."""
        self.reads += 1
        found = b""
        for at, header in scan(self.content):
            if header.next_offset > offset and (not found or len(found) + header.size <= max_bytes):
                found += self.content[at : at + header.size]
        return found

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        return self.aborted


def look_through(data: Data, config: QueueConfig, *, only_waiting: bool = False) -> Seen:
    intake = Intake(data)  # type: ignore[arg-type]
    messages, skipped, position = [], [], 0
    while position < data.last_stable_offset:
        wanted = Wanted(position, data.last_stable_offset, 10_000, ())
        seen = intake.look(wanted, config, None, 0, only_waiting=only_waiting)
        assert position < seen.indexed_to
        assert len(seen.messages) <= MAX_LOOKED
        position = seen.indexed_to
        messages += seen.messages
        skipped += seen.skipped
    return Seen(position, messages, skipped)


def test_a_large_batch_is_looked_at_in_pieces_and_read_once() -> None:
    data = Data()
    data.add([Record(None, b"x", FAR, NOW) for _ in range(5_500)])
    seen = look_through(data, QueueConfig(delays=True))
    assert [message.offset for message in seen.messages] == list(range(5_500))
    assert data.reads == 1, "the batch is held open from one piece to the next"


def test_what_is_not_for_the_queue_is_skipped() -> None:
    """Markers, and what was aborted (R48): a transaction that did not happen is not delivered."""
    data = Data()
    data.add([Record(None, b"a", FAR, NOW), Record(None, b"b", (), NOW)])
    data.add(
        [Record(None, b"never", FAR, NOW)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    marker = bytearray(build_control_batch(False, 7, 0, 0, NOW))
    marker[0:8] = (3).to_bytes(8, "big")
    data.content += bytes(marker)
    data.last_stable_offset = data.high_watermark = 4
    data.aborted = [AbortedTransaction(7, 2, 3, 4)]
    data.add([Record(None, b"c", FAR, NOW)])
    seen = look_through(data, QueueConfig(delays=True))
    assert [message.offset for message in seen.messages] == [0, 4]
    assert seen.skipped == [(2, 4)]


class InMemoryShard:
    """The runtime without a journal: facts are applied, effects are done at once."""

    def __init__(self, machine: QueueShard, shards: QueueShards) -> None:
        self.machine = machine
        self.state: Any = None
        self.told = 0
        self._shards = shards
        self.hosted: Hosted | None = None

    def tell(self, command: Any) -> None:
        self.told += 1
        plan: Plan = self.machine.decide(command, 0)
        for fact in plan.facts:
            self.machine.apply(fact, 0)
        for effect in plan.effects:
            self._shards._perform(self, effect)  # type: ignore[arg-type]


class ReadyHosted(Hosted):
    ready = True


def test_a_backlog_of_delays_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million delays may wait in the log when a broker starts: one piece in a turn of the loop, whatever else comes in,
    and work in proportion to the backlog. Counted in turns and records, not in seconds."""
    config = QueueConfig(delays=True)
    spec = with_config(QueueSpec(name="q", id="1", topics=("t",)), config)
    shards = QueueShards(None, lambda *_: None, lambda _: [spec], lambda _: spec)  # type: ignore[arg-type]
    machine = QueueShard(lease_epoch=1, wall_offset_ms=NOW)
    shard = InMemoryShard(machine, shards)
    data = Data()
    hosted = ReadyHosted(shard, data)  # type: ignore[arg-type]
    monkeypatch.setattr(shards, "_hosting", lambda _: hosted)
    for _ in range(4):
        data.add([Record(None, b"x", FAR, NOW) for _ in range(5_000)])
    turns: list[list[int]] = [[]]
    look = intake_module.Intake.look

    def counted(self: Intake, *given: Any, **named: Any) -> Seen:
        seen = look(self, *given, **named)
        turns[-1].append(len(seen.messages))
        return seen

    monkeypatch.setattr(intake_module.Intake, "look", counted)
    grown = shards._grown(hosted)

    async def run() -> None:
        shard.tell(Configure("q", config))
        shard.tell(Open(SOURCE, 0))
        while (counts := machine.counts(SOURCE)) is not None and counts.delayed < 20_000:
            grown(data.high_watermark)  # commits keep coming while the backlog is read
            grown(data.high_watermark)
            await asyncio.sleep(0)
            turns.append([])
            assert len(turns) < 200

    asyncio.run(run())
    assert max(len(turn) for turn in turns) <= 1, "one piece in a turn"
    assert max(sum(turn) for turn in turns) <= MAX_LOOKED
    assert shard.told <= 3 * len(turns) + 10, "nobody asks for what is on its way"
