"""A shard on a partition that only pretends to be one: what its journal takes and commits is up to the test. The machine adds numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.broker.commit_listeners import CommitListeners
from headrace.broker.load import ShardState
from headrace.broker.shards import Shard
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.plan import Command, JournalRecord, Plan, Rejected
from headrace.records.batch import read_header, scan, stamp
from headrace.testing.simulation import Simulation


@dataclass(frozen=True, slots=True)
class Added:
    number: int
    durable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Seen:
    durable: ClassVar[bool] = False


@dataclass(slots=True)
class Add(Command[int]):
    """Answer: the sum. -1 is refused."""

    number: int


class Sum:
    """A machine: adds numbers; 0 asks for the sum, 13 can't be encoded."""

    def __init__(self) -> None:
        self.total = 0
        self.seen = 0
        self.deadline: int | None = None
        self.fired: list[int] = []

    def decide(self, command: Add, now_ms: int) -> Plan[str]:
        number = command.number
        if number == -1:
            return Plan(replies=command.answer(Rejected(ErrorKind.INVALID_REQUEST, "sums only grow")))
        if number == 0:
            return Plan((Seen(),), command.answer(self.total))
        return Plan((Added(number),), command.answer(self.total + number), (f"added {number}",))

    def apply(self, fact: Any, now_ms: int) -> None:
        if isinstance(fact, Added):
            self.total += fact.number
            if fact.number == 99:
                self.deadline = now_ms + 5_000
        else:
            self.seen += 1

    def encode(self, fact: Added) -> list[JournalRecord]:
        if fact.number == 13:
            raise OverflowError("unlucky")
        return [JournalRecord(b"add", str(fact.number).encode())]

    def replay(self, record: JournalRecord, now_ms: int) -> None:
        if record.key != b"add":
            return
        self.total += int(record.value or b"0")

    def loaded(self, now_ms: int) -> Plan:
        return Plan()

    def next_deadline(self) -> int | None:
        return self.deadline

    def expire(self, now_ms: int) -> Plan:
        self.fired.append(now_ms)
        self.deadline = None
        return Plan()


class Partition:
    """A journal whose commits are said by the test."""

    tp = "journal-0"
    leader_epoch = 3
    is_leader = True
    is_trusted_alone = True
    has_rivals = True
    failed = False

    def __init__(self) -> None:
        self.batches = b""
        self.high_watermark = 0
        self.end_offset = 0
        self.start_offset = 0
        self.first_unstable_offset: int | None = None
        self.log = self
        self.on_commit = CommitListeners(Runtime(), TopicPartition("journal", 0))  # type: ignore[arg-type]
        self.waiting: list[tuple[int, Callable[[ErrorKind], None]]] = []
        self.refuses: ErrorKind | None = None
        """It says so before it is tried (too few replicas)."""
        self.fails: ErrorKind | None = None
        """It finds out (no space left)."""

    def refusal(self, acks: int) -> ErrorKind | None:
        assert acks == -1
        return self.refuses

    async def wait_leader_ready(self) -> None:
        pass

    def read_all(self, offset: int, max_bytes: int) -> bytes:
        found = b""
        for at, header in scan(self.batches):
            if header.base_offset >= offset and header.next_offset <= self.high_watermark:
                found += self.batches[at : at + header.size]
        return found

    def append_internal(self, batch: bytes, *, urgent: bool, wall_ms: int | None = None) -> int:
        assert urgent, "somebody waits for it"
        problem = self.refuses or self.fails
        if problem is not None:
            raise HeadraceError(problem, "no")
        written = bytearray(batch)
        stamp(written, 0, self.end_offset, self.leader_epoch)
        self.batches += bytes(written)
        self.end_offset += read_header(written).record_count
        return self.end_offset - 1

    def when_committed(self, offset: int, deadline_ms: int, callback: Callable[[ErrorKind], None]) -> None:
        if offset <= self.high_watermark:
            callback(ErrorKind.NONE)
        else:
            self.waiting.append((offset, callback))

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self.on_commit.tell(self.high_watermark)
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback(ErrorKind.NONE)


class Runtime:
    def __init__(self) -> None:
        self.clock = self

    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_750_000_000_000

    def unexpected(self, where: str, problem: Exception, what: str) -> None:
        """A listener raised, and somebody is told."""

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)


class Bench:
    def __init__(self, machine: type[Sum] = Sum, *, gathers: bool = False) -> None:
        self.partition = Partition()
        self.performed: list[str] = []
        self.careful = False
        self.shard: Shard[Any, str] = Shard(
            Runtime(), self.partition, machine, lambda shard, effect: self.performed.append(effect),  # type: ignore[arg-type]
            lambda command, answer: self.careful, gathers=gathers,
        )  # fmt: skip

    async def ready(self) -> Bench:
        await self.shard.current.load()
        assert self.shard.state is ShardState.READY
        return self

    def ask(self, number: int) -> asyncio.Future[int]:
        return self.shard.submit(Add(number))


def simulate(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def run(_: Any) -> None:
        await scenario()

    Simulation(1).run(run, limit_s=600.0)


def sizes(partition: Partition) -> list[int]:
    """How many records each batch of the journal has."""
    return [header.record_count for _, header in scan(partition.batches)]
