"""A39: every API, route and action names the right that it needs, and where in the request the name of the resource stands."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator

import pytest

from headrace.http.rest.described import public_router
from headrace.http.router import Route, Router
from headrace.http.schemas.door import SchemaDoor
from headrace.http.sqs.door import ACTIONS
from headrace.http.sqs.rights import RIGHTS as SQS_RIGHTS
from headrace.http.sqs.rights import named
from headrace.kafka.dispatch import TABLE
from headrace.security.rights import CLUSTER, GROUP, TOPIC, Operation, Resource, Right, Rights
from headrace.wire.api import API

PLACE = re.compile(r"(topics? of )?(queue of |source of )?(\{[a-z]+\}|body\.[a-z_]+(\[\])?)")
BEFORE_LOGIN = {17, 18, 36}
LEGAL = {
    TOPIC: {"READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    GROUP: {"READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
    CLUSTER: {
        "CREATE",
        "ALTER",
        "DESCRIBE",
        "CLUSTER_ACTION",
        "IDEMPOTENT_WRITE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    },
    Resource.TRANSACTIONAL_ID: {"WRITE", "DESCRIBE"},
}
"""Which operations Kafka's own tools accept for a kind of resource (A36)."""


class AsCalled:
    """Names as they are."""

    def inside(self, name: str) -> str:
        return name

    name_of_arn = inside


def rights_in(rights: Rights) -> Iterator[Right]:
    for choices in rights.needs:
        yield from choices
    yield from rights.shows
    yield from rights.makes


def fields(kind: typing.Any) -> dict[str, typing.Any]:
    return typing.get_type_hints(kind)


def element(hint: typing.Any) -> typing.Any:
    """Of a list, or a list or nothing."""
    for found in (hint, *typing.get_args(hint)):
        if typing.get_origin(found) in (list, typing.get_origin(typing.Sequence[int])):
            return typing.get_args(found)[0]
    raise AssertionError(f"{hint} is no list")


@pytest.mark.parametrize("key", sorted(TABLE), ids=lambda key: API[key].name)
def test_a39_an_api_names_its_rights_and_where_the_names_are(key: int) -> None:
    rights = TABLE[key].rights
    assert isinstance(rights, Rights)
    assert rights.before_login == (key in BEFORE_LOGIN)
    for choices in rights.needs:
        for right in choices:
            assert right.places or right.resource is CLUSTER, f"{right} of what?"
            for place in right.places:
                held = API[key].request
                *path, last = place.split(".")
                for part in path:
                    hint = fields(held)[part.removesuffix("[]")]
                    # A field that is one struct, or nothing, is gone through by its name alone.
                    held = element(hint) if part.endswith("[]") else typing.get_args(hint)[0]
                assert last.removesuffix("[]") in fields(held), place
                assert right.only is None or right.only.field in fields(held), place


def test_a39_a_handler_without_rights_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.kafka import dispatch
    from headrace.kafka.handlers import k12_heartbeat

    monkeypatch.delattr(k12_heartbeat, "RIGHTS")
    with pytest.raises(AttributeError, match="RIGHTS"):
        dispatch._load()


def all_routes() -> list[Route]:
    """What the OpenAPI document shows, and the schema registry, which has a contract of its own."""
    router = Router()
    SchemaDoor(None).mount(router, "/schemas")  # type: ignore[arg-type]
    return [*public_router("0").routes(), *router.routes()]


def test_a39_a_route_names_its_rights_and_where_the_names_are() -> None:
    open_routes = set()
    for route in all_routes():
        rights = route.rights
        assert isinstance(rights, Rights), route.template
        if rights.before_login:
            open_routes.add(route.template)
        for choices in rights.needs:
            for right in choices:
                assert right.places or right.resource is CLUSTER, f"{route.template}: {right} of what?"
                for place in right.places:
                    assert all(PLACE.fullmatch(each) for each in place.split(" or ")), place
                    in_path = re.search(r"\{[a-z]+\}", place)
                    assert in_path is None or in_path.group() in route.template, place
    assert open_routes == {"/livez", "/readyz", "/healthz", "/health", "/openapi.json", "/api/v1/session"}


def test_a39_an_action_of_sqs_names_its_rights() -> None:
    assert SQS_RIGHTS.keys() == ACTIONS.keys()
    for rights in SQS_RIGHTS.values():
        for right in rights_in(rights):
            for place in right.places:
                in_path = re.search(r"\{([a-z]+)\}", place)
                assert in_path is not None and in_path.group(1) in named({}, AsCalled()), place


def test_a36_only_operations_that_kafkas_tools_accept_are_used() -> None:
    tables = [entry.rights for entry in TABLE.values()]
    tables += [route.rights for route in all_routes()]
    tables += SQS_RIGHTS.values()
    for rights in tables:
        for right in rights_in(rights):
            assert Operation(right.operation).name in LEGAL[right.resource], right
