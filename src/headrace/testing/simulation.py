"""Driver: one simulated run: a seed, a virtual loop, a network, machines, and what must always hold.

    simulation = Simulation(seed=7)
    node = simulation.node("n1", program)        # program: async (node, runtime) -> None
    simulation.run(scenario)                     # scenario: async (simulation) -> result

Anything that reached an exception handler fails the run, and the message names the seed.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headrace.core.limits import GIB
from headrace.testing.dice import Dice
from headrace.testing.sim_network import OUTSIDE, SimNetwork
from headrace.testing.sim_node import Program, SimNode
from headrace.testing.virtual_loop import Process, VirtualTimeLoop

T = TypeVar("T")


class SimulationFailed(AssertionError):
    """The run broke: an unhandled exception in a task, a callback or a program."""


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        shuffle: bool = True,
        io_first: bool = False,
        keep_trace: bool = False,
        latency_s: tuple[float, float] = (0.0001, 0.002),
    ) -> None:
        self.seed = seed
        self.dice = Dice(seed)
        self.loop = VirtualTimeLoop(
            self.dice.fork("order"), shuffle=shuffle, io_first=io_first, keep_trace=keep_trace
        )
        self.network = SimNetwork(self.loop, self.dice.fork("network"), latency_s=latency_s)
        self.network.host(OUTSIDE)
        self.nodes: dict[str, SimNode] = {}
        self._invariants: list[Callable[[], None]] = []
        self._swarm: dict[str, tuple[bool, Dice]] = {}
        self._test = Process("test", OUTSIDE)

    def node(self, name: str, program: Program, *, capacity_bytes: int = 64 * GIB) -> SimNode:
        node = SimNode(self.loop, self.network, self.dice.fork(f"node/{name}"), name, program, capacity_bytes)
        self.nodes[name] = node
        return node

    def invariant(self, check: Callable[[], None]) -> None:
        """Called after every turn of the loop; raises when something that must hold does not."""
        self._invariants.append(check)

    def sometimes(self, name: str, probability: float = 0.5) -> bool:
        """Buggify: whether this run has the feature at all is drawn once, then each time anew."""
        if name not in self._swarm:
            dice = self.dice.fork(f"sometimes/{name}")
            self._swarm[name] = (dice.chance(0.5), dice)
        is_on, dice = self._swarm[name]
        return is_on and dice.chance(probability)

    @property
    def trace_hash(self) -> str:
        return self.loop.trace_hash

    def run(
        self, scenario: Callable[[Simulation], Coroutine[Any, Any, T]], *, limit_s: float = 86_400.0
    ) -> T:
        """Until the scenario returns or `limit_s` of virtual time is over. A simulation runs once."""
        self.loop.after_turn = self._check_invariants if self._invariants else None
        with _without_garbage_collection():
            try:
                result = self.loop.run_until_complete(
                    self.loop.create_task(
                        self._limited(scenario, limit_s), name="scenario", context=self._test.context.copy()
                    )
                )
                self._raise_failures()
                return result
            finally:
                self._end()

    async def _limited(self, scenario: Callable[[Simulation], Coroutine[Any, Any, T]], limit_s: float) -> T:
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await scenario(self)
        except TimeoutError:
            if limit.expired():
                raise SimulationFailed(
                    f"seed {self.seed}: not finished after {limit_s} virtual seconds"
                ) from None
            raise

    def _check_invariants(self) -> None:
        for check in self._invariants:
            check()

    def _raise_failures(self) -> None:
        if not self.loop.failures:
            return
        first = self.loop.failures[0]
        cause = first.get("exception")
        raise SimulationFailed(
            f"seed {self.seed}: {len(self.loop.failures)} unhandled, the first: {first.get('message')}: {cause!r}"
        ) from cause

    def _end(self) -> None:
        processes = [self._test]
        for node in self.nodes.values():
            if node.process is not None:
                node.process.is_dead = True
                processes.append(node.process)
            processes.extend(node.buried)
        self._test.is_dead = True
        self.loop.close()
        for process in processes:
            process.bury()


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection in the middle would run finalizers at a moment that depends on the interpreter, not on the seed."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
