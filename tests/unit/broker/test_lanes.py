"""Lanes: several at a time, in order where they touch (F27)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.lanes import WorkLanes

Piece = tuple[str, int | None, int]


class World:
    """Pieces that end when they are told to."""

    def __init__(self, at_once: int = 3) -> None:
        self.begun: list[Piece] = []
        self.ended: list[Piece] = []
        self.most = 0
        self._gates: dict[Piece, asyncio.Event] = {}
        self.lanes: WorkLanes[Piece] = WorkLanes(self._carry_out, lambda piece: piece[:2], at_once)

    @property
    def under_way(self) -> list[Piece]:
        return [piece for piece in self.begun if piece not in self.ended]

    async def _carry_out(self, piece: Piece) -> None:
        self.begun.append(piece)
        for other in self.under_way:
            assert other == piece or not touch(other, piece), f"{piece} beside {other}"
        self.most = max(self.most, len(self.under_way))
        await self._gates.setdefault(piece, asyncio.Event()).wait()
        self.ended.append(piece)

    async def end(self, piece: Piece) -> None:
        self._gates.setdefault(piece, asyncio.Event()).set()
        await settle()


def touch(one: Piece, other: Piece) -> bool:
    return one[0] == other[0] and (None in (one[1], other[1]) or one[1] == other[1])


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def play(story: Callable[[World], Awaitable[None]], at_once: int = 3) -> World:
    async def run() -> World:
        world = World(at_once)
        task = asyncio.create_task(world.lanes.run())
        await story(world)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return world

    return asyncio.run(run())


def test_different_partitions_go_side_by_side_up_to_the_limit() -> None:
    async def story(world: World) -> None:
        for number in range(5):
            world.lanes.put(("t", number, 0))
        await settle()
        assert world.under_way == [("t", 0, 0), ("t", 1, 0), ("t", 2, 0)]
        await world.end(("t", 1, 0))
        assert ("t", 3, 0) in world.under_way

    play(story)


def test_the_same_partition_waits_and_a_whole_topic_is_alone() -> None:
    async def story(world: World) -> None:
        world.lanes.put(("t", 0, 0))
        world.lanes.put(("t", None, 1))
        world.lanes.put(("t", 1, 2))
        await settle()
        assert world.under_way == [("t", 0, 0)]
        await world.end(("t", 0, 0))
        assert world.under_way == [("t", None, 1)], "a topic's end does not overtake, and is not overtaken"
        await world.end(("t", None, 1))
        assert world.under_way == [("t", 1, 2)]

    play(story)


def test_it_is_not_done_while_a_piece_waits_for_another() -> None:
    async def story(world: World) -> None:
        done = asyncio.ensure_future(world.lanes.done())
        await settle()
        assert done.done(), "nothing to do"
        world.lanes.put(("t", 0, 0))
        world.lanes.put(("t", 0, 1))
        done = asyncio.ensure_future(world.lanes.done())
        await world.end(("t", 0, 0))
        assert not done.done() and world.under_way == [("t", 0, 1)]
        await world.end(("t", 0, 1))
        assert done.done()

    play(story)


def test_what_is_under_way_ends_with_the_runner() -> None:
    async def story(world: World) -> None:
        world.lanes.put(("t", 0, 0))
        await settle()
        assert world.under_way

    world = play(story)
    assert world.ended == []


@given(
    pieces=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([None, 0, 1])), max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_pieces_that_touch_end_in_the_order_they_came(
    pieces: list[tuple[str, int | None]], order: Random
) -> None:
    numbered: list[Piece] = [(name, number, index) for index, (name, number) in enumerate(pieces)]

    async def story(world: World) -> None:
        for piece in numbered:
            world.lanes.put(piece)
        await settle()
        while world.under_way:
            await world.end(order.choice(world.under_way))
        await asyncio.wait_for(world.lanes.done(), 60)

    world = play(story)
    assert sorted(world.ended, key=lambda piece: piece[2]) == numbered and world.most <= 3
    for index, piece in enumerate(world.ended):
        for later in world.ended[index + 1 :]:
            assert not touch(piece, later) or piece[2] < later[2]
