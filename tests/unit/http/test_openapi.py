"""The OpenAPI document and the routes are one thing: neither has what the other lacks."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from headrace import __version__, http
from headrace.coordinator.memory import MemoryCoordinator
from headrace.http.declared import Door, routes_of
from headrace.http.rest.described import api_document, public_router
from headrace.http.rest.forms.queues import NewBackoff, NewElastic, QueueChange
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.queues.config import Backoff, QueueConfig
from headrace.queues.elastic import Elastic
from headrace.testing.sim_node import SimNode, SimRuntime
from headrace.testing.simulation import Simulation

SQS = {("POST", "/"), ("GET", "/"), ("POST", "/{account}/{queue}"), ("GET", "/{account}/{queue}")}
"""Their contract is Amazon's; that of what is under /schemas is Confluent's."""
SOURCE_MODULES = [one.name for one in pkgutil.walk_packages(http.__path__, "headrace.http.") if not one.ispkg]
COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return api_document(__version__)


@pytest.fixture(scope="module")
def public() -> set[tuple[str, str]]:
    return {(route.method, route.template) for route in public_router("").routes()}


def test_every_public_route_says_what_it_takes_and_answers() -> None:
    silent = [
        (route.method, route.template) for route in public_router("").routes() if route.contract is None
    ]
    assert silent == [], "give its handler a contract (http/declared.py)"


def test_whatever_a_queue_can_be_told_can_be_said_over_rest() -> None:
    theirs = {"fifo", "filtered", "queue_id"}  # of the name and the filter, and never changed
    assert {one.name for one in fields(QueueConfig)} - theirs <= set(QueueChange.__struct_fields__)
    assert {one.name for one in fields(Elastic)} == set(NewElastic.__struct_fields__)
    assert {one.name for one in fields(Backoff)} == set(NewBackoff.__struct_fields__)


def test_every_declared_handler_is_put_up(public: set[tuple[str, str]]) -> None:
    """A door that nobody mounts would be declared and not served."""
    declared = {
        (one.method, one.template)
        for name in SOURCE_MODULES
        for door in vars(importlib.import_module(name)).values()
        if isinstance(door, type) and issubclass(door, Door)
        for handler in vars(door).values()
        for one in routes_of(handler)
    }
    assert declared == public


def test_a_broker_serves_nothing_that_is_not_declared(public: set[tuple[str, str]]) -> None:
    """Whoever puts up a door of its own in node/ has to say what it does as well."""
    simulation = Simulation(1)
    world: dict[str, MemoryCoordinator] = {}

    async def broker(node: SimNode, runtime: SimRuntime) -> None:
        service = Node(
            Settings(host=node.address, data_dir="/data", node_id=1), runtime, world["coordinator"]
        )
        await service.start()
        node.service = service
        await asyncio.get_running_loop().create_future()

    machine = simulation.node("b1", broker)

    async def scenario(simulation: Simulation) -> set[tuple[str, str]]:
        world["coordinator"] = MemoryCoordinator(machine.clock)
        machine.start()
        await asyncio.sleep(5)
        return {(route.method, route.template) for route in machine.service.doors.http.router.routes()}

    served: set[tuple[str, str]] = simulation.run(scenario, limit_s=60.0)
    assert public == {
        route
        for route in served
        if not route[1].startswith(("/internal/", "/console", "/schemas")) and route not in SQS
    }


def test_the_document_has_them_all(made: dict[str, Any], public: set[tuple[str, str]]) -> None:
    found = {(method.upper(), path) for path, item in made["paths"].items() for method in item}
    assert found == public
    ids = [operation["operationId"] for item in made["paths"].values() for operation in item.values()]
    assert len(set(ids)) == len(ids)


def test_references_lead_somewhere(made: dict[str, Any]) -> None:
    text = json.dumps(made)
    for name in {piece.split('"')[0] for piece in text.split("#/components/schemas/")[1:]}:
        assert name in made["components"]["schemas"]


def test_every_operation_says_how_it_refuses(made: dict[str, Any]) -> None:
    for path, item in made["paths"].items():
        for method, operation in item.items():
            refusal = operation["responses"]["default"]["content"]
            assert list(refusal) == ["application/problem+json"], (method, path)


def test_path_parameters_are_named(made: dict[str, Any]) -> None:
    for path, item in made["paths"].items():
        wanted = {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for operation in item.values():
            named = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert named == wanted, path


def test_what_is_committed_is_what_is_served(made: dict[str, Any]) -> None:
    """The diff of docs/openapi.json is where a reviewer sees that the API changes: `make docs` writes it anew."""
    assert json.loads(COMMITTED.read_text()) == made
