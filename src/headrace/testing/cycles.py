"""Machine: cycles in a graph whose edges have kinds.

Used to find operations that each must come before the other. A search names the kinds it may walk and the kinds it
must walk at least once, and returns one short cycle per strongly connected component.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

Kind = TypeVar("Kind")

_MAX_STARTS = 32


class Edge(NamedTuple, Generic[Kind]):
    source: int
    target: int
    kind: Kind


class Graph(Generic[Kind]):
    def __init__(self) -> None:
        self._edges: dict[int, dict[int, dict[Kind, None]]] = {}

    def add(self, source: int, target: int, kind: Kind) -> None:
        if source != target:
            self._edges.setdefault(source, {}).setdefault(target, {})[kind] = None
            self._edges.setdefault(target, {})

    def successors(self, node: int, kinds: frozenset[Kind]) -> list[int]:
        return [target for target, held in self._edges.get(node, {}).items() if not kinds.isdisjoint(held)]

    def kinds_between(self, source: int, target: int, kinds: frozenset[Kind]) -> list[Kind]:
        return [kind for kind in self._edges.get(source, {}).get(target, ()) if kind in kinds]

    def components(self, kinds: frozenset[Kind]) -> list[list[int]]:
        """Strongly connected components of more than one node (Tarjan, without recursion)."""
        order: dict[int, int] = {}
        low: dict[int, int] = {}
        on_stack: set[int] = set()
        stack: list[int] = []
        found: list[list[int]] = []
        for root in self._edges:
            if root in order:
                continue
            work: list[tuple[int, list[int], int]] = [(root, self.successors(root, kinds), 0)]
            order[root] = low[root] = len(order)
            stack.append(root)
            on_stack.add(root)
            while work:
                node, targets, position = work.pop()
                if position < len(targets):
                    work.append((node, targets, position + 1))
                    target = targets[position]
                    if target not in order:
                        order[target] = low[target] = len(order)
                        stack.append(target)
                        on_stack.add(target)
                        work.append((target, self.successors(target, kinds), 0))
                    elif target in on_stack:
                        low[node] = min(low[node], order[target])
                    continue
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    found.append(_pop_component(stack, on_stack, node))
        return [component for component in found if len(component) > 1]

    def cycles(self, may: Iterable[Kind], must: Iterable[Iterable[Kind]] = ()) -> list[list[Edge[Kind]]]:
        """One cycle per component that walks only `may` and, for each set in `must`, at least one of its kinds."""
        kinds = frozenset(may)
        needed = [frozenset(group) for group in must]
        found = []
        for component in self.components(kinds):
            cycle = self._cycle_in(component, kinds, needed)
            if cycle is not None:
                found.append(cycle)
        return found

    def _cycle_in(
        self, component: list[int], kinds: frozenset[Kind], needed: list[frozenset[Kind]]
    ) -> list[Edge[Kind]] | None:
        """Search over (node, which needs are met): a closed walk that meets them all. Shortest start first."""
        inside = frozenset(component)
        goal = frozenset(range(len(needed)))
        best: list[Edge[Kind]] | None = None
        # From any node of a component there is a walk through all of it; a few starts make the example short.
        for start in component[:_MAX_STARTS]:
            cycle = self._walk(start, inside, kinds, needed, goal)
            if cycle is not None and (best is None or len(cycle) < len(best)):
                best = cycle
        return best

    def _walk(
        self,
        start: int,
        inside: frozenset[int],
        kinds: frozenset[Kind],
        needed: list[frozenset[Kind]],
        goal: frozenset[int],
    ) -> list[Edge[Kind]] | None:
        State = tuple[int, frozenset[int]]
        first: State = (start, frozenset())
        came_from: dict[State, tuple[State, Edge[Kind]]] = {}
        queue: deque[State] = deque([first])
        while queue:
            state = queue.popleft()
            node, met = state
            for target in self.successors(node, kinds):
                if target not in inside:
                    continue
                for kind in self.kinds_between(node, target, kinds):
                    edge = Edge(node, target, kind)
                    now_met = met | {index for index, group in enumerate(needed) if kind in group}
                    following: State = (target, now_met)
                    if target == start and now_met >= goal:
                        return [*_path(came_from, first, state), edge]
                    if following not in came_from and following != first:
                        came_from[following] = (state, edge)
                        queue.append(following)
        return None


def _path(
    came_from: dict[tuple[int, frozenset[int]], tuple[tuple[int, frozenset[int]], Edge[Kind]]],
    first: tuple[int, frozenset[int]],
    state: tuple[int, frozenset[int]],
) -> list[Edge[Kind]]:
    edges: list[Edge[Kind]] = []
    while state != first:
        state, edge = came_from[state]
        edges.append(edge)
    edges.reverse()
    return edges


def _pop_component(stack: list[int], on_stack: set[int], root: int) -> list[int]:
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == root:
            return sorted(component)
