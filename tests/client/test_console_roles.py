"""W19 and acceptance 14: the roles of docs/roles.md against every operation of the API, asked as each of them; HEADRACE_REWRITE_GOLDEN=1 writes its table anew."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from secured import ADMIN, PASSWORD, Secured

from headrace.security.roles import ROLES
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "roles.md"
DOCUMENT = json.loads((ROOT / "docs" / "openapi.json").read_text())
WORD = "a word"
NAMES = {
    "topic": "orders",
    "queue": "jobs",
    "group": "billing",
    "partition": "0",
    "offset": "0",
    "name": "orders",
}
BODIES: dict[str, Any] = {
    "POST /api/v1/topics": {"name": "orders"},
    "POST /api/v1/queues": {"name": "jobs"},
    "POST /api/v1/schedules": {"name": "s", "cron": "never", "topic": "orders"},
    "POST /api/v1/webhooks": {"queue": "jobs", "url": "nowhere"},
    "POST /api/v1/subscriptions": {"name": "sub", "topics": ["orders"], "nonsense": 1},
    "POST /api/v1/groups/{group}/seek": {"topic": "orders", "to": "nowhere"},
    "POST /api/v1/queues/{queue}/moves": {"act": "redrive", "dry_run": True},
}
LEFT_OUT = re.compile(
    r"^(GET /(livez|readyz|healthz|health|metrics|openapi|docs|$)|\w+ /schemas|\w+ /api/v1/session|\w+ /api/v1/security/users/\{user\}/password)"
)
"""Asked before anybody has logged in, or not of the console."""


def operations() -> list[str]:
    return [
        f"{method.upper()} {path}"
        for path, found in DOCUMENT["paths"].items()
        for method in found
        if method in ("get", "post", "put", "patch", "delete")
        and not LEFT_OUT.match(f"{method.upper()} {path}")
    ]


class Roles(Secured):
    """A user of each role, who got it from the command line."""

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker)
        self.users = {role: self.user(WORD) for role in ROLES}
        for role, user in self.users.items():
            self.run("acl", "grant", user, role)

    def run(self, *words: str) -> list[dict[str, str]]:
        command = [sys.executable, "-m", "headrace", *words, "-b", self.broker.bootstrap, "-o", "json"]
        login = {"HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**os.environ, **login}
        )
        assert done.returncode == 0, done.stderr
        items: list[dict[str, str]] = json.loads(done.stdout)["items"]
        return items


@pytest.fixture(scope="module")
def secured() -> Iterator[Roles]:
    webhooks = {"ALLOW_HTTP": "true", "NETWORKS": "127.0.0.0/8", "PORTS": "any"}
    environment = {f"HEADRACE_WEBHOOK_{name}": value for name, value in webhooks.items()}
    with BrokerProcess(environment=environment) as running:
        yield Roles(running)


def status(secured: Roles, role: str, operation: str) -> int:
    method, template = operation.split(" ", 1)
    path = re.sub(r"\{(\w+)\*?\}", lambda found: NAMES.get(found[1], "nothing"), template)
    if method == "GET" and template.endswith(("/tail", "/histogram", "/search", "/records", "/messages")):
        path += "?peek&limit=1" if template.endswith("/messages") else ""
    user, word = (ADMIN, PASSWORD) if role == "super" else (secured.users[role], WORD)
    headers = {
        "authorization": "Basic " + base64.b64encode(f"{user}:{word}".encode()).decode(),
        "content-type": "application/json",
        "x-headrace-client": "test",
    }
    body = None if method == "GET" else json.dumps(BODIES.get(operation, {}))
    connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status  # the body of a stream never ends
    finally:
        connection.close()


def renew(secured: Roles) -> None:
    """What an operation before may have taken away."""
    for operation in ("POST /api/v1/topics", "POST /api/v1/queues"):
        status(secured, "super", operation)
    for path, body in (
        ("/api/v1/groups/billing/seek", {"topic": "orders", "to": "start"}),
        ("/api/v1/schedules", {"name": "nightly", "cron": "0 2 * * *", "topic": "orders", "value": "x"}),
        ("/api/v1/webhooks", {"name": "hook", "queue": "jobs", "url": "http://127.0.0.1:9/in"}),
        ("/api/v1/queues/jobs/moves", {"act": "discard"}),
    ):
        _, made = secured.http("POST", path, body, user=ADMIN, password=PASSWORD)
        if "moves" in path and "id" in made:
            NAMES["task"] = made["id"]


def judged(codes: list[int]) -> tuple[str, ...]:
    """What may not be seen is not there (A44): 404 is a refusal where somebody else found it. Where nobody did, a 403 is the only refusal, and all 404 say nothing."""
    exists = any(code not in (403, 404) for code in codes)
    if not exists and 403 not in codes:
        return ()
    refusals = (403, 404) if exists else (403,)
    return tuple("no" if code in refusals else "yes" for code in codes)


def table() -> dict[str, tuple[str, ...]]:
    rows = re.findall(
        r"^\| `([A-Z]+ [^`]+)` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", PAGE.read_text(), re.MULTILINE
    )
    return {operation: tuple(verdicts) for operation, *verdicts in rows}


def test_w19_each_role_may_what_the_table_says_and_nothing_else(secured: Roles) -> None:
    found: dict[str, tuple[str, ...]] = {}
    renew(secured)
    for operation in operations():
        codes = []
        for role in ROLES:
            if role == "admin" and operation.startswith("DELETE"):
                renew(secured)
            code = status(secured, role, operation)
            assert code != 401, (operation, role)
            codes.append(code)
        if verdicts := judged(codes):
            found[operation] = verdicts
    if os.environ.get("HEADRACE_REWRITE_GOLDEN"):
        head = PAGE.read_text().partition("<!-- table -->")[0]
        rows = "".join(f"| `{one}` | {' | '.join(verdicts)} |\n" for one, verdicts in sorted(found.items()))
        PAGE.write_text(
            f"{head}<!-- table -->\n\n| operation | {' | '.join(ROLES)} |\n|---|---|---|---|---|\n{rows}"
        )
    assert found == table()


def test_w19_a_role_that_is_taken_is_gone(secured: Roles) -> None:
    """Roles are words for rights: what one gave, the other takes, and nothing of it is left."""
    user = secured.user(WORD)
    given = secured.run("acl", "grant", user, "operator", "--prefix", "shop-")
    assert {row["name"] for row in given if row["resource"] == "topic"} == {"shop-"}
    assert len(secured.run("acl", "revoke", user, "operator", "--prefix", "shop-")) == len(given)
    assert secured.run("acl", "list", user) == []
