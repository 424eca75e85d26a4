"""A queue on a whole cluster, on virtual time: SQS clients through the HTTP door of any broker, faults, and the checker.

As cluster_sim.py: one seed is one run. At the end everything heals, the queue is drained, and the history is asked for
what was lost, what came back, what came early, what overtook, and what a stale receipt took away (R56-R60).
"""

from __future__ import annotations

import asyncio
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cluster_client import ClusterClient
from cluster_invariants import Broken
from cluster_sim import BROKERS, HEAL_S, PORT, Shape, SimCluster
from journal_trouble import JournalTrouble
from queue_clients import Sender, SqsClient, Station, Worker, now_ms
from recreation import Phoenix

from headrace.broker.queueing.specs import decode_spec
from headrace.cluster import keys
from headrace.queues.shard import QueueShard
from headrace.testing.dice import Dice
from headrace.testing.nemesis import Fault, FaultKind, Nemesis
from headrace.testing.queue_checker import DEDUP_WINDOW_MS, Clocks, QueueHistory, QueueReport, check_queue
from headrace.testing.simulation import Simulation

MAX_RECEIVES = 3
LEASED_S = 10
"""Longer than any visibility timeout or delay of a run."""
MAX_PARTITIONS = 4
ELASTIC = {
    "max_partitions": MAX_PARTITIONS, "rate": 4, "backlog": 8, "grow_after_ms": 2_000, "shrink_after_ms": 4_000
}  # fmt: skip
SHORT_WINDOW_MS = 5_000
"""Of deduplication: a change of a FIFO queue lasts at least so long."""
WAVES_S = 10.0
CLOCKS = (FaultKind.CLOCK_JUMP, FaultKind.CLOCK_RATE)


@dataclass(frozen=True)
class QueueShape(Shape):
    fifo: bool = False
    delays: bool = True
    dead_letters: bool = False
    workers: int = 3
    recreates: bool = False
    """Somebody deletes a queue and makes it again, while all this goes on (F1)."""
    elastic: bool = False
    """Its partitions come and go with its load, several times in a run."""
    kinds: tuple[FaultKind, ...] = tuple(kind for kind in FaultKind if kind not in CLOCKS)
    """Clocks that jump or run at their own speed make timeouts early for whoever has another clock."""


@dataclass
class QueueResult:
    seed: int
    virtual_s: float
    faults: int
    acked: int
    dead: int
    trace_hash: str
    actives: list[int]
    report: QueueReport


