"""Rights and roles over REST (A36, W19): listed, given and taken as Kafka's clients see them; and a session that nobody touches ends (W18)."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from secured import ADMIN, PASSWORD, Secured

from headrace.security.roles import ROLES, acls_of_role
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess() as running:
        yield Secured(running)


def by_kafka(secured: Secured, user: str) -> set[tuple[str, str, str]]:
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )  # fmt: skip
    return {
        (acl.restype.name, acl.name, acl.operation.name)
        for acl in secured.admin.describe_acls(every).result(30)
    }


def test_w19_roles_and_rights_are_given_and_taken(secured: Secured) -> None:
    alice = secured.user()
    role = {"roles": [{"principal": f"User:{alice}", "role": "operator", "prefix": "shop-"}]}
    shown = secured.ask("POST", "/acls", {**role, "dry_run": True})["items"]
    expected = len(acls_of_role(f"User:{alice}", "operator", "shop-"))
    assert len(shown) == expected and by_kafka(secured, alice) == set()
    assert secured.ask("POST", "/acls", role)["items"] == shown
    assert len(by_kafka(secured, alice)) == expected
    assert secured.ask("POST", "/acls", role)["items"] == [], "it has them already"
    listed = secured.ask("GET", f"/acls?principal=User:{alice}&limit=5")
    assert len(listed["items"]) == 5 and listed["total"] == expected and listed["next_cursor"]
    assert listed["items"][0]["policy"] is None
    one = {"principal": f"User:{alice}", "operation": "Read", "resource": "Topic", "name": "audit-copies"}
    assert len(secured.ask("POST", "/acls", {"items": [one]})["items"]) == 1
    assert ("TOPIC", "audit-copies", "READ") in by_kafka(secured, alice)
    assert [row["name"] for row in secured.ask("GET", "/acls?q=audit-copies")["items"]] == ["audit-copies"]
    assert len(secured.ask("POST", "/acls/remove", {**role, "dry_run": True})["items"]) == expected
    assert len(by_kafka(secured, alice)) == expected + 1
    secured.ask("POST", "/acls/remove", role)
    assert by_kafka(secured, alice) == {("TOPIC", "audit-copies", "READ")}
    assert {one["name"] for one in secured.ask("GET", "/roles")["items"]} == set(ROLES)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"items": [{"principal": "alice", "operation": "Read", "resource": "Topic", "name": "x"}]},
        {"items": [{"principal": "User:a", "operation": "Fly", "resource": "Topic", "name": "x"}]},
        {"items": [{"principal": "User:a", "operation": "Write", "resource": "Group", "name": "x"}]},
        {"items": [{"principal": "User:a", "operation": "Read", "resource": "Topic"}]},
        {"items": [{"principal": "User:a", "operation": "Read", "resource": "Topic", "name": "x", "host": "nonsense/99"}]},
        {"roles": [{"principal": "User:a", "role": "king"}]},
        {"roles": [{"principal": "nobody", "role": "viewer"}]},
    ],
)  # fmt: skip
def test_what_is_no_right_gives_nobody_anything(secured: Secured, wrong: Any) -> None:
    good = {"principal": "User:a", "operation": "Read", "resource": "Topic", "name": "fine"}
    body = {**wrong, "items": [good, *wrong["items"]]} if "items" in wrong else wrong
    for path in ("/acls", "/acls/remove"):
        status, said = secured.http("POST", f"/api/v1/security{path}", body, user=ADMIN, password=PASSWORD)
        assert status == 400, said
    assert by_kafka(secured, "a") == set(), "all of them or none"


def test_who_may_not_alter_the_cluster_gives_nobody_rights(secured: Secured) -> None:
    bob = secured.user("his word")
    body = {"roles": [{"principal": f"User:{bob}", "role": "admin"}]}
    for path in ("/acls", "/acls/remove"):
        assert secured.http("POST", f"/api/v1/security{path}", body, user=bob, password="his word")[0] == 403
    assert secured.http("GET", "/api/v1/security/acls", user=bob, password="his word")[0] == 403


def raw(
    broker: BrokerProcess, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    connection.request(
        method,
        path,
        None if body is None else json.dumps(body),
        {"content-type": "application/json", **headers},
    )
    response = connection.getresponse()
    found = response.read()
    connection.close()
    return response.status, json.loads(found) if found else None, response.headers


def test_w18_a_session_that_nobody_touches_ends_at_the_broker() -> None:
    """An open page that only asks for numbers is nobody at it; the session is gone from the cluster, not from the page alone."""
    with BrokerProcess(environment={"HEADRACE_CONSOLE_IDLE_MS": "1500"}) as broker:
        secured = Secured(broker)
        status, _, headers = raw(broker, "POST", "/api/v1/session", {"user": ADMIN, "password": PASSWORD})
        assert status == 201
        mine = {"cookie": headers["set-cookie"].partition(";")[0]}
        assert raw(broker, "GET", "/api/v1/topics", **mine)[0] == 200
        touches = 0
        while len(secured.ask("GET", "/tokens")["items"]) == 1 and touches < 40:
            assert raw(broker, "GET", "/api/v1/topics", **mine, **{"x-headrace-touched": "yes"})[0] == 200
            touches += 1
        assert touches == 40
        while raw(broker, "GET", "/api/v1/topics", **mine)[0] == 200:
            pass  # what is no touch does not keep it
        assert secured.ask("GET", "/tokens")["items"] == []
        assert raw(broker, "GET", "/api/v1/session", **mine)[1]["login"] is True
