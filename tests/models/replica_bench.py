"""One replica with its real log, flusher and leader machine on a simulated disk, for tests of what drives them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.fetch import FetchReader, FetchTarget, Got, LocalFetch, ParkedFetch, fetch
from headrace.broker.fetch_sessions import SessionPartition
from headrace.broker.flusher import Flusher
from headrace.broker.partition import Partition
from headrace.cluster.configs import TopicConfig
from headrace.core.ids import ZERO_UUID, TopicPartition
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.records.batch import read_header, stamp
from headrace.records.build import Record, build_batch
from headrace.replication.events import LeaderEffect
from headrace.replication.leader import Leader, Leadership
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

EPOCH = 7
TOPIC_ID = b"t" * 16


class Bench:
    def __init__(self, node: SimNode, runtime: SimRuntime, **config: Any) -> None:
        self.disk = node.disk
        self.lease_held = True
        self.delegated: list[LeaderEffect] = []
        """What the partition leaves to the broker."""
        self.runtime = runtime
        self.flusher = Flusher(runtime, lambda problem: None)
        self.log, _ = PartitionLog.open(
            runtime.fs, "/p/0", LogConfig(segment_bytes=4096), topic_id=TOPIC_ID, wall_ms=1
        )
        self.partition = Partition(
            TopicPartition("t", 0), TOPIC_ID, self.log, TopicConfig(**config), runtime.fs, runtime, self.flusher,
            lambda partition, effect: self.delegated.append(effect), lambda: self.lease_held,
        )  # fmt: skip
        self.failures: list[Partition] = []
        self.partition.on_failed = self.failures.append
        runtime.supervise("group commit", self.flusher.run)

    def lead(self, replicas: tuple[int, ...] = (1,), min_isr: int = 1) -> Bench:
        self.log.start_epoch(EPOCH)
        leadership = Leadership(
            broker_id=1,
            leader_epoch=EPOCH,
            revision=1,
            replicas=replicas,
            isr=replicas,
            elr=(),
            min_isr=min_isr,
        )
        leader = Leader(
            leadership, self.log.epochs, end_offset=self.log.end_offset, durable_end=self.log.durable_end,
            high_watermark=self.log.durable_end, now_ms=self.runtime.clock.now_ms(),
        )  # fmt: skip
        self.partition.become_leader(leader)
        return self

    def append(self, size: int = 10) -> Any:
        batch = memoryview(bytearray(build_batch([Record(None, b"x" * size)], wall_ms=1)))
        return self.partition.append(batch, read_header(batch), urgent=True)

    def poll(
        self, answers: list[list[Got]], *, offset: int = 0, wait_ms: int = 60_000, replica: int = -1
    ) -> ParkedFetch | None:
        wanted = SessionPartition("t", ZERO_UUID, 0)
        wanted.fetch_offset, wanted.max_bytes = offset, 1 << 20
        target = FetchTarget(wanted, self.partition)
        return fetch(LocalFetch([target], 1, 1 << 20, wait_ms, FetchReader(replica)), answers.append)


def sent(offset: int, *, size: int = 10, epoch: int = EPOCH) -> memoryview:
    """A batch of one record as a leader sends it."""
    batch = bytearray(build_batch([Record(None, b"x" * size)], wall_ms=1))
    stamp(batch, 0, offset, epoch)
    return memoryview(batch)


def on_a_machine(scenario: Callable[[Bench], Coroutine[Any, Any, None]], **config: Any) -> None:
    simulation = Simulation(1)

    async def run(simulation: Simulation) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def program(node: SimNode, runtime: SimRuntime) -> None:
            try:
                await scenario(Bench(node, runtime, **config))
            except BaseException as problem:
                done.set_exception(problem)
            else:
                done.set_result(None)
            await asyncio.get_running_loop().create_future()

        simulation.node("m", program).start()
        await done

    simulation.run(run, limit_s=600.0)
