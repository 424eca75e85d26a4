"""A whole cluster on virtual time: brokers, a hostile coordinator, clients, faults, and what must hold at every step.

One seed is one run. It draws which faults there are at all (a swarm), runs clients through them, lets everything heal,
and then asks three questions: did the cluster recover, does the history of the clients hold (correctness.md section 6),
and are the replicas' logs the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_client import ClusterClient, Consumer, Gone, OffsetKeeper, Producer, TransactionalProducer
from cluster_invariants import Broken, Invariants, Place
from journal_trouble import JournalTrouble
from recreation import AGAIN, Recreator
from transformer import Transformer

from headrace.broker import replicator
from headrace.cluster import keys
from headrace.cluster.state import PartitionState
from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import CoordinatorError
from headrace.coordinator.store import RevisionedStore
from headrace.core.errors import HeadraceError
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.testing.checker import check
from headrace.testing.dice import Dice
from headrace.testing.history import OperationHistory
from headrace.testing.hostile_coordinator import HostileCoordinator, Odds
from headrace.testing.nemesis import Fault, FaultKind, Nemesis, draw_plan
from headrace.testing.sim_disk import DiskFault
from headrace.testing.sim_inode import DirectoryNode
from headrace.testing.sim_node import SimClock, SimNode, SimRuntime
from headrace.testing.simulation import Simulation

TOPIC = "orders"
BROKERS = 3
PORT = 9092
RESTART_S = 0.5
HEAL_S = 240.0
NO_ODDS = Odds(0, 0, 0, 0, 1.0, 0, 5.0, 0, 0, 0)


@dataclass(frozen=True)
class Shape:
    """How a run looks; drawn from its seed unless a test says otherwise."""

    seconds: float = 60.0
    partitions: int = 2
    min_isr: int = 2
    producers: int = 2
    transactional_ids: int = 1
    transforms: bool = False
    """Somebody consumes, transforms and produces: offsets are committed in transactions."""
    groups: bool = True
    """Somebody commits offsets and asks for them again."""
    pause_s: float = 0.15
    period_s: float = 6.0
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    hostile: bool = True
    disk_faults: bool = True
    outages: bool = True
    moves: bool = False
    full_journals: bool = False
    """Now and then there is no space left for a moment, when a journal is written (F4, F83)."""
    flaps: bool = False
    """Now and then all followers of a journal go away and come back, more than once (F18)."""
    io_first: bool = False
    """Callbacks in the order of uvloop."""
    recreates: bool = False
    """Somebody deletes a topic that a group reads, and makes it again (F1)."""
    poll_ms: int = replicator.MAX_WAIT_MS
    """How long followers wait for news. Long polls make idle hours cheap, and failures less convenient."""


@dataclass
class Result:
    seed: int
    virtual_s: float
    faults: int
    acked: int
    committed: int
    trace_hash: str
    history: OperationHistory = field(repr=False)


class _WatchedNode(Node):
    def __init__(
        self, settings: Settings, runtime: SimRuntime, coordinator: HostileCoordinator, invariants: Invariants
    ) -> None:
        super().__init__(settings, runtime, coordinator)
        self._invariants = invariants

    def _open_doors(self) -> None:
        self._invariants.listen(self.broker)
        super()._open_doors()


class SimCluster:
    topic = TOPIC

    def __init__(self, seed: int, shape: Shape, plan: Sequence[Fault] | None = None) -> None:
        self.simulation = Simulation(seed, io_first=shape.io_first)
        self.shape = shape
        self.dice = self.simulation.dice.fork("cluster")
        self.history = OperationHistory()
        self.store = RevisionedStore()
        self._clock = SimClock(self.simulation.loop)
        self.coordinators: dict[str, HostileCoordinator] = {}
        self.nodes = {
            number: self.simulation.node(f"b{number}", self._program) for number in range(1, BROKERS + 1)
        }
        self._numbers = {node.name: number for number, node in self.nodes.items()}
        self._failed: set[str] = set()
        self._plan = plan
        self._over = False
        self._begun_s = self.simulation.loop.time()
        self._faults = 0
        self.lives = 0
        """How often the topic was made that is made again and again."""
        self.invariants = Invariants(self.store, self.nodes, self.simulation.loop.time)
        self.simulation.invariant(self.invariants.look)

    # -- brokers -------------------------------------------------------------------------------------------------

    async def _program(self, node: SimNode, runtime: SimRuntime) -> None:
        face = MemoryCoordinator(self._clock, self.store)
        hostile = HostileCoordinator(face, self.dice.fork(f"{node.name}/{node.lives}"))
        if not self.shape.hostile:
            hostile.odds = NO_ODDS
        known = self.coordinators.get(node.name)
        if known is not None:
            hostile.reachable, hostile.odds = known.reachable, known.odds
        self.coordinators[node.name] = hostile
        settings = Settings(
            host=node.address,
            data_dir="/data",
            node_id=self._numbers[node.name],
            offsets_partitions=1,
            rack=f"r{self._numbers[node.name]}",
        )
        service = node.service = _WatchedNode(settings, runtime, hostile, self.invariants)
        try:
            await service.start()
        except (HeadraceError, CoordinatorError, OSError):
            # What a supervisor is for: the process ends, and is started again.
            self._failed.add(node.name)
        await asyncio.get_running_loop().create_future()

    async def _supervise(self) -> None:
        while not self._over:
            await asyncio.sleep(RESTART_S)
            for node in self.nodes.values():
                broken = self._has_broken_disk(node)
                if node.is_running and (node.name in self._failed or (broken and self.dice.chance(0.05))):
                    self._failed.discard(node.name)
                    node.kill()
                    node.start()

    @staticmethod
    def _has_broken_disk(node: SimNode) -> bool:
        """S7: replicas that failed stay out of service until somebody restarts the broker."""
        service = node.service
        if service is None or not hasattr(service, "broker"):
            return False
        broker = service.broker
        return (
            broker.flusher.failure is not None
            or bool(broker.replicas.offline)
            or any(held.failed for held in broker.partitions.values())
        )

    # -- faults --------------------------------------------------------------------------------------------------

    def _draw_plan(self) -> list[Fault]:
        names = [node.name for node in self.nodes.values()]
        return draw_plan(
            self.dice.fork("plan"),
            names,
            seconds=self.shape.seconds,
            kinds=self.shape.kinds,
            period_s=self.shape.period_s,
        )

    async def _trouble(self) -> None:
        """What the nemesis does not know: a coordinator that can't be reached, and disks that fail."""
        dice = self.dice.fork("trouble")
        names = sorted(self._numbers)
        has_outages = self.shape.outages and dice.chance(0.5)
        has_disk_faults = self.shape.disk_faults and dice.chance(0.5)
        begun_s = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() - begun_s < self.shape.seconds:
            await asyncio.sleep(dice.exponential(self.shape.period_s))
            if has_outages and dice.chance(0.5):
                cut = names if dice.chance(0.3) else [dice.pick(names)]
                for name in cut:
                    if name in self.coordinators:
                        self.coordinators[name].reachable = False
                self._faults += 1
                await asyncio.sleep(dice.exponential(self.shape.period_s))
                for name in cut:
                    if name in self.coordinators:
                        self.coordinators[name].reachable = True
            if has_disk_faults and dice.chance(0.3):
                node = self.simulation.nodes[dice.pick(names)]
                node.disk.arm(DiskFault.SYNC_ERROR, "/data/topics", skip=dice.between(0, 20))
                self._faults += 1

    async def _move(self, client: ClusterClient, enough: asyncio.Event) -> None:
        """An administrator who moves partitions and leaderships about (R32, R35)."""
        dice = self.dice.fork("moves")
        while not enough.is_set():
            await asyncio.sleep(dice.exponential(2 * self.shape.period_s))
            place = dice.pick(sorted(self.invariants.states()))
            try:
                if dice.chance(0.5):
                    await client.elect_preferred(*place)
                else:
                    counts = (2, 3, 3) if place.topic.startswith("__") else (1, 2, 3, 3)
                    await client.move(*place, dice.sample(sorted(self.nodes), dice.pick(counts)))
            except Gone:
                continue

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        usual_ms, replicator.MAX_WAIT_MS = replicator.MAX_WAIT_MS, self.shape.poll_ms
        try:
            self.simulation.run(self._scenario, limit_s=self.shape.seconds + 4 * HEAL_S)
        finally:
            replicator.MAX_WAIT_MS = usual_ms
        report = check(self.history.operations)
        if not report.is_valid:
            raise Broken(report.describe())
        acked = sum(
            len(operation.sends())
            for operation in self.history.operations
            if operation.outcome.value == "ok" and operation.action in ("send", "txn")
        )
        if acked and not self.invariants.books:
            raise RuntimeError("nobody watched: the simulation has lost its hold on the brokers")
        return Result(
            self.simulation.seed,
            self.simulation.loop.time() - self._begun_s,
            self._faults,
            acked,
            sum(book.end for book in self.invariants.books.values()),
            self.simulation.trace_hash,
            self.history,
        )

    async def _scenario(self, simulation: Simulation) -> None:
        shape = self.shape
        for node in self.nodes.values():
            node.start()
        addresses = [(node.address, PORT) for node in self.nodes.values()]
        supervisor = asyncio.get_running_loop().create_task(self._supervise())

        def client(name: str) -> ClusterClient:
            return ClusterClient(addresses, self.topic, self.dice.fork(f"client/{name}"))

        await self._brokers_live()
        configs = {
            "min.insync.replicas": str(shape.min_isr),
            "retention.ms": "-1",
            # Clients do not follow the brokers' clocks when those jump.
            "message.timestamp.after.max.ms": str(2**63 - 1),
        }
        await client("admin").create_topic(shape.partitions, BROKERS, configs)
        plan = self._draw_plan() if self._plan is None else self._plan
        self._faults = len(plan)
        enough = asyncio.Event()
        consumers = [
            Consumer(client(f"c{number}"), self.history, 100 + number, shape.partitions) for number in (1, 2)
        ]
        clients: list[Any] = [
            Producer(
                client(f"p{number}"), self.history, self.dice.fork(f"p{number}"), number, shape.partitions
            )
            for number in range(1, shape.producers + 1)
        ]
        clients += [
            TransactionalProducer(
                client(f"t{number}"),
                self.history,
                self.dice.fork(f"t{number}"),
                number,
                shape.partitions,
                TOPIC,
            )
            for number in range(50, 50 + shape.transactional_ids)
        ]
        transformer = Transformer(
            client("x80"), self.history, self.dice.fork("x80"), 80, shape.partitions, TOPIC
        )
        if shape.transforms:
            clients.append(transformer)
        if shape.groups:
            clients.append(OffsetKeeper(client("g70"), self.dice.fork("g70"), shape.partitions, self.topic))
        recreator = Recreator(
            ClusterClient(addresses, AGAIN, self.dice.fork("client/again")),
            self.dice.fork("again"),
            self.store,
            self.nodes,
            BROKERS - 1,
        )
        if shape.recreates:
            clients.append(recreator)
        async with asyncio.TaskGroup() as tasks:
            for sender in clients:
                tasks.create_task(sender.run(enough.is_set, shape.pause_s))
            for consumer in consumers:
                tasks.create_task(consumer.run(enough.is_set))
            if shape.moves:
                tasks.create_task(self._move(client("mover"), enough))
            journals = tasks.create_task(JournalTrouble(self).run())
            trouble = tasks.create_task(self._trouble())
            nemesis = Nemesis(simulation)
            await nemesis.carry_out(plan)
            await trouble
            await journals
            self._heal(nemesis)
            await asyncio.sleep(5.0)
            enough.set()
        await self._recovered()
        self.lives = recreator.lives
        if shape.recreates:
            await recreator.look()
        self._nothing_is_left()
        last = Consumer(client("last"), self.history, 900, shape.partitions)
        async with asyncio.timeout(HEAL_S):
            await last.read_past(self._ends())
            if shape.transforms:
                await transformer.check(last.values)
        self.invariants.logs_match()
        self.invariants.memory_is_what_the_journals_say()
        self._over = True
        await supervisor

    def _nothing_is_left(self) -> None:
        """Of topics that were deleted: no journal without a topic, and no directory on any broker (F1, F24)."""
        names = {item.key.removeprefix(keys.TOPICS) for item in self.store.read(keys.TOPICS).items}
        orphans = [
            name for name in names if name.startswith("__queue.") and name[len("__queue.") :] not in names
        ]
        if orphans:
            raise Broken(f"F1: journals of topics that are gone: {orphans}")
        ids = {json.loads(item.value)["id"] for item in self.store.read(keys.TOPICS).items}
        for node in self.nodes.values():
            topics = node.disk.find("/data/topics")
            for name in topics.entries if isinstance(topics, DirectoryNode) else ():
                if name.rpartition("@")[2] not in ids:
                    raise Broken(f"F1: {node.name} still has {name}")
                inside = node.disk.find(f"/data/topics/{name}")
                left = [one for one in getattr(inside, "entries", ()) if one.endswith(".deleted")]
                if left:
                    raise Broken(f"F24: {node.name} still has {left} of {name}")

    def _heal(self, nemesis: Nemesis) -> None:
        for name, coordinator in self.coordinators.items():
            coordinator.odds = NO_ODDS
            coordinator.reachable = True
            self.simulation.nodes[name].disk._armed.clear()
        nemesis.calm()
        for node in self.nodes.values():
            if self._has_broken_disk(node):
                node.kill()
                node.start()

    async def _brokers_live(self) -> None:
        async with asyncio.timeout(HEAL_S):
            while not all(self._is_live(number) for number in self.nodes):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    def _is_live(self, number: int) -> bool:
        return self.store.get(keys.broker(number)) is not None and self.store.get(keys.fence(number)) is None

    async def _recovered(self) -> None:
        """Liveness: everybody is let in, every partition is led, every replica is in sync."""
        for coordinator in self.coordinators.values():
            coordinator.odds = NO_ODDS
        try:
            async with asyncio.timeout(HEAL_S):
                while not self._is_whole():  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise Broken(f"not whole {HEAL_S} s after the last fault: {self._state()}") from None

    def _is_whole(self) -> bool:
        return self.invariants.is_whole(self._is_live)

    def _ends(self) -> dict[int, int]:
        return {
            number: max(
                replica.log.end_offset
                for node in self.nodes.values()
                if (replica := self._replica(node, number)) is not None
            )
            for number in range(self.shape.partitions)
        }

    def _state(self) -> str:
        brokers = {number: self._is_live(number) for number in self.nodes}
        ends = {
            (node.name, number): None
            if replica is None
            else (replica.log.end_offset, replica.high_watermark, replica.failed)
            for node in self.nodes.values()
            for number in range(self.shape.partitions)
            for replica in [self._replica(node, number)]
        }
        return f"{brokers} {self._partition_states()} {ends}"

    # -- what must hold at every step: cluster_invariants.py ---------------------------------------------------------

    def _partition_states(self) -> dict[int, PartitionState]:
        states = self.invariants.states()
        return {
            number: states[Place(self.topic, number)]
            for number in range(self.shape.partitions)
            if Place(self.topic, number) in states
        }

    def _replica(self, node: SimNode, number: int) -> Any:
        return self.invariants.replica(node, Place(self.topic, number))


