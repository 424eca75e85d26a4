"""S26: a replica that can't be read serves nothing, and stops leading."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator

import pytest
from broker_world import World

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.log.results import LogCorrupt


@pytest.fixture
async def world() -> AsyncIterator[World]:
    started = await World().start()
    yield started
    await started.stop()


@pytest.mark.parametrize(
    "problem", [OSError(errno.EIO, "Input/output error"), LogCorrupt("0.log", 0, 0, "a bad CRC")]
)
async def test_s26_never_a_part_of_it(
    world: World, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = world.node.broker.partitions["fuzz-plain", 0]
    assert partition.is_leader

    def unreadable(*_: object) -> bytes:
        raise problem

    monkeypatch.setattr(type(partition.log), "read", unreadable)
    answer = partition.read(0, 1000, 0)
    assert isinstance(answer, Rejected) and answer.kind is ErrorKind.KAFKA_STORAGE_ERROR
    assert partition.failed and not partition.is_leader
    assert partition.refusal(-1) is ErrorKind.KAFKA_STORAGE_ERROR
