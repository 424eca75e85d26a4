"""S12, S20: what becomes of directories at start and when a replica is no longer ours: nothing that may be wanted is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from headrace.broker.log_directories import directory_name
from headrace.broker.replicas import Replicas
from headrace.cluster.deltas import TopicGone
from headrace.log.memory_fs import MemoryFileSystem

HOME, LOGS = "/data", "/data/logs"
OURS, GONE, STRANGE = b"o" * 16, b"g" * 16, b"s" * 16


class Disk:
    def __init__(self, *, restored: object = None) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_dirs(LOGS)

        async def run_blocking(work: Callable[[], object]) -> object:
            return work()

        runtime: Any = SimpleNamespace(
            fs=self.fs, random_bytes=lambda count: b"r" * count, run_blocking=run_blocking,
            clock=SimpleNamespace(wall_ms=lambda: 1_234, now_ms=lambda: 0),
        )  # fmt: skip
        image = SimpleNamespace(
            broker_id=1, topics={"ours": SimpleNamespace(name="ours", id=OURS)}, was_deleted=lambda found: found == GONE.hex()
        )  # fmt: skip
        metadata: Any = SimpleNamespace(image=image, coordinator=None, restored=restored)
        nobody: Any = None
        self.replicas = Replicas(runtime, metadata, nobody, LOGS, nobody, lambda: True)

    def put(self, path: str) -> str:
        self.fs.make_dirs(f"{LOGS}/{path}")
        self.fs.write_file(f"{LOGS}/{path}/00.log", b"x")
        return path

    def __contains__(self, path: str) -> bool:
        return self.fs.exists(f"{LOGS}/{path}")


def test_s12_what_no_topic_claims_is_put_aside_with_all_that_is_in_it() -> None:
    disk = Disk()
    ours, strange = disk.put(f"{directory_name('ours', OURS)}/0"), directory_name("odd", STRANGE)
    disk.put(f"{strange}/3")
    disk.put("lost+found")
    assert disk.replicas.quarantine_unknown() == [strange]
    assert ours in disk and "lost+found" in disk, "what is ours, and what is nobody's business"
    assert strange not in disk
    assert disk.fs.read_file(f"{HOME}/quarantine/{strange}/3/00.log") == b"x"
    assert disk.replicas.quarantine_unknown() == []


def test_s20_deletions_are_finished_those_that_were_begun_and_those_that_were_missed() -> None:
    disk = Disk()
    ours = directory_name("ours", OURS)
    kept = [disk.put(f"{ours}/{name}") for name in ("0", "1", "odd.deleted")]
    begun = [disk.put(f"{ours}/2.deleted"), disk.put(f"{directory_name('odd', STRANGE)}.deleted")]
    missed = directory_name("gone", GONE)
    disk.put(f"{missed}/0")
    assert disk.replicas.quarantine_unknown() == []
    assert all(path in disk for path in kept)
    assert not any(path in disk for path in [*begun, missed, f"{missed}.deleted"])
    assert not disk.fs.exists(f"{HOME}/quarantine")


def delete(disk: Disk, name: str, topic_id: bytes) -> None:
    deleted = TopicGone(name, topic_id, 1)
    asyncio.run(disk.replicas._delete_topic(deleted))


def test_s20_what_an_earlier_removal_left_is_not_in_the_way_of_the_next() -> None:
    disk = Disk()
    gone = directory_name("gone", GONE)
    disk.put(f"{gone}/0")
    disk.put(f"{gone}.deleted/0")
    delete(disk, "gone", GONE)
    assert gone not in disk and f"{gone}.deleted" not in disk
    delete(disk, "gone", GONE)


def test_f10_what_a_restored_coordinator_does_not_know_is_put_aside() -> None:
    disk = Disk(restored=object())
    gone = directory_name("gone", GONE)
    disk.put(f"{gone}/0")
    delete(disk, "gone", GONE)
    assert gone not in disk
    assert disk.fs.read_file(f"{HOME}/quarantine/{gone}-1234/0/00.log") == b"x"
