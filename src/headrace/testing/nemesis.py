"""Driver: faults as a plan that is drawn, carried out, and made smaller.

A run draws which kinds of fault it has at all (a swarm), then faults with a start and a length; a quarter of the time
nothing happens, so that the cluster can recover. A plan is data: a failing one is run again without some of its
faults until none can be left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from headrace.testing.dice import Dice
from headrace.testing.simulation import Simulation


class FaultKind(Enum):
    KILL = "kill"
    POWER_CUT = "power cut"
    PAUSE = "pause"
    ISOLATE = "isolate"
    """The nodes hear each other and nobody else."""
    DEAFEN = "deafen"
    """One way: the nodes are heard and hear nothing."""
    RING = "ring"
    """Each node hears its two neighbours, so every one sees another majority."""
    SLOW = "slow"
    RESET = "reset"
    HALF_OPEN = "half open"
    DELAY = "delay"
    """One segment arrives late (KAFKA-17754)."""
    CLOCK_JUMP = "clock jump"
    CLOCK_RATE = "clock rate"
    DISK_HANG = "disk hang"


class Fault(NamedTuple):
    at_s: float
    lasts_s: float
    kind: FaultKind
    nodes: tuple[str, ...]
    amount: float
    """What the kind needs a number for: seconds, a clock's rate, milliseconds of a jump."""


def draw_plan(
    dice: Dice,
    nodes: Sequence[str],
    *,
    seconds: float,
    kinds: Sequence[FaultKind] = tuple(FaultKind),
    period_s: float = 10.0,
) -> list[Fault]:
    chosen = dice.subset(kinds) or [dice.pick(kinds)]
    plan: list[Fault] = []
    at_s = dice.exponential(period_s)
    while at_s < seconds:
        if not dice.chance(0.25):
            for _ in range(dice.pick((1, 1, 1, 2))):
                kind = dice.pick(chosen)
                # Mostly a minority, sometimes everyone: safety has to hold even then.
                count = len(nodes) if dice.chance(0.1) else dice.between(1, max(1, (len(nodes) - 1) // 2))
                plan.append(
                    Fault(at_s, dice.exponential(period_s / 2), kind, tuple(sorted(dice.sample(nodes, count))),
                          _draw_amount(kind, dice))
                )  # fmt: skip
        at_s += dice.exponential(period_s)
    return plan


def _draw_amount(kind: FaultKind, dice: Dice) -> float:
    if kind is FaultKind.CLOCK_JUMP:
        return dice.pick((-3_600_000.0, -60_000.0, 60_000.0, 3_600_000.0, 315_360_000_000.0))
    if kind is FaultKind.CLOCK_RATE:
        return dice.pick((0.5, 0.9, 1.1, 2.0))
    return dice.uniform(0.05, 1.0) if kind is FaultKind.SLOW else dice.uniform(1.0, 60.0)


class Nemesis:
    """Carries a plan out. Overlapping faults on links are applied together, whichever ends first."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._active: list[Fault] = []

    async def carry_out(self, plan: Sequence[Fault]) -> None:
        """Ends when every fault is over; afterwards everything runs and every link is whole."""
        moments = [(fault.at_s, 0, index) for index, fault in enumerate(plan)]
        moments += [(fault.at_s + fault.lasts_s, 1, index) for index, fault in enumerate(plan)]
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        for when_s, is_end, index in sorted(moments):
            await asyncio.sleep(max(0.0, begun_s + when_s - loop.time()))
            if is_end:
                self._end(plan[index])
            else:
                self._begin(plan[index])
        self.calm()

    def calm(self) -> None:
        self._active.clear()
        self._simulation.network.heal()
        for node in self._simulation.nodes.values():
            node.resume()
            node.clock.set_rate(1.0)
            if not node.is_running:
                node.start()

    def _begin(self, fault: Fault) -> None:
        self._active.append(fault)
        network = self._simulation.network
        others = self._others(fault)
        for name in fault.nodes:
            node = self._simulation.nodes[name]
            match fault.kind:
                case FaultKind.KILL:
                    node.kill()
                case FaultKind.POWER_CUT:
                    node.cut_power()
                case FaultKind.PAUSE:
                    node.pause()
                case FaultKind.CLOCK_JUMP:
                    node.clock.jump_wall(int(fault.amount))
                case FaultKind.CLOCK_RATE:
                    node.clock.set_rate(fault.amount)
                case FaultKind.DISK_HANG:
                    node.hang_disk(fault.lasts_s)
                case FaultKind.RESET:
                    for other in others:
                        network.reset(name, other)
                case FaultKind.HALF_OPEN:
                    for other in others:
                        network.half_open(name, other)
                case FaultKind.DELAY:
                    for other in others:
                        network.delay_next(name, other, fault.amount)
                case _:
                    pass
        self._apply_links()

    def _end(self, fault: Fault) -> None:
        self._active.remove(fault)
        for name in fault.nodes:
            node = self._simulation.nodes[name]
            if fault.kind is FaultKind.PAUSE:
                node.resume()
            elif fault.kind is FaultKind.CLOCK_RATE:
                node.clock.set_rate(1.0)
            elif fault.kind in (FaultKind.KILL, FaultKind.POWER_CUT) and not node.is_running:
                node.start()
        self._apply_links()

    def _others(self, fault: Fault) -> list[str]:
        return [name for name in self._simulation.nodes if name not in fault.nodes]

    def _apply_links(self) -> None:
        network = self._simulation.network
        network.heal()
        names = list(self._simulation.nodes)
        for fault in self._active:
            if fault.kind is FaultKind.ISOLATE:
                network.partition(fault.nodes, self._others(fault))
            elif fault.kind is FaultKind.DEAFEN:
                for name in fault.nodes:
                    for other in names:
                        if other != name:
                            network.cut(other, name, both_ways=False)
            elif fault.kind is FaultKind.RING:
                for place, name in enumerate(names):
                    for distance in range(2, len(names) - 1):
                        network.cut(name, names[(place + distance) % len(names)])
            elif fault.kind is FaultKind.SLOW:
                for name in fault.nodes:
                    for other in names:
                        if other != name:
                            network.slow(name, other, latency_s=(fault.amount / 2, fault.amount))


def shrink(plan: Sequence[Fault], still_fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """Leave out as many faults as possible, halves first, while the run still fails."""
    smallest = list(plan)
    size = max(1, len(smallest) // 2)
    while size:
        start = 0
        while start < len(smallest):
            candidate = smallest[:start] + smallest[start + size :]
            if still_fails(candidate):
                smallest = candidate
            else:
                start += size
        size //= 2
    return smallest
