"""K4: kill -9 and SIGTERM in mid-load, over and over: every acknowledged record is there once and in order.

`make torture-single KILLS=200` runs the same for longer. Last run: 200 kills at b51fc41 in 504 s beside other work, everything
acknowledged there once and in order.
"""

from __future__ import annotations

import os
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from raw_client import RawClient

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))
from crash_load import Load, check

pytestmark = [pytest.mark.client, pytest.mark.timeout(int(os.environ.get("HEADRACE_KILLS", "12")) * 20 + 120)]

KILLS = int(os.environ.get("HEADRACE_KILLS", "12"))
PARTITIONS = 3


def test_kill_9_in_mid_load(fresh_broker: Callable[..., BrokerProcess]) -> None:
    dice = random.Random(int(os.environ.get("HEADRACE_SEED", "7")))
    # Small segments: kills also land on rolls.
    broker = fresh_broker(environment={"HEADRACE_SEGMENT_BYTES": "200000"}, start_seconds=120.0)
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t", PARTITIONS)
    loads = [Load(broker.bootstrap, "t", PARTITIONS, name=name) for name in ("p1", "p2")]
    for load in loads:
        load.start()
    for _ in range(KILLS):
        for load in loads:
            load.wait_for_more(dice.randrange(1, 600))
        broker.kill()
        broker.start()
    check(broker, "t", PARTITIONS, [load.finish() for load in loads])


def test_sigterm_in_mid_load(fresh_broker: Callable[..., BrokerProcess]) -> None:
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t", PARTITIONS)
    load = Load(broker.bootstrap, "t", PARTITIONS)
    load.start()
    for _ in range(3):
        load.wait_for_more(200)
        assert broker.stop() == 0
        assert (broker.data_dir / "clean-shutdown").exists()
        broker.start()
        assert not (broker.data_dir / "clean-shutdown").exists(), "R33: the marker is taken away at start"
    check(broker, "t", PARTITIONS, [load.finish()])


def test_a_torn_tail_is_cut_and_logged(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """K4, S3: what a crash left half-written after the last whole batch goes, with a line in the log."""
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t", 1)
    load = Load(broker.bootstrap, "t", 1)
    load.start()
    load.wait_for_more(300)
    promises = load.finish()
    broker.kill()
    (directory,) = broker.data_dir.glob("topics/t@*/0")
    last = max(directory.glob("*.log"))
    whole = last.stat().st_size
    with last.open("ab") as file:
        # The beginning of a batch that goes on where the log ends: header and a part of its body.
        file.write(last.read_bytes()[:100])
    broker.start()
    assert last.stat().st_size == whole
    assert "torn" in broker.log() or "cut" in broker.log(), broker.log()
    check(broker, "t", 1, [promises])


def test_damage_in_the_middle_is_not_a_torn_tail(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """S4: a flipped byte before the end takes the partition offline; nothing is cut, the others serve."""
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t", 1)
        raw.create_topic("fine", 1)
    load = Load(broker.bootstrap, "t", 1)
    load.start()
    load.wait_for_more(300)
    load.finish()
    broker.kill()
    (directory,) = broker.data_dir.glob("topics/t@*/0")
    last = max(directory.glob("*.log"))
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    broker.start()
    with RawClient(broker.kafka_port) as raw:
        assert raw.fetch("t", 0).error_code != 0
        assert raw.fetch("fine", 0).error_code == 0
    assert last.read_bytes() == content, "nothing was cut"


def test_ready_and_healthy_only_when_serving(fresh_broker: Callable[..., BrokerProcess]) -> None:
    broker = fresh_broker()
    with urllib.request.urlopen(f"{broker.url}/readyz") as answer:
        assert answer.status == 200
    broker.kill()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{broker.url}/readyz")
    broker.start()
    with urllib.request.urlopen(f"{broker.url}/livez") as answer:
        assert answer.status == 200