class QueueCluster(SimCluster):
    def __init__(self, seed: int, shape: QueueShape, plan: Sequence[Fault] | None = None) -> None:
        super().__init__(seed, shape, plan)
        self.topic = "jobs.fifo" if shape.fifo else "jobs"
        self.dead = "dead.fifo" if shape.fifo else "dead"
        self.queue_shape = shape
        self.queue_history = QueueHistory()
        self._dead_ids: dict[str, set[str]] = {}
        self._acked = 0
        self._clocks = Clocks()
        self.actives: list[int] = []
        """How many partitions were in use, one after the other."""

    def run(self) -> QueueResult:  # type: ignore[override]
        self.simulation.run(self._scenario, limit_s=self.shape.seconds + 4 * HEAL_S)
        window_ms = SHORT_WINDOW_MS if self.queue_shape.elastic else DEDUP_WINDOW_MS
        report = check_queue(
            self.queue_history.operations, drained=True, dedup_window_ms=window_ms, clocks=self._clocks
        )
        if not report.is_valid:
            raise Broken(report.describe())
        doubled = {body: ids for body, ids in self._dead_ids.items() if len(ids) > 1}
        if doubled:
            raise Broken(f"R60: dead letters were written twice: {doubled}")
        return QueueResult(
            self.simulation.seed,
            self.simulation.loop.time() - self._begun_s,
            self._faults,
            self._acked,
            len(self._dead_ids),
            self.simulation.trace_hash,
            self.actives,
            report,
        )

    # -- the run -------------------------------------------------------------------------------------------------

    async def _scenario(self, simulation: Simulation) -> None:
        shape = self.queue_shape
        for node in self.nodes.values():
            node.start()
        supervisor = asyncio.get_running_loop().create_task(self._supervise())
        await self._brokers_live()
        await self._make_queues()
        plan = self._draw_plan() if self._plan is None else self._plan
        self._faults = len(plan)
        enough = asyncio.Event()
        station = Station(self.topic, self.queue_history)
        senders = [
            Sender(station, self._sqs(f"s{number}"), self.dice.fork(f"s{number}"), f"s{number}", delays=shape.delays)
            for number in range(shape.producers)
        ]  # fmt: skip
        workers = [
            Worker(station, self._sqs(f"w{number}"), self.dice.fork(f"w{number}"))
            for number in range(shape.workers)
        ]
        ashes = "again.fifo" if shape.fifo else "again"
        phoenix = Phoenix(ashes, self._sqs("phoenix"), self.dice.fork("phoenix"), self.store)
        async with asyncio.TaskGroup() as tasks:
            for sender in senders:
                tasks.create_task(sender.run(enough.is_set, shape.pause_s, WAVES_S if shape.elastic else 0.0))
            for worker in workers:
                tasks.create_task(worker.run(enough.is_set, shape.pause_s))
            if shape.elastic:
                tasks.create_task(self._watch_partitions(enough.is_set))
            if shape.dead_letters:
                tasks.create_task(self._look_after_the_dead(enough.is_set))
            if shape.moves:
                tasks.create_task(self._move(self._kafka(self.topic, "mover"), enough))
            if shape.recreates:
                tasks.create_task(phoenix.run(enough.is_set, shape.pause_s))
            journals = (f"__queue.{self.topic}", f"__queue.{self.dead}", "__transaction_state")
            journal_trouble = tasks.create_task(JournalTrouble(self, journals).run())
            trouble = tasks.create_task(self._trouble())
            nemesis = Nemesis(simulation)
            self._clocks = trust_in_clocks(plan, now_ms())
            await nemesis.carry_out(plan)
            await trouble
            await journal_trouble
            self._heal(nemesis)
            await asyncio.sleep(5.0)
            enough.set()
        self._acked = sum(sender.acked for sender in senders)
        await self._recovered()
        self.lives = phoenix.lives
        await phoenix.end(HEAL_S)
        self._nothing_is_left()
        await self._drain(Worker(station, self._sqs("last"), self.dice.fork("last")))
        await asyncio.sleep(2.0)  # what the last answers did not wait for
        self.invariants.logs_match()
        self._over = True
        await supervisor

    def _sqs(self, name: str) -> SqsClient:
        return SqsClient([node.address for node in self.nodes.values()], self.dice.fork(f"sqs/{name}"))

    def _kafka(self, topic: str, name: str) -> ClusterClient:
        addresses = [(node.address, PORT) for node in self.nodes.values()]
        return ClusterClient(addresses, topic, self.dice.fork(f"client/{name}"))

    async def _make_queues(self) -> None:
        shape = self.queue_shape
        configs = {"min.insync.replicas": str(shape.min_isr), "retention.ms": "-1"}
        sqs = self._sqs("admin")
        attributes = {"VisibilityTimeout": "2"}
        await self._kafka(self.topic, "admin").create_topic(shape.partitions, BROKERS, configs)
        if shape.fifo:
            attributes["FifoQueue"] = "true"
        if shape.dead_letters:
            await self._kafka(self.dead, "admin").create_topic(1, BROKERS, configs)
            await sqs.insist("CreateQueue", QueueName=self.dead, Attributes=dict(attributes))
            target = f"arn:aws:sqs:us-east-1:000000000000:{self.dead}"
            policy = {"deadLetterTargetArn": target, "maxReceiveCount": MAX_RECEIVES}
            attributes["RedrivePolicy"] = json.dumps(policy)
        await sqs.insist("CreateQueue", QueueName=self.topic, Attributes=attributes)
        if shape.elastic:
            changes: dict[str, Any] = {"elastic": ELASTIC}
            if shape.fifo:
                changes["dedup_window_ms"] = SHORT_WINDOW_MS
            await sqs.change_queue(self.topic, changes)

    async def _watch_partitions(self, until: Callable[[], bool]) -> None:
        while not until():
            item = self.store.get(keys.opaque("queues", self.topic))
            spec = None if item is None else decode_spec(item.value)
            if spec is not None and (not self.actives or self.actives[-1] != spec.active):
                self.actives.append(spec.active)
            await asyncio.sleep(0.5)

    async def _look_after_the_dead(self, until: Callable[[], bool]) -> None:
        client = self._sqs("undertaker")
        while not until():
            await self._bury(client)
            await asyncio.sleep(1.0)

    async def _bury(self, client: SqsClient) -> int:
        """Whatever is among the dead letters has left the queue by that door."""
        try:
            answer = await client.ask(
                "ReceiveMessage", QueueUrl=self.dead, MaxNumberOfMessages=10, VisibilityTimeout=5
            )
            for row in answer.get("Messages", ()):
                ids = self._dead_ids.setdefault(row["Body"], set())
                if not ids:
                    self.queue_history.discard(self.topic, row["Body"], now_ms(), seen_late=True)
                # A letter keeps its message's id (F12), so two of them differ only in their places, which receipts begin with.
                ids.add(urlsafe_b64decode(row["ReceiptHandle"][:20])[:13].hex())
                await client.ask("DeleteMessage", QueueUrl=self.dead, ReceiptHandle=row["ReceiptHandle"])
            return len(answer.get("Messages", ()))
        except Exception as problem:
            if type(problem).__name__ not in ("Refused", "Unknown"):
                raise
            return 0

    # -- the end -------------------------------------------------------------------------------------------------

    async def _drain(self, worker: Worker) -> None:
        undertaker = self._sqs("last undertaker")
        deadline = asyncio.get_running_loop().time() + HEAL_S
        while self._left():
            if asyncio.get_running_loop().time() > deadline:
                raise Broken(f"not drained {HEAL_S} s after the last fault: {self._left()}")
            found = await worker.take(LEASED_S, 1, delete_all=True)
            if self.queue_shape.dead_letters:
                found += await self._bury(undertaker)
            if not found:
                await asyncio.sleep(0.5)

    def _left(self) -> dict[str, Any]:
        """What is not done yet, by source, as whoever leads it knows."""
        wanted = {
            (place.topic, place.number) for place in self.invariants.states() if place.topic == self.topic
        }
        if self.queue_shape.dead_letters:
            wanted.add((self.dead, 0))
        left: dict[str, Any] = {f"{topic}-{number}": "nobody" for topic, number in wanted}
        for node in self.nodes.values():
            if node.service is None or not hasattr(node.service, "broker"):
                continue
            for tp, hosted in node.service.services.queue_rooms.shards.hosted.items():
                machine = hosted.machine
                if (
                    not hosted.ready
                    or not isinstance(machine, QueueShard)
                    or (tp.topic, tp.partition) not in wanted
                ):
                    continue
                for source in machine.sources():
                    counts = machine.counts(source)
                    name = f"{tp.topic}-{tp.partition}"
                    left[name] = counts
                    data_end = hosted.data.log.end_offset
                    if counts is not None and counts.start_offset >= data_end:
                        left.pop(name)
        return left


