"""R5 and etcd rule 4: the outcome of a transaction is found out, whatever the network did with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import (
    Compare,
    CoordinatorUnavailable,
    KeyValue,
    LeaseNotFound,
    Operation,
    OutcomeUnknown,
    Put,
    TxnResult,
)
from headrace.coordinator.resolve import ResolvingWriter


class FixedClock:
    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class Unreliable:
    """Plays a script: what happens to each call; after its end everything works."""

    def __init__(self, script: Sequence[str]) -> None:
        self.inner = MemoryCoordinator(FixedClock())
        self.script = list(script)
        self.on_the_way: list[Callable[[], object]] = []
        self.applied: list[bytes] = []

    async def get(self, key: str) -> KeyValue | None:
        if self._next() == "down":
            raise CoordinatorUnavailable("down")
        return await self.inner.get(key)

    async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        fate = self._next()
        if fate == "down":
            raise CoordinatorUnavailable("down")
        if fate == "late":
            self.on_the_way.append(lambda: self._apply(compares, operations))
            raise OutcomeUnknown("late")
        if fate == "lost":
            raise OutcomeUnknown("lost")
        result = self._apply(compares, operations)
        if fate == "applied":
            raise OutcomeUnknown("applied")
        return result

    def _apply(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
        result = self.inner.store.txn(compares, operations)
        if result.succeeded:
            self.applied += [put.value for put in operations if isinstance(put, Put) and put.key == "p"]
        return result

    def _next(self) -> str:
        if self.on_the_way and self.script[:1] == ["arrives"]:
            self.script.pop(0)
            self.on_the_way.pop(0)()
        return self.script.pop(0) if self.script else "ok"


def tokens() -> Callable[[int], bytes]:
    counter = iter(range(1 << 16))
    return lambda size: next(counter).to_bytes(size, "big")


async def settle(writer: ResolvingWriter, value: bytes) -> bool:
    """As a careful caller does: until the outcome is known."""
    try:
        return (await writer.txn([], [Put("p", value)])).succeeded
    except CoordinatorUnavailable:
        return False
    except OutcomeUnknown:
        while True:
            try:
                outcome = await writer.resolve()
                assert outcome is not None
                return outcome.succeeded
            except OutcomeUnknown:
                await asyncio.sleep(0)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["ok", "down", "lost", "applied", "late", "arrives"]), max_size=30))
def test_rule_4_what_it_says_is_what_happened(script: list[str]) -> None:
    async def run() -> None:
        coordinator = Unreliable(script)
        writer = ResolvingWriter(coordinator, "writers/1", tokens())  # type: ignore[arg-type]
        said = [(value, await settle(writer, value)) for value in (b"1", b"2", b"3")]
        applied_when_told = [value for value, succeeded in said if succeeded]
        for request in coordinator.on_the_way:  # the rest arrives when everything is long decided
            request()
        assert coordinator.applied == applied_when_told

    asyncio.run(run())


async def test_a_refusal_is_no_doubt() -> None:
    coordinator = Unreliable([])
    writer = ResolvingWriter(coordinator, "writers/1", tokens())  # type: ignore[arg-type]
    with pytest.raises(LeaseNotFound):
        await writer.txn([], [Put("p", b"", lease=99)])
    with pytest.raises(ValueError):
        await writer.txn([], [Put("p", b""), Put("p", b"")])
    assert await writer.resolve() is None
    assert (await writer.txn([], [Put("p", b"1")])).succeeded


async def test_a_cancelled_transaction_is_in_doubt_too() -> None:
    coordinator = Unreliable([])
    started = asyncio.Event()

    class Slow(Unreliable):
        async def txn(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TxnResult:
            if not started.is_set():
                coordinator.on_the_way.append(lambda: coordinator._apply(compares, operations))
                started.set()
                await asyncio.Event().wait()
            return await coordinator.txn(compares, operations)

    slow = Slow([])
    slow.inner = coordinator.inner
    writer = ResolvingWriter(slow, "writers/1", tokens())  # type: ignore[arg-type]
    call = asyncio.ensure_future(writer.txn([], [Put("p", b"cancelled")]))
    await started.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (await writer.txn([], [Put("p", b"next")])).succeeded
    coordinator.on_the_way.pop()()  # it arrives after its successor, and is fenced
    assert coordinator.applied == [b"next"]


async def test_a_second_life_fences_the_first() -> None:
    """The earlier process's transaction is still on its way when the new one starts."""
    coordinator = Unreliable(["ok", "late", "down", "down", "down", "down", "down"])
    first = ResolvingWriter(coordinator, "writers/1", tokens())  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        await first.txn([], [Put("p", b"old")])
    coordinator.script.clear()
    second = ResolvingWriter(coordinator, "writers/1", lambda size: b"\xff" * size)  # type: ignore[arg-type]
    assert (await second.txn([], [Put("p", b"new")])).succeeded
    coordinator.on_the_way.pop()()
    assert coordinator.applied == [b"new"]
    with pytest.raises(OutcomeUnknown, match="another writer"):
        await first.resolve()


async def test_a_late_arrival_of_the_first_life_does_not_fail_the_second() -> None:
    coordinator = Unreliable(["ok", "late", "down", "down", "down", "down", "down"])
    first = ResolvingWriter(coordinator, "writers/1", tokens())  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        await first.txn([], [Put("p", b"old")])
    # It reads its position, then the old one lands, then it tries.
    coordinator.script[:] = ["ok", "arrives", "ok"]
    second = ResolvingWriter(coordinator, "writers/1", lambda size: b"\xff" * size)  # type: ignore[arg-type]
    assert (await second.txn([], [Put("p", b"new")])).succeeded
    assert coordinator.applied == [b"old", b"new"]
