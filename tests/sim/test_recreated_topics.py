"""F1, F24 on virtual time: topics that are deleted and made again, and replicas whose removal was cut short."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from cluster_sim import TOPIC, SimCluster
from test_lease import CALM, started

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
