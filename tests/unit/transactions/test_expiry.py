"""Time: timeouts (R51), ids nobody uses, and what a reload does to both (R58)."""

from __future__ import annotations

from transaction_world import P0, P1, World

from headrace.core.deadlines import Deadlines
from headrace.core.errors import ErrorKind
from headrace.core.plan import WallClock
from headrace.transactions.commands import SendMarkers

DAY_MS = 24 * 60 * 60 * 1000


def test_r51_a_timeout_fences_and_aborts(world: World) -> None:
    producer = world.init(timeout_ms=10_000)
    world.add(producer, P0)
    world.advance(5_000)
    world.add(producer, P1)
    world.advance(4_999)
    assert world.state == "Ongoing"
    world.advance(1)
    assert world.effects == [SendMarkers("x", 1000, 1, False, 5, 11_000, (P0, P1))]
    assert world.end(producer).error is ErrorKind.PRODUCER_FENCED
    world.mark()
    assert world.end(producer).error is ErrorKind.PRODUCER_FENCED
    assert world.end(producer, commit=False, bump=True).error is ErrorKind.PRODUCER_FENCED
    assert world.init()[1:] == (1000, 2)


def test_a_transaction_that_ended_has_no_timeout(world: World) -> None:
    producer = world.init(timeout_ms=10_000)
    world.add(producer, P0)
    world.end(producer)
    world.advance(20_000)
    assert world.state == "PrepareCommit", "a decision stands, however long its markers take (R49)"
    world.mark()
    world.add(producer, P0)
    world.advance(9_999)
    assert world.state == "Ongoing"


def test_r58_a_reload_restarts_the_timeout_in_full(world: World) -> None:
    producer = world.init(timeout_ms=10_000)
    world.add(producer, P0)
    world.advance(9_000)
    world.restart(down_ms=60_000)
    world.advance(9_999)
    assert world.state == "Ongoing"
    world.advance(1)
    assert world.state == "PrepareAbort"


def test_many_timeouts_at_once(world: World) -> None:
    for name in ("a", "b", "c"):
        producer = world.init(name, timeout_ms=10_000)
        world.add(producer, P0, transactional_id=name)
    world.advance(10_000)
    assert [effect.transactional_id for effect in world.effects] == ["a", "b", "c"]
    assert world.shard.next_deadline() == world.shard.table.sweep_at_ms


def test_idle_ids_are_forgotten_after_seven_days(world: World) -> None:
    world.init("old")
    world.advance(4 * DAY_MS)
    producer = world.init("x")
    world.add(producer, P0)
    world.advance(3 * DAY_MS - 2 * 60 * 60 * 1000)
    assert "old" in world.shard.table.entries
    world.advance(3 * 60 * 60 * 1000)
    assert "old" not in world.shard.table.entries
    assert world.journal[-1].value is None, "a tombstone"
    world.restart()
    assert set(world.shard.table.entries) == {"x"}


def test_a_decided_transaction_is_never_forgotten(world: World) -> None:
    producer = world.init()
    world.add(producer, P0)
    world.end(producer)
    world.advance(30 * DAY_MS)
    assert world.state == "PrepareCommit"


def test_idle_time_survives_a_failover(world: World) -> None:
    world.init()
    world.advance(4 * DAY_MS)
    world.restart(down_ms=2 * DAY_MS)
    world.advance(DAY_MS - 2 * 60 * 60 * 1000)
    assert "x" in world.shard.table.entries
    world.advance(4 * 60 * 60 * 1000)
    assert "x" not in world.shard.table.entries


def test_s24_a_wall_clock_that_jumps_forgets_nothing(world: World) -> None:
    world.init()
    world.ask(lambda w: WallClock(world.shard.table.wall_ms(world.now_ms) + 3650 * DAY_MS, waiter=w))
    world.advance(3 * DAY_MS)
    assert "x" in world.shard.table.entries
    world.restart(down_ms=-3650 * DAY_MS)
    world.advance(DAY_MS)
    assert "x" in world.shard.table.entries


def test_without_ids_there_is_nothing_to_wait_for(world: World) -> None:
    assert world.shard.next_deadline() is None
    world.init()
    assert world.shard.next_deadline() is not None
    world.advance(8 * DAY_MS)
    assert world.shard.next_deadline() is None


def test_deadlines_keep_one_entry_per_key_while_they_move_outwards() -> None:
    deadlines = Deadlines[str]()
    for at_ms in range(100, 10_000, 100):
        deadlines.set("a", at_ms)
        deadlines.cancel("a")
        deadlines.set("a", at_ms + 50)
    assert len(deadlines._heap) <= 2
    assert deadlines.next_ms() == 9_950
    deadlines.set("a", 5)
    assert deadlines.next_ms() == 5
    assert deadlines.due(4) == [] and deadlines.due(5) == ["a"]
    deadlines.cancel("a")
    assert deadlines.next_ms() is None
