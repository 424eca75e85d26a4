"""A whole cluster on virtual time: brokers, a hostile coordinator, clients, faults, and what must hold at every step.

One seed is one run. It draws which faults there are at all (a swarm), runs clients through them, lets everything heal,
and then asks three questions: did the cluster recover, does the history of the clients hold (correctness.md section 6),
and are the replicas' logs the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster_client import ClusterClient, Consumer, Gone, Producer, TransactionalProducer

from headrace.cluster import keys
from headrace.cluster.state import PartitionState, TopicState, decode
from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import CoordinatorError
from headrace.coordinator.store import RevisionedStore
from headrace.core.errors import HeadraceError
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.records.batch import scan
from headrace.testing.checker import check
from headrace.testing.dice import Dice
from headrace.testing.history import History
from headrace.testing.hostile_coordinator import HostileCoordinator, Odds
from headrace.testing.nemesis import Fault, FaultKind, Nemesis, draw_plan
from headrace.testing.sim_disk import DiskFault
from headrace.testing.sim_node import SimClock, SimNode, SimRuntime
from headrace.testing.simulation import Simulation

TOPIC = "orders"
BROKERS = 3
PORT = 9092
LOOK_EVERY_S = 0.02
RESTART_S = 0.5
HEAL_S = 240.0
NO_ODDS = Odds(0, 0, 0, 0, 1.0, 0, 5.0, 0, 0, 0)


class Broken(AssertionError):
    """An invariant of section 3 does not hold."""


@dataclass(frozen=True)
class Shape:
    """How a run looks; drawn from its seed unless a test says otherwise."""

    seconds: float = 60.0
    partitions: int = 2
    min_isr: int = 2
    producers: int = 2
    transactions: bool = True
    pause_s: float = 0.15
    period_s: float = 6.0
    kinds: tuple[FaultKind, ...] = tuple(FaultKind)
    hostile: bool = True
    disk_faults: bool = True
    outages: bool = True
    moves: bool = False


@dataclass
class Result:
    seed: int
    virtual_s: float
    faults: int
    acked: int
    committed: int
    trace_hash: str
    history: History = field(repr=False)


class SimCluster:
    def __init__(self, seed: int, shape: Shape, plan: Sequence[Fault] | None = None) -> None:
        self.simulation = Simulation(seed)
        self.shape = shape
        self.dice = self.simulation.dice.fork("cluster")
        self.history = History()
        self.store = RevisionedStore()
        self._clock = SimClock(self.simulation.loop)
        self.coordinators: dict[str, HostileCoordinator] = {}
        self.nodes = {
            number: self.simulation.node(f"b{number}", self._program) for number in range(1, BROKERS + 1)
        }
        self._numbers = {node.name: number for number, node in self.nodes.items()}
        self._failed: set[str] = set()
        self._plan = plan
        self._committed: dict[int, int] = {}
        self._leaders: dict[tuple[int, int], str] = {}
        self._looked_s = 0.0
        self._over = False
        self._begun_s = self.simulation.loop.time()
        self._faults = 0
        self.simulation.invariant(self._look)

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
        service = node.service = Node(settings, runtime, hostile)
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
            number = dice.between(0, self.shape.partitions - 1)
            try:
                if dice.chance(0.5):
                    await client.elect_preferred(number)
                else:
                    await client.move(number, dice.sample(sorted(self.nodes), dice.pick((1, 2, 3, 3))))
            except Gone:
                continue

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        self.simulation.run(self._scenario, limit_s=self.shape.seconds + 4 * HEAL_S)
        report = check(self.history.operations)
        if not report.is_valid:
            raise Broken(report.describe())
        acked = sum(
            len(operation.sends())
            for operation in self.history.operations
            if operation.outcome.value == "ok" and operation.action in ("send", "txn")
        )
        return Result(
            self.simulation.seed,
            self.simulation.loop.time() - self._begun_s,
            self._faults,
            acked,
            sum(self._committed.values()),
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
            return ClusterClient(addresses, TOPIC, self.dice.fork(f"client/{name}"))

        await self._brokers_live()
        configs = {"min.insync.replicas": str(shape.min_isr), "retention.ms": "-1"}
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
        if shape.transactions:
            clients.append(
                TransactionalProducer(
                    client("t50"), self.history, self.dice.fork("t50"), 50, shape.partitions, TOPIC
                )
            )
        async with asyncio.TaskGroup() as tasks:
            for sender in clients:
                tasks.create_task(sender.run(enough.is_set, shape.pause_s))
            for consumer in consumers:
                tasks.create_task(consumer.run(enough.is_set))
            if shape.moves:
                tasks.create_task(self._move(client("mover"), enough))
            trouble = tasks.create_task(self._trouble())
            nemesis = Nemesis(simulation)
            await nemesis.carry_out(plan)
            await trouble
            self._heal(nemesis)
            await asyncio.sleep(5.0)
            enough.set()
        await self._recovered()
        last = Consumer(client("last"), self.history, 900, shape.partitions)
        async with asyncio.timeout(HEAL_S):
            await last.read_past(self._ends())
        self._logs_match()
        self._over = True
        await supervisor

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
        states = self._partition_states()
        if not all(self._is_live(number) for number in self.nodes) or not states:
            return False
        for number, state in states.items():
            if state.leader < 0 or len(state.isr) < len(state.replicas) or state.reassigning:
                return False
            replicas = [self._replica(self.nodes[member], number) for member in state.replicas]
            if any(replica is None for replica in replicas):
                return False
            if len({replica.log.end_offset for replica in replicas}) > 1:
                return False
        return True

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

    # -- what must hold at every step --------------------------------------------------------------------------------

    def _partition_states(self) -> dict[int, PartitionState]:
        found: dict[int, PartitionState] = {}
        item = self.store.get(keys.topic(TOPIC))
        if item is None:
            return found
        topic = decode(TopicState, item.value)
        for number in range(self.shape.partitions):
            entry = self.store.get(keys.partition(topic.topic_id, number))
            if entry is not None:
                found[number] = decode(PartitionState, entry.value)
        return found

    @staticmethod
    def _replica(node: SimNode, number: int) -> Any:
        service = node.service
        if service is None or not node.is_running or not hasattr(service, "broker"):
            return None
        return service.broker.partitions.get((TOPIC, number))

    def _look(self) -> None:
        now_s = self.simulation.loop.time()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        states = self._partition_states()
        for number, state in states.items():
            self._one_leader_per_epoch(number)
            for node in self.nodes.values():
                replica = self._replica(node, number)
                if replica is not None and replica.following._machine.offline:
                    raise Broken(f"R24: {node.name} found its log at odds with its leader's, {self._state()}")
            self._complete(number, state)
            self._waits_for_enough(number, state)
            if len(state.isr) >= min(self.shape.min_isr, len(state.replicas)) and state.elr:
                raise Broken(f"R28: ISR {state.isr} is large enough, yet ELR {state.elr}")

    def _one_leader_per_epoch(self, number: int) -> None:
        for node in self.nodes.values():
            replica = self._replica(node, number)
            if replica is not None and replica.is_leader:
                self._committed[number] = max(self._committed.get(number, 0), replica.high_watermark)
                held = self._leaders.setdefault((number, replica.leader_epoch), f"{node.name}.{node.lives}")
                if held != f"{node.name}.{node.lives}":
                    raise Broken(
                        f"R9: epoch {replica.leader_epoch} of {number} is led by {held} and {node.name}"
                    )

    def _waits_for_enough(self, number: int, state: PartitionState) -> None:
        """ReplicationQuorumSuperset: a leader waits for everybody whom the coordinator has in the ISR (R13)."""
        if state.leader < 0:
            return
        replica = self._replica(self.nodes[state.leader], number)
        if replica is None or not replica.is_leader or replica.leader_epoch != state.leader_epoch:
            return
        waits_for = replica._leader._maximal_isr()
        if not waits_for.issuperset(state.isr):
            raise Broken(
                f"R13: the leader of {number} waits for {sorted(waits_for)}, but the ISR is {state.isr}"
            )

    def _complete(self, number: int, state: PartitionState) -> None:
        """LeaderCandidateCompleteness: whoever may be elected holds everything that was ever committed."""
        committed = self._committed.get(number, 0)
        for member in (*state.isr, *state.elr):
            replica = self._replica(self.nodes[member], number)
            if replica is not None and replica.log.end_offset < committed:
                raise Broken(
                    f"partition {number}: broker {member} may lead and ends at {replica.log.end_offset}, "
                    f"but {committed} is committed; {state}"
                )

    def _logs_match(self) -> None:
        for number in range(self.shape.partitions):
            contents = {}
            for member in self._partition_states()[number].replicas:
                node = self.nodes[member]
                replica = self._replica(node, number)
                if replica is None:
                    continue
                contents[node.name] = (replica.log.end_offset, _everything(replica.log))
            if len(set(contents.values())) > 1:
                ends = {name: end for name, (end, _) in contents.items()}
                raise Broken(f"LogMatching: the logs of partition {number} differ; they end at {ends}")


def _everything(log: Any) -> bytes:
    data, offset = b"", log.start_offset
    while offset < log.end_offset:
        piece = bytes(log.read(offset, 1 << 20, log.end_offset))
        for _, header in scan(piece):
            offset = header.next_offset
        data += piece
    return data


def run(seed: int, shape: Shape | None = None) -> Result:
    return SimCluster(seed, shape or draw_shape(seed)).run()


def draw_shape(seed: int) -> Shape:
    dice = Dice(seed).fork("shape")
    return Shape(
        seconds=dice.pick((60.0, 120.0, 300.0, 600.0)),
        partitions=dice.pick((1, 1, 2, 3)),
        min_isr=dice.pick((1, 2, 2, 3)),
        producers=dice.pick((1, 1, 2)),
        transactions=dice.chance(0.6),
        pause_s=dice.pick((0.3, 1.0, 2.0, 4.0)),
        period_s=dice.pick((3.0, 6.0, 12.0, 20.0)),
        hostile=dice.chance(0.7),
        moves=dice.chance(0.3),
    )


def find(seeds: range, make: Callable[[int], SimCluster]) -> tuple[int, Exception] | None:
    """The first seed whose run breaks something, and what."""
    for seed in seeds:
        try:
            make(seed).run()
        except (AssertionError, ExceptionGroup) as problem:
            return seed, problem
    return None
