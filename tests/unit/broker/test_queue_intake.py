"""How a queue learns what is in the log: piece by piece, one chain of pieces for each backlog, and nothing left out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.load import ShardState
from headrace.broker.queueing.local import intake as intake_module
from headrace.broker.queueing.local.intake import MAX_LOOKED, Intake, IntakeProgress, describe
from headrace.broker.queueing.local.payloads import Payloads
from headrace.broker.queueing.local.shards import Hosted, QueueShards
from headrace.broker.queueing.specs import QueueSpec, with_config
from headrace.cluster.configs import TopicConfig
from headrace.core.ids import TopicPartition
from headrace.core.plan import Plan
from headrace.log.aborted import AbortedTxn
from headrace.queues.commands import Configure, LoggedMessage, Open, Source, WantedRecords
from headrace.queues.config import QueueConfig, fifo_queue, standard_queue
from headrace.queues.shard import QueueShard
from headrace.records.batch import read_header, scan
from headrace.records.build import Record, assemble, build_batch, build_control_batch

NOW = 1_700_000_000_000
SOURCE = Source("q", "t", 0)
FAR = (("headrace-deliver-at", str(NOW + 3_600_000).encode()),)


class Data:
    """A log in memory."""

    start_offset = 0
    topic_id = b"t" * 16
    is_leader = True
    leader_epoch = 5

    def __init__(self, number: int = 0) -> None:
        self.tp = TopicPartition("t", number)
        self.config = TopicConfig()
        self.stepped_over: list[int] = []
        self.log = self
        self.content = b""
        self.last_stable_offset = self.high_watermark = 0
        self.aborted: list[AbortedTxn] = []
        self.reads = 0

    def step_over(self, offset: int, problem: object) -> None:
        self.stepped_over.append(offset)

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

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        return self.aborted


def look_through(
    data: Data, config: QueueConfig, *, only_waiting: bool = False, default_delay_ms: int = 0
) -> IntakeProgress:
    intake = Intake(data)  # type: ignore[arg-type]
    messages, skipped, position = [], [], 0
    while position < data.last_stable_offset:
        wanted = WantedRecords(position, data.last_stable_offset, 10_000, ())
        seen = intake.look(wanted, config, None, default_delay_ms, only_waiting=only_waiting)
        assert position < seen.indexed_to
        assert len(seen.messages) <= MAX_LOOKED
        position = seen.indexed_to
        messages += seen.messages
        skipped += seen.skipped
    return IntakeProgress(position, messages, skipped)


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
    data.aborted = [AbortedTxn(7, 2, 3, 4)]
    data.add([Record(None, b"c", FAR, NOW)])
    seen = look_through(data, QueueConfig(delays=True))
    assert [message.offset for message in seen.messages] == [0, 4]
    assert seen.skipped == [(2, 4)]


DUE_HEADERS = st.sampled_from(
    [
        (),
        FAR,
        (("headrace-delay-ms", b"90000"),),
        (("headrace-delay-ms", b"-5"),),
        (("headrace-delay-ms", b"not a number"),),
        (("headrace-deliver-at", b"0"),),
        (("headrace-deliver-at", None),),
        (("headrace-delay-level", b"10m"),),
        (("a", b"1"), *FAR),
        (*FAR, ("a", None)),
        (("a", b"\x02\x26headrace-deliver-at\x1a1700003600000"),),
        (("headrace-deliver-at", b"1700000000000"), ("headrace-delay-ms", b"1")),
        (("headrace-priority", b"7"),),
    ]
)
LOGGED = st.lists(
    st.tuples(
        st.lists(
            st.tuples(
                st.none() | st.binary(max_size=3) | st.just(b"k" * 200),
                st.none() | st.sampled_from([b"", b"v", b"headrace-delay-ms", b"x" * 300]),
                DUE_HEADERS,
                st.integers(NOW - 1000, NOW + 1000),
            ),
            min_size=1,
            max_size=6,
        ),
        st.sampled_from([0, 0, 1, 4]),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(batches=LOGGED, default_delay_ms=st.sampled_from([0, 5_000]), prioritised=st.booleans())
def test_looking_without_opening_finds_what_opening_does(
    batches: list[Any], default_delay_ms: int, prioritised: bool
) -> None:
    """Batches without a trace are passed over, and due times are read in passing: the messages are those that `describe`
    finds record by record, and gaps of a compacted log are none."""
    data, config = Data(), QueueConfig(delays=True, priorities=prioritised)
    expected: list[LoggedMessage] = []
    there: set[int] = set()
    for rows, codec, with_gaps in batches:
        base = data.high_watermark
        records = [
            Record(key, value, headers, time, base + place * (2 if with_gaps else 1))
            for place, (key, value, headers, time) in enumerate(rows)
        ]
        data.content += build_batch(records, base_offset=base, wall_ms=NOW, codec=codec)
        data.last_stable_offset = data.high_watermark = records[-1].offset + 1
        there |= {record.offset for record in records}
        found = (describe(record, config, default_delay_ms) for record in records)
        expected += [message for message in found if message is not None]
    seen = look_through(data, config, default_delay_ms=default_delay_ms)
    assert seen.messages == expected
    skipped = {offset for first, end in seen.skipped for offset in range(first, end)}
    assert skipped == set(range(data.high_watermark)) - there


@pytest.mark.parametrize(
    "body", [b"\x7f" * 40, b"headrace-del" + b"\xff" * 40, b"\x0e\x00\x00\x00\x01\x70\x00\x00"]
)
def test_a_batch_that_nobody_can_open_does_not_block_the_queue(body: bytes) -> None:
    """A topic may be spared the look into its batches, and old ones were (F9); its CRC is right."""
    data = Data()
    data.add([Record(None, b"a", FAR, NOW)])
    header = read_header(build_batch([Record(None, b"x", FAR, NOW)], base_offset=1, wall_ms=NOW))
    data.content += assemble(header, body)
    data.last_stable_offset = data.high_watermark = 2
    data.add([Record(None, b"b", FAR, NOW)])
    seen = look_through(data, QueueConfig(delays=True))
    assert [message.offset for message in seen.messages] == [0, 2]
    records = Payloads(data).get(range(3))  # type: ignore[arg-type]
    assert set(data.stepped_over) == {1}
    assert sorted(records) == [0, 2]


class InMemoryShard:
    """The runtime without a journal: facts are applied, effects are done at once."""

    def __init__(self, machine: QueueShard, shards: QueueShards) -> None:
        self.machine = machine
        self.state = ShardState.READY
        self.told = 0
        self._shards = shards
        self.hosted: Hosted | None = None
        self.shard = self.current = self

    def tell(self, command: Any) -> None:
        self.told += 1
        plan: Plan = self.machine.decide(command, 0)
        for fact in plan.facts:
            self.machine.apply(fact, 0)
        for effect in plan.effects:
            self._shards._perform(self, effect)  # type: ignore[arg-type]


def test_a_backlog_of_delays_does_not_hold_up_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million delays may wait in the log when a broker starts: one piece in a turn of the loop, whatever else comes in,
    and work in proportion to the backlog. Counted in turns and records, not in seconds."""
    config = QueueConfig(delays=True)
    spec = with_config(QueueSpec(name="q", id="1", topics=("t",)), config)
    shards = QueueShards(None, lambda *_: None, lambda _: [spec], lambda _: spec)  # type: ignore[arg-type]
    machine = QueueShard(lease_epoch=1, wall_offset_ms=NOW)
    shard = InMemoryShard(machine, shards)
    data = Data()
    hosted = Hosted(shard, data)  # type: ignore[arg-type]
    monkeypatch.setattr(shards, "_hosting", lambda _: hosted)
    for _ in range(4):
        data.add([Record(None, b"x", FAR, NOW) for _ in range(5_000)])
    turns: list[list[int]] = [[]]
    look = intake_module.Intake.look

    def counted(self: Intake, *given: Any, **named: Any) -> IntakeProgress:
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


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_send_is_shown_to_the_engine_at_once_unless_a_backlog_is_before_it(
    monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    """Reading a million messages in one turn of the loop would cost a broker its lease."""
    spec = with_config(QueueSpec(name="q", id="1", topics=("t",)), fifo_queue())
    shards = QueueShards(None, lambda *_: None, lambda _: [spec], lambda _: spec)  # type: ignore[arg-type]
    machine = QueueShard(lease_epoch=1, wall_offset_ms=NOW)
    shard, data = InMemoryShard(machine, shards), Data()
    hosted = Hosted(shard, data)  # type: ignore[arg-type]
    monkeypatch.setattr(shards, "_hosting", lambda _: hosted)
    shard.tell(Configure("q", spec.queue_config))
    shard.tell(Open(SOURCE, 0))
    data.add([Record(b"g", b"x", (), NOW) for _ in range(MAX_LOOKED + beyond)])
    hosted.reading.add(SOURCE)  # the next piece of it is on its way
    shards.feed_source(hosted, SOURCE, at_once=True)
    counts = machine.counts(SOURCE)
    assert counts is not None and counts.indexed_to == (0 if beyond else MAX_LOOKED)


OWN_HEADERS = st.lists(
    st.sampled_from(
        [
            ("headrace-group", b"g"),
            ("headrace-group", b""),
            ("headrace-tenant", b"t"),
            ("headrace-dedup-id", b"1"),
            ("headrace-dedup-id", b"2"),
            ("headrace-delay-ms", b"90000"),
            ("headrace-deliver-at", str(NOW + 3_600_000).encode()),
            ("headrace-priority", b"7"),
            ("headrace-ttl-ms", b"60000"),
            ("headrace-moved", None),
            ("headrace-attribute-types", b"{}"),
            ("color", b"red"),
            ("empty", None),
        ]
    ),
    max_size=3,
).map(tuple)
SENT = st.lists(
    st.lists(
        st.builds(
            Record,
            st.sampled_from([None, b"", b"k"]),
            st.just(b"x"),
            OWN_HEADERS,
            st.sampled_from([NOW, NOW + 7]),
            st.just(-1),
        ),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=6,
)


@given(
    batches=SENT,
    config=st.sampled_from(
        [
            fifo_queue(),
            fifo_queue(dedup_per_group=True),
            standard_queue(),
            standard_queue(priorities=True, ttl=True),
        ]
    ),
)
def test_what_was_sent_here_is_known_as_the_log_would_say_it(
    batches: list[list[Record]], config: QueueConfig
) -> None:
    """The engine hears the same, and nothing is read for it."""
    spec = with_config(QueueSpec(name="q", id="1", topics=("t",)), config)
    shards = QueueShards(None, lambda *_: None, lambda _: [spec], lambda _: spec)  # type: ignore[arg-type]
    told: list[LoggedMessage] = []
    machine = QueueShard(lease_epoch=1, wall_offset_ms=NOW)
    shard = InMemoryShard(machine, shards)
    data = Data()
    hosted = Hosted(shard, data)  # type: ignore[arg-type]
    shards.hosted[data.tp] = hosted
    shard.tell(Configure("q", config))
    shard.tell(Open(SOURCE, 0))
    tell = shard.tell
    shard.tell = lambda command: (told.extend(getattr(command, "messages", ())), tell(command))  # type: ignore[method-assign, assignment]
    for records in batches:
        shards.wrote(data, data.high_watermark, records, True)  # type: ignore[arg-type]
        data.add(records)
        shards._feed(hosted)
        assert data.reads == 0 and not hosted.written.special
    assert told == look_through(data, config).messages


@pytest.mark.parametrize("stays_as_sent", [True, False])
def test_what_may_have_been_changed_on_its_way_into_the_log_is_read(stays_as_sent: bool) -> None:
    """Stamped, compressed or marked: the log says what became of it."""
    data = Data()
    shards = QueueShards(None, lambda *_: None, lambda _: [], lambda _: None)  # type: ignore[arg-type]
    hosted = shards.hosted[data.tp] = Hosted(None, data)  # type: ignore[arg-type]
    shards.wrote(data, 0, [Record(None, b"x", FAR, NOW)], stays_as_sent)  # type: ignore[arg-type]
    assert hosted.written_from(0, 1)[0] == (1 if stays_as_sent else 0)
    shards.wrote(data, 1, [Record(None, b"x", (), NOW)], stays_as_sent)  # type: ignore[arg-type]
    assert hosted.written_from(1, 2) == (2, ()), "it says nothing about itself"
    shards.wrote(data, 2, [Record(None, b"x", FAR, -1)], True)  # type: ignore[arg-type]
    assert hosted.written_from(2, 3)[0] == 2, "the log has the time at which it was written"


def started_at(spec: QueueSpec, data: Data) -> int:
    """Where a queue that meets a partition for the first time begins to read it."""
    shards = QueueShards(None, lambda *_: None, lambda _: [spec], lambda _: spec)  # type: ignore[arg-type]
    machine = QueueShard(lease_epoch=1, wall_offset_ms=NOW)
    hosted = Hosted(InMemoryShard(machine, shards), data)  # type: ignore[arg-type]
    shards._perform = lambda shard, effect: None  # type: ignore[method-assign,assignment]
    shards._refresh(hosted)
    start = machine.done_offset(Source(spec.name, *data.tp))
    assert start is not None
    return start


@pytest.mark.parametrize(
    ("start", "number", "expected"), [("earliest", 0, 0), ("latest", 1, 3), ("latest", 2, 0)]
)
def test_a_partition_that_is_newer_than_the_subscription_is_read_from_its_beginning(
    start: Any, number: int, expected: int
) -> None:
    """`latest` leaves out what was there before the subscription; nothing in a partition that came later was."""
    data = Data(number)
    data.add([Record(None, b"x", (), NOW) for _ in range(3)])
    spec = QueueSpec(
        name="s", id="1", topics=("t",), kind="subscription", start=start, since={data.topic_id.hex(): 2}
    )
    assert started_at(spec, data) == expected


def test_a_topic_that_was_made_again_is_read_from_its_beginning() -> None:
    data = Data()
    data.add([Record(None, b"x", (), NOW) for _ in range(3)])
    spec = QueueSpec(
        name="s", id="1", topics=("t",), kind="subscription", start="latest", since={"00" * 16: 2}
    )
    assert started_at(spec, data) == 0


def test_what_was_just_sent_is_not_read_again() -> None:
    data = Data()
    hosted = Hosted(None, data)  # type: ignore[arg-type]
    data.add([Record(None, b"x", (), NOW) for _ in range(3)])
    hosted.wrote(0, 2)
    hosted.wrote(2, 3)
    assert hosted.ordinary_to(1, 3) == 3
    assert hosted.ordinary_to(0, 2) == 2, "what is not committed is not there yet"
    wanted = WantedRecords(0, 2, 10, ())
    seen = hosted.intake(SOURCE).look(wanted, QueueConfig(delays=True, fair=True), None, 0, ordinary_to=2)
    assert seen == IntakeProgress(2, [], [], []) and data.reads == 0
    for interest in (QueueConfig(delays=True, fifo=True), QueueConfig(delays=True)):
        delay_ms = 0 if interest.fifo else 5  # groups are by key, and a default delay is for all
        look = Intake(data).look  # type: ignore[arg-type]
        assert look(wanted, interest, None, delay_ms, ordinary_to=2).indexed_to == 3
    assert data.reads == 2


@pytest.mark.parametrize("change", [{"leader_epoch": 6}, {"is_leader": False}])
def test_what_was_sent_under_another_leadership_is_read(change: dict[str, Any]) -> None:
    """It may have been cut off since, and something with a delay may lie at its offset."""
    data = Data()
    hosted = Hosted(None, data)  # type: ignore[arg-type]
    data.add([Record(None, b"x", (), NOW) for _ in range(3)])
    hosted.wrote(0, 3)
    for name, value in change.items():
        setattr(data, name, value)
    assert hosted.ordinary_to(0, data.last_stable_offset) == 0
