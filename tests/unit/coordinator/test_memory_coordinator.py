"""The in-memory face with a clock moved by hand; the hostile one above it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from mirror import Mirror

from headrace.coordinator.memory import MemoryCoordinator
from headrace.coordinator.port import (
    Compare,
    CoordinatorError,
    CoordinatorUnavailable,
    OutcomeUnknown,
    Put,
    Resync,
    WatchBatch,
    WatchUpdate,
)
from headrace.coordinator.resolve import ResolvingWriter
from headrace.coordinator.signal import Signal
from headrace.coordinator.store import RevisionedStore
from headrace.testing.dice import Dice
from headrace.testing.hostile_coordinator import HostileCoordinator, Odds

CALM = Odds(
    unavailable=0, unknown_and_lost=0, unknown_and_applied=0, unknown_and_late=0, call_delay_ms=0,
    late_by_ms=0, watch_delay_ms=0, watch_repeat=0, watch_replay=0, watch_resync=0,
)  # fmt: skip


class HandClock:
    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now


async def test_a_tick_expires_leases_and_wakes_watchers() -> None:
    clock = HandClock()
    one = MemoryCoordinator(clock)
    lease = await one.grant(60_000)
    await one.txn([], [Put("m", b"", lease.id)])
    async with aclosing(one.watch("m", 3)) as updates:
        pending = asyncio.ensure_future(anext(updates))
        await asyncio.sleep(0)
        clock.now = 59_999
        one.tick()
        await asyncio.sleep(0)
        assert not pending.done()
        clock.now = 60_000
        one.tick()
        update = await pending
    assert isinstance(update, WatchBatch) and update.events[0].value is None


async def test_a_signal_is_not_missed_between_looking_and_waiting() -> None:
    signal = Signal()
    ticket = signal.ticket()
    signal.fire()
    assert await signal.wait(ticket) is True
    assert await signal.wait(signal.ticket(), 0.001) is False
    waiting = [asyncio.ensure_future(signal.wait(signal.ticket())) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    signal.fire()
    assert await asyncio.gather(*waiting[1:]) == [True, True]


async def gather_updates(coordinator: HostileCoordinator, until_revision: int) -> list[WatchUpdate]:
    found: list[WatchUpdate] = []
    mirror = Mirror()
    async with aclosing(coordinator.watch("", 2)) as updates, asyncio.timeout(120):
        while mirror.revision < until_revision:
            found.append(await anext(updates))
            mirror.apply(found[-1])
    return found


async def test_r3_a_hostile_watch_is_within_the_contract() -> None:
    """It repeats, looks back and resyncs, and a mirror of it is still right."""
    kinds = {"repeats": 0, "resyncs": 0}
    for seed in range(10):
        store = RevisionedStore()
        hostile = HostileCoordinator(
            MemoryCoordinator(HandClock(), store),
            Dice(seed),
            Odds(watch_delay_ms=0.1, watch_repeat=0.2, watch_replay=0.2, watch_resync=0.1),
        )

        async def write(store: RevisionedStore = store) -> None:
            for number in range(30):
                store.txn([], [Put(f"k{number % 4}", str(number).encode())])
                await asyncio.sleep(0)

        _, found = await asyncio.gather(write(), gather_updates(hostile, 31))
        mirror = Mirror()
        for update in found:
            mirror.apply(update)
        assert mirror.items == {item.key: item for item in store.read("").items}
        batches = [update for update in found if isinstance(update, WatchBatch)]
        kinds["repeats"] += len(batches) - len({batch.revision for batch in batches})
        kinds["resyncs"] += sum(isinstance(update, Resync) for update in found)
    assert all(kinds.values()), kinds


async def test_r5_hostile_transactions_end_in_all_ways_and_can_be_resolved() -> None:
    """Many writers swap one counter through one hostile coordinator each; what they were told adds up."""
    store = RevisionedStore()
    odds = Odds(
        unavailable=0.1, unknown_and_lost=0.1, unknown_and_applied=0.1, unknown_and_late=0.1,
        call_delay_ms=0.1, late_by_ms=3,
    )  # fmt: skip
    unknown = 0

    async def count(name: int) -> int:
        nonlocal unknown
        one = HostileCoordinator(MemoryCoordinator(HandClock(), store), Dice(f"r5/{name}"), odds)
        writer = ResolvingWriter(
            one, f"writers/{name}", lambda size: Dice(f"{name}/{store.revision}").random_bytes(size)
        )
        done = 0
        for _ in range(25):
            try:
                held = await one.get("n")
                value, revision = (int(held.value), held.mod_revision) if held else (0, 0)
                result = await writer.txn(
                    [Compare.mod_revision("n", revision)], [Put("n", str(value + 1).encode())]
                )
            except CoordinatorUnavailable:
                continue
            except OutcomeUnknown:
                unknown += 1
                result = await resolve(writer)
            done += result.succeeded
        return done

    total = sum(await asyncio.gather(*(count(name) for name in range(4))))
    await asyncio.sleep(0.005)  # whatever is on its way lands
    held = store.get("n")
    assert held is not None and int(held.value) == total > 20
    assert unknown > 0


async def resolve(writer: ResolvingWriter) -> Any:
    while True:
        try:
            outcome = await writer.resolve()
            assert outcome is not None
            return outcome
        except OutcomeUnknown:
            await asyncio.sleep(0)


async def test_r36_an_unreachable_coordinator_fails_calls_and_holds_watches() -> None:
    store = RevisionedStore()
    hostile = HostileCoordinator(MemoryCoordinator(HandClock(), store), Dice(1), CALM)
    async with aclosing(hostile.watch("", 2)) as updates:
        hostile.reachable = False
        with pytest.raises(CoordinatorUnavailable):
            await hostile.read("")
        store.txn([], [Put("a", b"")])
        pending = asyncio.ensure_future(anext(updates))
        done, _ = await asyncio.wait([pending], timeout=0.01)
        assert not done
        hostile.reachable = True
        update = await pending
        assert isinstance(update, WatchBatch) and update.events[0].key == "a"
    assert (await hostile.read("")).items
    await hostile.close()
    with pytest.raises(CoordinatorError):
        await hostile.get("a")
