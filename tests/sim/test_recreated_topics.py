"""F1, F24 on virtual time: topics that are deleted and made again, and replicas whose removal was cut short."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_sim import TOPIC, Shape, SimCluster, find
from queue_sim import QueueCluster, QueueShape
from test_lease import CALM, started

from headrace.broker.groups import Groups
from headrace.testing.simulation import Simulation

TOPICS = "/data/topics"


def home(cluster: SimCluster) -> str:
    state = json.loads(cluster.store.get(f"topics/{TOPIC}").value)  # type: ignore[union-attr]
    return f"{TOPICS}/{TOPIC}@{state['id']}"


def leave_behind(node: Any, directory: str) -> None:
    """What a removal leaves that was cut short between the rename and the last unlink."""
    fs = node.service.broker.runtime.fs
    fs.make_dirs(directory)
    fs.write_file(f"{directory}/00000000000000000000.log", b"left over")


async def until(condition: Any) -> None:
    async with asyncio.timeout(120.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


def test_f24_what_a_removal_left_is_not_in_the_way_of_the_next() -> None:
    cluster = SimCluster(1, CALM)

    async def scenario(simulation: Simulation) -> None:
        client = await started(cluster)
        leader = cluster._partition_states()[0].leader
        kept, leaving = (number for number in cluster.nodes if number != leader)
        directory, node = f"{home(cluster)}/0", cluster.nodes[leaving]
        leave_behind(node, f"{directory}.deleted")
        await client.move(TOPIC, 0, [leader, kept])
        await until(lambda: not node.disk.find(directory))
        assert node.disk.find(f"{directory}.deleted") is None
        # And what is left when nobody removes that replica again goes at the next start.
        leave_behind(cluster.nodes[kept], f"{directory}.deleted")
        leave_behind(cluster.nodes[kept], f"{TOPICS}/gone@{'0' * 31}1.deleted/0")
        cluster.nodes[kept].kill()
        cluster.nodes[kept].start()
        await cluster._recovered()
        found = cluster.nodes[kept].disk
        assert found.find(f"{directory}.deleted") is None and found.find(directory) is not None
        assert found.find(f"{TOPICS}/gone@{'0' * 31}1.deleted") is None

    cluster.simulation.run(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_f1_offsets_stay_in_their_life_of_a_topic(seed: int) -> None:
    """F78: deleted and made again in a storm: no offset of an earlier life, none of this one lost, nothing left on a disk."""
    cluster = SimCluster(
        seed, Shape(seconds=40.0, pause_s=0.3, period_s=4.0, recreates=True, transactional_ids=0)
    )
    cluster.run()
    assert cluster.lives > 2


@pytest.mark.parametrize("compares", [True, False])
def test_f1_it_is_the_id_that_tells(compares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any word of deletions no offset is inherited; without the comparison they are, and a run notices."""
    monkeypatch.setattr(Groups, "topic_deleted", lambda self, topic, topic_id: None)
    monkeypatch.setattr(Groups, "_catch_up", lambda self, load: None)
    shape = Shape(seconds=40.0, pause_s=0.3, period_s=4.0, recreates=True, transactional_ids=0)
    if compares:
        assert SimCluster(3, shape).run()
    else:
        monkeypatch.setattr(Groups, "_may_be_for", lambda self, topic, topic_id: True)
        assert find(range(3, 9), lambda seed: SimCluster(seed, shape)) is not None


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_f1_a_queue_made_again_holds_what_was_sent_to_it(fifo: bool) -> None:
    """F78: in a storm, with the same deduplication ids each time: nothing of an earlier life, nothing of this one lost."""
    shape = QueueShape(
        seconds=40.0,
        partitions=1,
        pause_s=0.3,
        period_s=4.0,
        fifo=fifo,
        recreates=True,
        workers=1,
        producers=1,
    )
    cluster = QueueCluster(5, shape)
    cluster.run()
    assert cluster.lives > 2
