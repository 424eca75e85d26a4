"""Groups whose coordinator loads in the worst of moments, through the door: frames in, frames out, on three whole brokers.

Each story is told twice: as shipped, and with its cure switched off, when it must end badly.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_client import Gone, OffsetKeeper
from cluster_invariants import Place
from cluster_sim import PORT, TOPIC, SimCluster
from test_configs_at_work import TOPICS, alter
from test_lease import CALM, soon, started
from test_loads import leader_of, until
from transformer import Transformer

from headrace.broker.load import LOAD_CHUNK_BYTES, Load, ShardState
from headrace.broker.replay import JournalReplay
from headrace.broker.shards import Shard
from headrace.cluster.state import PartitionState
from headrace.core.errors import HeadraceError
from headrace.testing import virtual_loop
from headrace.testing.sim_disk import DiskFault
from headrace.testing.simulation import Simulation
from headrace.wire.api import ApiKey
from headrace.wire.messages.end_txn import EndTxnRequest

OFFSETS = Place("__consumer_offsets", 0)
log = logging.getLogger(__name__)

# -- F5: a commit marker and the end of a load come together ---------------------------------------------------------------

DELAYS_MS = [delay / 4 for delay in range(1, 25)]
"""From the marker's append on; somewhere in there it is committed."""


async def _ready_a_turn_after_the_last_read(self: Load) -> None:
    """As it was: between the last read and being ready others have a turn."""
    partition = self._partition
    await partition.wait_leader_ready()
    await self.shard.settle()
    end = partition.log.end_offset
    await self._wait_committed(end)
    replay, position = JournalReplay(self.machine), partition.log.start_offset
    while position < end and (data := partition.read_all(position, LOAD_CHUNK_BYTES)) and not self.ended:
        position = replay.read(data, self._runtime.clock.now_ms())
        await asyncio.sleep(0)
    if not self.ended:
        self._gate_offset = position
        self.state = ShardState.READY
        now_ms = self._runtime.clock.now_ms()
        self._execute(self.machine.loaded(now_ms), now_ms)


def offset_after_a_failover(delay_ms: float, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """What a group is told, whose offset was committed in a transaction that ended while its new coordinator loaded; None
    when it is told for half a minute that the offset is not decided.

    The load waits until the marker is written here, and `delay_ms` more; then it reads, and what arrives next arrives before
    the loop goes round, as with uvloop."""
    cluster = SimCluster(6, replace(CALM, io_first=True))
    monkeypatch.setattr(virtual_loop, "IO_FIRST_ODDS", 0.0)
    wait_committed = Load._wait_committed
    reads: list[int] = []
    killed = -1

    async def slow(self: Load, end: int) -> None:
        await wait_committed(self, end)
        if self._partition.tp == OFFSETS:
            reads.append(end)
        if killed > 0 and self._partition.tp == OFFSETS:
            await until(lambda: self._partition.log.end_offset > end)
            await asyncio.sleep(delay_ms / 1000)
            monkeypatch.setattr(virtual_loop, "IO_FIRST_ODDS", 1.0)
            asyncio.get_running_loop().call_later(
                0.05, monkeypatch.setattr, virtual_loop, "IO_FIRST_ODDS", 0.0
            )

    monkeypatch.setattr(Load, "_wait_committed", slow)

    async def scenario(simulation: Simulation) -> int | None:
        nonlocal killed
        client = await started(cluster)
        producer = Transformer(client, cluster.history, cluster.dice.fork("x"), 80, 1, TOPIC)
        await producer._begin()
        await producer._send_offset(1, soon())
        reads.clear()
        killed = leader_of(cluster, OFFSETS)
        cluster.nodes[killed].kill()
        await until(lambda: bool(reads))
        ended = EndTxnRequest(producer._id, *producer._producer, True)
        await producer._ask(ApiKey.END_TXN, 1, ended, lambda got: int(got.error_code), soon())
        producer._known = (1,)
        try:
            return await producer._position(soon())
        except Gone:
            return None

    return cluster.simulation.run(scenario, limit_s=600.0)


@pytest.mark.parametrize("delay_ms", DELAYS_MS)
def test_f5_a_marker_that_comes_while_the_group_finishes_loading_decides_its_offsets(
    delay_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offset_after_a_failover(delay_ms, monkeypatch) == 1


def test_f5_without_the_cure_the_offset_stays_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Load, "load", _ready_a_turn_after_the_last_read)
    for delay_ms in DELAYS_MS:
        with monkeypatch.context() as patches:
            if offset_after_a_failover(delay_ms, patches) is None:
                return
    pytest.fail("no marker fell between the last read and the end of a load")


# -- F18: the in-sync replicas go and come back while a group's coordinator loads ------------------------------------------


async def _one_try(self: Shard, load: Load, pause_s: float) -> None:
    """As it was: a load that failed was not begun again."""
    try:
        await load.load()
        self._ready(load)
    except HeadraceError as problem:
        log.info("%s: not loaded: %s", self.partition.tp, problem.detail)


def states_around_a_flap(monkeypatch: pytest.MonkeyPatch) -> tuple[PartitionState, PartitionState]:
    """The group's partition before and after: a commit is under way to followers that are gone, the next finds no space, so
    the coordinator loads again; then its ISR is found too small, and at last the followers come back."""
    cluster = SimCluster(3, CALM)
    failed: list[str] = []
    load_journal = Load.load

    async def watched(self: Load) -> None:
        try:
            await load_journal(self)
        except HeadraceError as problem:
            failed.append(problem.detail)
            raise

    monkeypatch.setattr(Load, "load", watched)

    async def scenario(simulation: Simulation) -> tuple[PartitionState, PartitionState]:
        client = await started(cluster)
        keeper = OffsetKeeper(client, cluster.dice.fork("g"), 1, TOPIC)
        await keeper._commit(0)
        await alter(client, TOPICS, OFFSETS.topic, **{"min.insync.replicas": "2"})
        cluster.invariants._min_isr[cluster.invariants._ids[OFFSETS.topic]] = 2
        before = cluster.invariants.states()[OFFSETS]
        leader = cluster.nodes[before.leader]
        others = [node for number, node in cluster.nodes.items() if number != before.leader]
        journal = leader.service.broker.partitions[OFFSETS]
        shard = leader.service.services.groups.shards[0]
        client._addresses = [(leader.address, PORT)]
        for node in others:
            node.pause()
        end = journal.log.end_offset
        asked = asyncio.ensure_future(keeper._commit(0))
        await until(lambda: journal.log.end_offset > end)
        leader.disk.arm(DiskFault.APPEND_ERROR, "/data/topics/__consumer_offsets@", error=errno.ENOSPC)
        other = OffsetKeeper(client, cluster.dice.fork("h"), 1, TOPIC)
        other._next = 1_000
        also = asyncio.ensure_future(other._commit(0))
        await until(lambda: shard.state is ShardState.LOADING and not leader.disk._armed)
        await until(lambda: journal.isr == (before.leader,) and bool(failed))
        for node in others:
            node.resume()
        for task in (asked, also):
            await task
        keeper._next = other._next
        await keeper._look(0)
        return before, cluster.invariants.states()[OFFSETS]

    return cluster.simulation.run(scenario, limit_s=90.0)


def test_f18_a_group_answers_again_when_the_replicas_are_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = states_around_a_flap(monkeypatch)
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
    assert len(after.isr) >= 2


def test_f18_without_the_cure_it_loads_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shard, "_load", _one_try)
    with pytest.raises(Gone):
        states_around_a_flap(monkeypatch)