def run(seed: int, shape: Shape | None = None) -> Result:
    return SimCluster(seed, shape or draw_shape(seed)).run()


def draw_shape(seed: int) -> Shape:
    dice = Dice(seed).fork("shape")
    return Shape(
        seconds=dice.pick((60.0, 120.0, 300.0, 600.0)),
        partitions=dice.pick((1, 1, 2, 3)),
        min_isr=dice.pick((1, 2, 2, 3)),
        producers=dice.pick((1, 1, 2)),
        transactional_ids=dice.pick((0, 1, 1, 2, 2)),
        groups=dice.chance(0.6),
        pause_s=dice.pick((0.3, 1.0, 2.0, 4.0)),
        period_s=dice.pick((3.0, 6.0, 12.0, 20.0)),
        hostile=dice.chance(0.7),
        moves=dice.chance(0.3),
        recreates=Dice(seed).fork("recreates").chance(0.4),
        poll_ms=dice.pick((150, 500, 1000)),
        transforms=dice.chance(0.5),
        full_journals=dice.chance(0.4),
        flaps=dice.chance(0.4),
        io_first=dice.chance(0.5),
    )


def find(seeds: range, make: Callable[[int], SimCluster]) -> tuple[int, Exception] | None:
    """The first seed whose run breaks something, and what."""
    for seed in seeds:
        try:
            make(seed).run()
        except (AssertionError, ExceptionGroup) as problem:
            return seed, problem
    return None
