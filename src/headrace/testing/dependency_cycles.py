"""Machine: operations that would each have to come before the other (G0, G1c).

ww: the writer of a value comes after the writer of the value before it in the log. wr: a reader comes after the
writer. process: one client's operations come in its order. realtime: what ended before another began comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

from headrace.testing.cycles import Edge, Graph
from headrace.testing.history import OperationOutcome
from headrace.testing.version_order import VersionOrder

EdgeKind = Literal["ww", "wr", "process", "realtime"]
Cycle = list[Edge[EdgeKind]]


def find_cycles(order: VersionOrder, *, with_write_order: bool = True) -> Iterator[tuple[str, Cycle, bool]]:
    """(name, cycle, whether its data edges are wr only). A cycle named -process or -realtime uses such an edge."""
    graph: Graph[EdgeKind] = Graph()
    if with_write_order:
        _add_write_order(graph, order)
    _add_reads(graph, order)
    _add_process_order(graph, order)
    _add_realtime_order(graph, order)
    variants: tuple[tuple[str, tuple[EdgeKind, ...]], ...] = (
        ("", ()),
        ("-process", ("process",)),
        ("-realtime", ("process", "realtime")),
    )
    for suffix, extra in variants:
        # The last extra kind names the variant, so a cycle must use it.
        named = (extra[-1:],) if extra else ()
        for cycle in graph.cycles(("ww", *extra), (("ww",), *named)):
            yield f"G0{suffix}", cycle, False
        for cycle in graph.cycles(("wr", *extra), (("wr",), *named)):
            yield f"G1c{suffix}", cycle, True
        for cycle in graph.cycles(("ww", "wr", *extra), (("ww",), ("wr",), *named)):
            yield f"G1c{suffix}", cycle, False


def _add_write_order(graph: Graph[EdgeKind], order: VersionOrder) -> None:
    for key, log in order.logs.items():
        for values, next_values in pairwise(log.by_index):
            if len(values) > 1 or len(next_values) > 1:
                continue  # inconsistent-offsets says it already; no order follows from it
            writer = order.writer_of.get((key, values[0]))
            following = order.writer_of.get((key, next_values[0]))
            if writer is None or following is None:
                continue
            if order.must_have_committed(writer) and order.must_have_committed(following):
                graph.add(writer.number, following.number, "ww")


def _add_reads(graph: Graph[EdgeKind], order: VersionOrder) -> None:
    for (key, value), readers in order.readers_of.items():
        writer = order.writer_of.get((key, value))
        if writer is not None and order.must_have_committed(writer):
            for reader in readers:
                if order.must_have_committed(reader):
                    graph.add(writer.number, reader.number, "wr")


def _add_process_order(graph: Graph[EdgeKind], order: VersionOrder) -> None:
    last: dict[int, int] = {}
    for operation in order.operations:
        if not order.must_have_committed(operation):
            continue
        if operation.process in last:
            graph.add(last[operation.process], operation.number, "process")
        last[operation.process] = operation.number


def _add_realtime_order(graph: Graph[EdgeKind], order: VersionOrder) -> None:
    """Only edges that no two others imply: from the latest operations that ended before this one began."""
    events: list[tuple[int, bool, int]] = []
    for operation in order.operations:
        if order.must_have_committed(operation):
            events.append((operation.invoked_at, False, operation.number))
            if operation.outcome is OperationOutcome.OK and operation.completed_at is not None:
                events.append((operation.completed_at, True, operation.number))
    frontier: dict[int, None] = {}
    before: dict[int, list[int]] = {}
    for _, is_end, number in sorted(events):
        if is_end:
            for earlier in before[number]:
                frontier.pop(earlier, None)
            frontier[number] = None
        else:
            before[number] = list(frontier)
            for earlier in frontier:
                graph.add(earlier, number, "realtime")
