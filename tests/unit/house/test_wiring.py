"""Issue 14: children get what they use, by constructor. What is not there yet may only get less (`scripts/house`)."""

from __future__ import annotations

from house_figures import attributes, imports, knots, taking

LARGEST_CIRCLE = 8
IN_CIRCLES = 38
BROKER_ATTRIBUTES = 53
TAKE_BROKER = 31


def test_no_more_modules_know_each_other_in_circles() -> None:
    """Imports for types count: a circle of types is a circle of ideas."""
    circles = [sorted(knot) for knot in knots()]
    assert max(map(len, circles), default=1) <= LARGEST_CIRCLE, circles[0]
    assert sum(map(len, circles)) <= IN_CIRCLES, circles


def test_the_broker_is_no_service_locator() -> None:
    assert len(attributes("broker.broker", "Broker")) <= BROKER_ATTRIBUTES
    assert len(taking("Broker")) <= TAKE_BROKER, taking("Broker")


def test_queues_know_nothing_of_the_broker_but_what_they_are_given() -> None:
    graph = imports()
    assert not [
        name
        for name in graph
        if name.startswith(("broker.queueing", "queues")) and "broker.broker" in graph[name]
    ]
