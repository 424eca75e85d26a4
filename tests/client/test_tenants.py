"""A62, A63: tenants that see nothing of each other, and quotas on the command line and over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.local_broker import LocalBroker

pytestmark = pytest.mark.client

TENANTS = "/api/v1/security/tenants"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with LocalBroker(allow_plain_without_tls=True) as running:
        yield Secured(running)  # type: ignore[arg-type]


def headrace(secured: Secured, *words: str, code: int = 0) -> Any:
    environment = {
        **os.environ, "HEADRACE_URL": secured.broker.url, "HEADRACE_BOOTSTRAP": secured.broker.bootstrap,
        "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--json"],
        env=environment, text=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout or done.stderr)


def names(found: Any) -> list[str]:
    return [each["name"] for each in found["items"]]


def test_a63_two_tenants_see_nothing_of_each_other_in_any_list_or_error(secured: Secured) -> None:
    tokens = {}
    for tenant in ("acme", "evil"):
        made = headrace(secured, "tenant", "create", tenant, "--produce", "10MB")
        assert (made["prefix"], made["produce"]) == (f"{tenant}.", 10_000_000)
        tokens[tenant] = made["token"]
        ask = lambda method, path, body=None: secured.http(method, path, body, token=tokens[tenant])  # noqa: E731, B023
        assert ask("POST", "/api/v1/topics", {"name": f"{tenant}.orders"})[0] == 201
        assert ask("POST", "/api/v1/queues", {"name": f"{tenant}.jobs"})[0] == 201
        assert ask("POST", f"/topics/{tenant}.orders/records", {"value": "ours"})[0] < 300
        assert ask("POST", f"/queues/{tenant}.jobs/messages", {"value": "ours"})[0] < 300
        schedule = {"name": f"{tenant}-tick", "cron": "0 0 1 1 *", "topic": f"{tenant}.orders"}
        assert ask("POST", "/api/v1/schedules", schedule)[0] == 201
    routes = [
        "/api/v1/topics", "/api/v1/queues", "/api/v1/groups", "/api/v1/subscriptions", "/api/v1/webhooks",
        "/api/v1/schedules", "/api/v1/security/tokens", "/api/v1/flow", "/api/v1/dead-letters", "/api/v1/history",
    ]  # fmt: skip
    for route in routes:
        status, answer = secured.http("GET", route, token=tokens["evil"])
        assert status in (200, 400, 403, 404), (route, status, answer)
        assert "acme" not in json.dumps(answer), (route, answer)
    for method, there, absent, body in (
        ("GET", "/api/v1/topics/acme.orders", "/api/v1/topics/acme.nothing", None),
        ("GET", "/topics/acme.orders/records", "/topics/acme.nothing/records", None),
        ("DELETE", "/api/v1/topics/acme.orders", "/api/v1/topics/acme.nothing", None),
        ("GET", "/api/v1/queues/acme.jobs", "/api/v1/queues/acme.nothing", None),
        ("POST", "/topics/acme.orders/records", "/topics/acme.nothing/records", {"value": "x"}),
        ("POST", "/queues/acme.jobs/messages", "/queues/acme.nothing/messages", {"value": "x"}),
    ):
        one, other = (secured.http(method, path, body, token=tokens["evil"]) for path in (there, absent))
        assert one[0] == other[0] in (403, 404), (there, one, other)
        assert (
            str(one[1]["detail"]).replace("orders", "nothing").replace("jobs", "nothing")
            == other[1]["detail"]
        )
    assert secured.http("GET", "/metrics", token=tokens["evil"])[0] in (401, 403, 404) or "acme" not in str(
        secured.http("GET", "/metrics", token=tokens["evil"])[1]
    )
    shown = {each["name"]: each for each in headrace(secured, "tenant", "list")["items"]}
    assert shown["acme"]["topics"] == 2 and shown["evil"]["topics"] == 2
    headrace(secured, "tenant", "delete", "evil", "--yes")
    assert secured.http("GET", "/api/v1/topics", token=tokens["evil"])[0] == 401
    assert names(headrace(secured, "tenant", "list")) == ["acme"]
    assert not [
        each for each in headrace(secured, "acl", "list")["items"] if each["principal"] == "User:evil"
    ]
    assert [row["user"] for row in headrace(secured, "quota", "list")["items"]] == ["acme"]
    assert names(secured.http("GET", "/api/v1/topics", token=tokens["acme"])[1]) == [
        "acme.jobs",
        "acme.orders",
    ]


def test_a63_a_tenant_that_would_be_anothers_too_is_refused(secured: Secured) -> None:
    secured.ask("POST", "/tenants", {"name": "first"})
    secured.topic("taken.orders")
    for body in ({"name": "first"}, {"name": "taken"}, {"name": "Big"}, {"name": ADMIN}):
        status, answer = secured.http("POST", TENANTS, body, user=ADMIN, password=PASSWORD)
        assert status in (400, 409), (body, answer)
    assert (
        secured.http("POST", TENANTS, {"name": "taken", "adopt": True}, user=ADMIN, password=PASSWORD)[0]
        == 201
    )
    user = secured.user()
    assert secured.http("POST", TENANTS, {"name": "mine"}, user=user, password="a word")[0] == 403
    assert secured.http("GET", TENANTS, user=user, password="a word")[0] == 403


def test_a62_quotas_on_the_command_line_and_the_brokers_time_over_http(secured: Secured) -> None:
    user = secured.user()
    set_ = headrace(secured, "quota", "set", "--user", user, "--consume", "1MB", "--requests", "0.01")[
        "items"
    ]
    assert set_ == [
        {"user": user, "client_id": None, "produce": None, "consume": 1_000_000, "requests": 0.01}
    ]
    answers = [secured.http("GET", "/api/v1/topics", user=user, password="a word")[0] for _ in range(5)]
    assert answers[0] == 200 and 429 in answers, "a ten thousandth of a core is soon used up"
    headrace(secured, "quota", "delete", "--user", user)
    assert user not in [row["user"] for row in headrace(secured, "quota", "list")["items"]]
    assert "no such quota" in json.dumps(headrace(secured, "quota", "delete", "--user", user, code=3))
    assert secured.http("GET", "/api/v1/topics", user=user, password="a word")[0] == 200
