"""Mutated frames over every API and version served: a clean error or a closed connection, never an unhandled exception
or a stall (X10, X16). `make fuzz FRAMES=1000000` runs for long."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import struct
import sys
import time
from pathlib import Path

import pytest
from broker_world import Complaints, World
from raw_client import RawClient

from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))
from frames import Frames

FRAMES = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "20000"))
SEED = int(os.environ.get("HEADRACE_FUZZ_SEED", "1"))
PER_WORLD = 50_000
STALL_S = 3.0

pytestmark = pytest.mark.timeout(120 + FRAMES // 500)


async def rounds(frames: Frames, count: int) -> list[str]:
    """What went wrong while `count` frames were handled by a fresh broker."""
    world = await World().start()
    frames.topic_ids = [topic.id for topic in world.node.broker.image.topics.values()] + [
        bytes(16),
        b"\x01" * 16,
    ]
    problems: list[str] = []
    with Complaints() as complaints:
        for number in range(count):
            frame = frames.next()
            started = time.thread_time()  # of this thread, where the loop is: a busy machine is not our doing
            world.feed(struct.pack(">i", len(frame)) + frame)
            if number % 8 == 0:
                await asyncio.sleep(0)
            took_s = time.thread_time() - started
            if took_s > STALL_S:
                problems.append(f"the loop stood still for {took_s:.1f} s on {frame.hex()}")
            if complaints.found:
                problems.append(f"{complaints.found[:3]}\non or before {frame.hex()}")
                break
            if number % 5000 == 0:
                assert await world.is_healthy()
        assert await world.is_healthy()
        problems += complaints.found
    if world.executed < count // 3:
        problems.append(f"only {world.executed} of {count} frames got anywhere")
    await world.stop()
    return problems


def test_frames_in_process() -> None:
    frames = Frames(SEED)
    left = FRAMES
    while left > 0:
        problems = asyncio.run(rounds(frames, min(left, PER_WORLD)))
        assert not problems, "\n".join(problems)
        left -= PER_WORLD
        if FRAMES > PER_WORLD:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(f"{FRAMES - max(left, 0)} frames, {peak} MB at most", flush=True)


@pytest.mark.client
def test_frames_over_sockets() -> None:
    """The same against a real process, with a healthy client beside it all the time."""
    frames = Frames(SEED + 1)
    dice = random.Random(SEED)
    with BrokerProcess() as broker, RawClient(broker.kafka_port) as healthy:
        for topic, configs in (
            ("fuzz-plain", {}),
            ("fuzz-compact", {"cleanup_policy": "compact"}),
            ("fuzz-zstd", {"compression_type": "zstd"}),
        ):
            healthy.create_topic(topic, 1, **configs)
        # A name that no frame has: a mutated DeleteTopics may be a valid one, and then it is obeyed.
        healthy.create_topic("untouched")
        hostile: list[RawClient] = []
        for number in range(max(1000, FRAMES // 20)):
            if number % 20 == 0:
                for client in hostile:
                    client.close()
                hostile = [RawClient(broker.kafka_port) for _ in range(4)]
            frame = frames.next()
            data = struct.pack(">i", len(frame)) + frame
            at = dice.randrange(len(data))
            client = dice.choice(hostile)
            try:
                client.socket.sendall(data[:at])
                client.socket.sendall(data[at:])
            except OSError:
                pass  # The broker has closed it: that is an answer.
            if number % 50 == 0:
                batch = build_batch([Record(b"k", b"v")], wall_ms=int(time.time() * 1000))
                assert healthy.produce("untouched", batch, acks=-1).error_code == 0
        for client in hostile:
            client.close()
        log = broker.log()
        assert "Traceback" not in log and " ERROR " not in log and " CRITICAL " not in log, log
