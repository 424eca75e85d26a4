"""Issue 14: children get what they use, by constructor. What is not there yet may only get less (`scripts/house`)."""

from __future__ import annotations

import ast

from house_figures import anys, attributes, imports, knots, pried_open, taking, too_long, trees

BROKER_ATTRIBUTES = 12
TAKE_BROKER = 0
TAKE_SERVICES = 2
ANYS = {"broker": 9, "kafka": 1}
"""Before issue 14 it was 60 and 7. What is left: futures and jobs of any kind of answer, the table of handlers."""


def test_no_modules_know_each_other_in_a_circle() -> None:
    """Imports for types count: a circle of types is a circle of ideas."""
    assert [sorted(knot) for knot in knots()] == []


def test_the_broker_is_no_service_locator() -> None:
    assert len(attributes("broker.broker", "Broker")) <= BROKER_ATTRIBUTES
    assert len(taking("Broker")) <= TAKE_BROKER, taking("Broker")
    assert len(taking("Services")) <= TAKE_SERVICES, "a record for the doors, not another locator"


def test_nothing_below_the_doors_knows_the_record_of_services() -> None:
    graph = imports()
    assert not [name for name in graph if name.startswith("broker") and "broker.services" in graph[name]]


def test_nobody_trusts_a_lease_that_nobody_holds() -> None:
    """`lease_held` said yes until somebody filled it in."""
    for module, name in (("broker.partition", "Partition"), ("broker.replicas", "Replicas")):
        (made,) = (
            node
            for owner in ast.walk(trees()[module])
            if isinstance(owner, ast.ClassDef) and owner.name == name
            for node in owner.body
            if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        )
        required = made.args.args[: len(made.args.args) - len(made.args.defaults)]
        assert "lease_held" in {arg.arg for arg in required}


def test_queues_know_nothing_of_the_broker_but_what_they_are_given() -> None:
    graph = imports()
    assert not [
        name
        for name in graph
        if name.startswith(("broker.queueing", "queues")) and "broker.broker" in graph[name]
    ]


VERBS = {
    "send", "receive", "ack", "extend", "release", "reject", "peek", "walk", "purge", "stats",
    "find", "sources", "send_all", "send_group", "pause", "inspect", "scheduled", "move_schedule", "cancel_schedule", "unfinished",
}  # fmt: skip
"""What doors see of queues: the ten, which queue is meant, and the rarer ones."""


def test_doors_see_the_verbs_of_queues_and_nothing_behind_them() -> None:
    """Which queues there are, and move tasks, are given to the doors that need them, by constructor."""
    public = attributes("broker.queueing.queues", "Queues") | {
        node.name
        for owner in ast.walk(trees()["broker.queueing.queues"])
        if isinstance(owner, ast.ClassDef) and owner.name == "Queues"
        for node in owner.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name for name in public if not name.startswith("_")} == VERBS
    behind = ("local.local_queues", "local.shards", "local.hosted", "layout", "routing.router", "rooms")
    for name, known in imports().items():
        if name.startswith(("http.", "kafka.")):
            assert not known & {f"broker.queueing.{room}" for room in behind}, name


def test_old_names_of_queueing_do_not_come_back() -> None:
    moods = {
        "desk",
        "anywhere",
        "elsewhere",
        "news",
        "keeper",
        "placing",
        "moving",
        "standing",
        "strays",
        "rouse",
    }
    found = [name for name in trees() if moods & set(name.replace("_", ".").split(".")) and "queue" in name]
    assert not found


def test_nothing_is_too_long_and_nobody_reaches_for_what_is_private() -> None:
    """As `make lint` says it (scripts/house --limits)."""
    assert [*too_long(), *pried_open()] == []


def test_seams_say_what_goes_through_them() -> None:
    found = anys()
    assert {package: found[package] for package in ANYS if found[package] > ANYS[package]} == {}