def trust_in_clocks(plan: Sequence[Fault], begun_ms: int) -> Clocks:
    """What a plan leaves of it: a jump or a wrong rate is never put right."""
    wrong = [fault for fault in plan if fault.kind in CLOCKS]
    if not wrong:
        return Clocks()
    rates = [fault.amount for fault in wrong if fault.kind is FaultKind.CLOCK_RATE]
    return Clocks(begun_ms + int(min(fault.at_s for fault in wrong) * 1000), max([1.0, *rates]))


def run(seed: int, shape: QueueShape | None = None) -> QueueResult:
    return QueueCluster(seed, shape or draw_shape(seed)).run()


def draw_shape(seed: int) -> QueueShape:
    dice = Dice(seed).fork("queue shape")
    fifo = dice.chance(0.5)
    has_clock_faults = dice.chance(0.2)
    kinds = tuple(kind for kind in FaultKind if has_clock_faults or kind not in CLOCKS)
    return QueueShape(
        seconds=dice.pick((40.0, 60.0, 120.0, 300.0)),
        partitions=dice.pick((1, 1, 2, 3)),
        min_isr=dice.pick((1, 2, 2, 3)),
        producers=dice.pick((1, 2, 3)),
        workers=dice.pick((1, 2, 4)),
        pause_s=dice.pick((0.1, 0.3, 1.0)),
        period_s=dice.pick((3.0, 6.0, 12.0)),
        hostile=dice.chance(0.7),
        moves=dice.chance(0.2),
        fifo=fifo,
        elastic=dice.chance(0.3),
        recreates=Dice(seed).fork("recreates").chance(0.4) and not has_clock_faults,
        delays=dice.chance(0.6)
        and not has_clock_faults,  # due by a clock that was ten years ahead, they never come
        dead_letters=dice.chance(0.3 if fifo else 0.5),
        kinds=kinds,
        full_journals=dice.chance(0.4),
        flaps=dice.chance(0.3),
        io_first=dice.chance(0.5),
    )
