"""Driver: work in lanes. Several pieces at a time, but those that touch the same thing one after the other, in the order they came.

A piece touches a name, and a number under it or the whole name (None). `done` is over when everything that was put in is carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, Never, TypeVar

T = TypeVar("T")


class WorkLanes(Generic[T]):
    def __init__(
        self,
        carry_out: Callable[[T], Coroutine[object, Never, None]],
        touches: Callable[[T], tuple[str, int | None]],
        at_once: int,
    ) -> None:
        self._carry_out = carry_out
        self._touches = touches
        self._at_once = at_once
        self._todo: asyncio.Queue[T] = asyncio.Queue()
        self._waiting = False
        """One was taken and has something in its way."""
        self._under_way: dict[asyncio.Task[None], tuple[str, int | None]] = {}
        self._done = asyncio.Event()
        self._done.set()

    def put(self, piece: T) -> None:
        self._done.clear()
        self._todo.put_nowait(piece)

    async def done(self) -> None:
        await self._done.wait()

    async def run(self) -> None:
        """For ever. Ends with what is under way, and fails with the first piece that fails."""
        self._under_way.clear()
        async with asyncio.TaskGroup() as group:
            while True:
                piece = await self._todo.get()
                touched = self._touches(piece)
                self._waiting = True
                while in_the_way := self._in_the_way(*touched):
                    await asyncio.wait(in_the_way, return_when=asyncio.FIRST_COMPLETED)
                self._waiting = False
                task = group.create_task(self._carry_out(piece))
                self._under_way[task] = touched
                task.add_done_callback(self._ended)

    def _in_the_way(self, name: str, number: int | None) -> list[asyncio.Task[None]]:
        if len(self._under_way) >= self._at_once:
            return list(self._under_way)
        return [
            task
            for task, (other, part) in self._under_way.items()
            if other == name and (number is None or part is None or part == number)
        ]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.pop(task, None)
        if not self._under_way and not self._waiting and self._todo.empty():
            self._done.set()
