"""What a broker says of itself when its coordinator or its disk is in trouble: real processes, a real etcd, a real full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from raw_client import RawClient, produce_request

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, etcd_binary, free_ports
from headrace.wire.api import ApiKey

sys.path.insert(0, str(Path(__file__).parent))
from test_disk import batch, fill, mounted, need_root

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]
PATIENCE_S = 90.0


def readyz(broker: BrokerProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{broker.url}/readyz?verbose", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def headrace(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "headrace", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    if etcd_binary() is None:
        pytest.skip("there is no etcd here")
    server = EtcdServer(tmp_path / "etcd")
    yield server
    server.stop()


def test_f47_f19_a_broker_and_its_etcd(etcd: EtcdServer, tmp_path: Path) -> None:
    """It waits for an etcd that is not there yet; it says when etcd has gone silent, and clients that drop what Metadata does not
    name (metadata.recovery.strategy=none) go on where they were when it is back."""
    broker = BrokerProcess(
        tmp_path / "b1",
        environment={"HEADRACE_COORDINATOR": f"etcd://{etcd.address}/health", "HEADRACE_NODE_ID": "1"},
        start_seconds=PATIENCE_S,
    )
    broker.kafka_port, broker.http_port = free_ports(2)
    starting = threading.Thread(target=broker.start)
    starting.start()
    try:
        wait_until(lambda: "waiting until the coordinator answers" in readyz(broker)[1])
        assert readyz(broker)[0] == 503
        etcd.start()
        wait_until(lambda: readyz(broker)[0] == 200)
        starting.join(PATIENCE_S)
        _outlives_a_pause(broker, etcd)
    finally:
        starting.join(PATIENCE_S)
        broker.kill()


def _outlives_a_pause(broker: BrokerProcess, etcd: EtcdServer) -> None:
    config = {
        "bootstrap.servers": broker.bootstrap,
        "metadata.recovery.strategy": "none",
        "topic.metadata.refresh.interval.ms": 50,
        "message.timeout.ms": int(PATIENCE_S * 1000),
    }
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t")
    producer = ck.Producer(config)
    answers: list[ck.KafkaError | None] = []

    def send() -> None:
        producer.produce("t", b"x", on_delivery=lambda error, message: answers.append(error))

    send()
    producer.flush(PATIENCE_S)
    nobody, bootstrap = free_ports(1)[0], broker.bootstrap
    both = f"127.0.0.1:{nobody},{bootstrap}"
    code, out, err = headrace("cluster", "status", "-b", both)
    assert (code, out[:7]) == (0, "healthy"), f"the second address is asked too: {out}{err}"
    etcd.pause()
    try:
        wait_until(lambda: readyz(broker)[0] == 503)
        assert "coordinator" in readyz(broker)[1]
        code, out, err = headrace("cluster", "status", "-b", both)
        assert code == 1 and "coordinator: no answer" in out, out + err
    finally:
        etcd.resume()
    wait_until(lambda: readyz(broker)[0] == 200)
    send()
    producer.flush(PATIENCE_S)
    assert answers == [None, None], "the client still knows its broker"


def test_f47_a_full_disk_is_told_by_every_door(tmp_path: Path) -> None:
    need_root("mount")
    with (
        mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs") as disk,
        BrokerProcess(disk / "data") as broker,
        RawClient(broker.kafka_port) as raw,
    ):
        raw.create_topic("t")
        fill(raw, "t")
        wait_until(lambda: readyz(broker)[0] == 503)
        assert "nearly full" in readyz(broker)[1]
        code, out, err = headrace("topic", "produce", "t", "hello", "-b", broker.bootstrap)
        assert code == 1 and "nearly full" in out + err and "timed out" not in out + err, out + err
        code, out, err = headrace("cluster", "status", "-b", broker.bootstrap)
        assert code == 1 and "disk is nearly full" in out, out + err
        code, out, err = headrace("doctor", "--json", "-b", broker.bootstrap, "--url", broker.url)
        rows = {row["name"]: row for row in json.loads(out)["items"]}
        assert code == 1
        assert str(disk / "data") in rows["data directory"]["detail"], "the broker's own, not the default one"
        assert rows["disk space"]["status"] == "fail" and str(disk) in rows["disk space"]["detail"]
        assert str(os.getpid()) not in rows["lock"]["detail"] and str(broker.pid) in rows["lock"]["detail"]
        assert rows["readiness"]["status"] == "fail" and "nearly full" in rows["readiness"]["detail"]


SICK = """
import sys
from headrace.broker.flusher import Flusher
async def broken(self):
    raise KeyError("a bug in the flusher")
Flusher._gather = broken
from headrace.cli.main import main
sys.argv = ["headrace", *sys.argv[1:]]
main()
"""


def test_f16_a_broker_whose_group_commit_can_not_be_kept_alive_ends_and_says_why(tmp_path: Path) -> None:
    kafka_port, http_port = free_ports(2)
    ports = ("--kafka-port", str(kafka_port), "--http-port", str(http_port))
    command = [sys.executable, "-c", SICK, "serve", "--json", *ports, "--data-dir", str(tmp_path / "d")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it is ready: nobody has written anything yet"
        with RawClient(kafka_port) as raw:
            raw.create_topic("t")
            raw.send(ApiKey.PRODUCE, 9, produce_request("t", batch(10), acks=-1))
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, errors
    assert "group commit failed 8 times in a row" in errors and "KeyError" in errors
    assert "the broker ended" in errors
