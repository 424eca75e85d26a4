"""Disks that misbehave under a real broker: full (S15), failing syncs (S7), power loss (S5, S9). Need root on Linux."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from raw_client import RawClient

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.messages.delete_topics import DeleteTopicsRequest

sys.path.insert(0, str(Path(__file__).parent))
from crash_load import Load, check

pytestmark = [pytest.mark.client, pytest.mark.timeout(180)]

SHUTDOWN = 0x8004587D
"""ext4 and xfs: _IOR('X', 125, __u32). Every I/O fails from now on, as at a power cut."""
NO_LOG_FLUSH = 2
CUTS = int(os.environ.get("HEADRACE_POWER_CUTS", "5"))


def run(*command: str | os.PathLike[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def need_root(*programs: str) -> None:
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        pytest.skip("mounting needs root on Linux")
    for program in programs:
        if shutil.which(program, path=f"{os.environ['PATH']}:/sbin:/usr/sbin") is None:
            pytest.skip(f"there is no {program} here")


@contextlib.contextmanager
def mounted(where: Path, *command: str) -> Iterator[Path]:
    where.mkdir()
    try:
        run("mount", *command, where)
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"mount is not allowed here: {problem.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", where], check=False, capture_output=True)


def batch(size: int) -> bytearray:
    return bytearray(build_batch([Record(b"k", os.urandom(size))], wall_ms=int(time.time() * 1000)))


def delete_topic(raw: RawClient, name: str) -> None:
    response = raw.call(ApiKey.DELETE_TOPICS, 4, DeleteTopicsRequest(topic_names=[name]))
    assert response.responses[0].error_code == 0


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def fill(raw: RawClient, topic: str) -> int:
    """Produce until the disk is full; how many batches were taken."""
    for number in range(1000):
        row = raw.produce(topic, batch(100_000), acks=-1)
        if row.error_code != 0:
            assert row.error_code == ErrorKind.KAFKA_STORAGE_ERROR, row
            return number
    raise AssertionError("the disk never became full")


def test_a_full_disk_refuses_writes_and_recovers_without_a_restart(tmp_path: Path) -> None:
    """S15: KAFKA_STORAGE_ERROR; reads and deletes go on; after a delete, or when the disk grows, writes are taken again."""
    need_root("mount")
    with (
        mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=12m", "tmpfs") as disk,
        BrokerProcess(disk / "data", environment={"HEADRACE_RETENTION_CHECK_INTERVAL_MS": "500"}) as broker,
        RawClient(broker.kafka_port) as raw,
    ):
        raw.create_topic("large", file_delete_delay_ms="0")
        raw.create_topic("small")
        taken = fill(raw, "large")
        assert taken > 20
        row = raw.fetch("large", 0, max_bytes=200_000)
        assert row.error_code == 0 and row.high_watermark == taken and len(row.records) > 100_000, (
            "reads go on"
        )
        delete_topic(raw, "large")
        wait_for(lambda: raw.produce("small", batch(100_000), acks=-1).error_code == 0)
        taken = 1 + fill(raw, "small")
        run("mount", "-o", "remount,size=40m", disk)
        wait_for(lambda: raw.produce("small", batch(100_000), acks=-1).error_code == 0)
        assert raw.fetch("small", 0).high_watermark == taken + 1
        broker.kill()
        broker.start()
        with RawClient(broker.kafka_port) as again:
            assert again.fetch("small", 0).high_watermark == taken + 1, (
                "nothing acknowledged was lost on the way"
            )


def test_without_inodes_the_topics_that_exist_go_on(tmp_path: Path) -> None:
    """S16: no more files is a full disk, too. A topic that finds no place is refused or offline, and nothing else is."""
    need_root("mount")
    with (
        mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=200m,nr_inodes=120", "tmpfs") as disk,
        BrokerProcess(disk / "data") as broker,
        RawClient(broker.kafka_port) as raw,
    ):
        raw.create_topic("first")
        assert raw.produce("first", batch(100), acks=-1).error_code == 0
        codes: list[int] = []
        for number in range(60):
            topic = CreatableTopic(f"more-{number}", 1, 1)
            answer = raw.call(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest([topic], timeout_ms=1000))
            codes.append(
                answer.topics[0].error_code or raw.produce(topic.name, batch(100), acks=-1).error_code
            )
            if codes[-1]:
                break
        assert codes[-1] == ErrorKind.KAFKA_STORAGE_ERROR, codes
        assert raw.produce("first", batch(100), acks=-1).error_code == 0
        assert raw.fetch("first", 0).high_watermark == 2
        with urllib.request.urlopen(f"{broker.url}/livez") as alive:
            assert alive.status == 200
        run("mount", "-o", "remount,nr_inodes=10000", disk)
        wait_for(lambda: raw.produce("first", batch(100), acks=-1).error_code == 0)
        raw.create_topic("later")
        assert raw.produce("later", batch(100), acks=-1).error_code == 0


def is_traced(pid: int) -> bool:
    """Every thread of it: the one that syncs must not be the one that was missed."""
    tasks = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return all("TracerPid:\t0\n" not in status for status in tasks)


@contextlib.contextmanager
def terminating(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()


def test_a_failed_sync_is_final(fresh_broker: Callable[..., BrokerProcess]) -> None:
    """S7: no more acknowledgements, /readyz says 503, and a restart scans and serves what was acknowledged."""
    need_root("strace")
    broker = fresh_broker()
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t")
        for _ in range(5):
            assert raw.produce("t", batch(100), acks=-1).error_code == 0
        command = ["strace", "-qq", "-o", "/dev/null", "-f", "-p", str(broker.pid), "-e", "trace=fdatasync",
                   "-e", "inject=fdatasync:error=EIO:when=1"]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer, terminating(tracer):
            wait_for(lambda: tracer.poll() is not None or is_traced(broker.pid))
            if tracer.poll() is not None:
                pytest.skip("strace may not attach here")
            row = raw.produce("t", batch(100), acks=-1)
            assert row.error_code != 0, "what was not synced is not acknowledged"
            assert raw.produce("t", batch(100), acks=-1).error_code == ErrorKind.KAFKA_STORAGE_ERROR
            assert raw.produce("t", batch(100), acks=1).error_code == ErrorKind.KAFKA_STORAGE_ERROR
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{broker.url}/readyz")
        assert refused.value.code == 503
        assert raw.produce("t", batch(100), acks=-1).error_code == ErrorKind.KAFKA_STORAGE_ERROR, (
            "never tried again"
        )
    broker.kill()
    broker.start()
    with RawClient(broker.kafka_port) as raw:
        assert raw.fetch("t", 0).high_watermark >= 5
        assert raw.produce("t", batch(100), acks=-1).error_code == 0


@contextlib.contextmanager
def loop_device(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A real ext4 on a file."""
    need_root("losetup", "mkfs.ext4", "mount")
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    try:
        device = run("losetup", "-f", "--show", image)
    except subprocess.CalledProcessError as problem:
        pytest.skip(f"no loop device: {problem.stderr.strip()}")
    try:
        run("mkfs.ext4", "-q", device)
        with mounted(tmp_path / "disk", device) as disk:
            yield device, disk
    finally:
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def cut_power(disk: Path) -> None:
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
    except OSError as problem:
        pytest.skip(f"this file system can't be shut down: {problem}")
    finally:
        os.close(descriptor)


def test_power_loss_on_a_real_file_system(tmp_path: Path) -> None:
    """S5, S9: the kernel forgets what was not synced; nothing acknowledged is missing with the default flush."""
    dice = random.Random(3)
    with loop_device(tmp_path) as (device, disk):
        # Small segments, so that new files and directories are cut off too.
        broker = BrokerProcess(disk / "data", environment={"HEADRACE_SEGMENT_BYTES": "100000"}).start()
        try:
            with RawClient(broker.kafka_port) as raw:
                raw.create_topic("t", 2)
            load = Load(broker.bootstrap, "t", 2)
            load.start()
            for _ in range(CUTS):
                load.wait_for_more(dice.randrange(1, 500))
                # Power goes from everything at once: a broker that lives on could acknowledge a sync which ext4 calls
                # a success although the shutdown overtook it.
                broker.signal(signal.SIGSTOP)
                cut_power(disk)
                broker.kill()
                wait_for(
                    lambda: subprocess.run(["umount", disk], check=False, capture_output=True).returncode == 0
                )
                run("mount", device, disk)
                broker.start()
            check(broker, "t", 2, [load.finish()])
        finally:
            broker.__exit__(None, None, None)
