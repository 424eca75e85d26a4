"""What happened, and who did what: through REST and the command line, on one broker and with rights (A44, A64, W22)."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None, *, page: bool = False) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    headers = {"content-type": "application/json"}
    if page:  # as a browser says it for a page of this very origin
        headers |= {"sec-fetch-site": "same-origin", "origin": f"http://127.0.0.1:{broker.http_port}"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    raw = answer.read()
    connection.close()
    assert answer.status < 300, raw
    return json.loads(raw) if raw else None


def until(look: Any) -> Any:
    while not (found := look()):
        time.sleep(0.05)
    return found


def series(broker: BrokerProcess, name: str) -> list[float | None]:
    found: list[float | None] = ask(broker, "GET", f"/api/v1/history?series={name}")["series"][name]
    return found


def run(broker: BrokerProcess, *words: str) -> Any:
    url = f"http://127.0.0.1:{broker.http_port}"
    command = [sys.executable, "-m", "headrace", *words, "--url", url, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_dead_letters_that_begin_are_told_at_both_doors(broker: BrokerProcess) -> None:
    ask(broker, "POST", "/api/v1/queues", {"name": "jobs-dead"})
    ask(broker, "POST", "/api/v1/queues", {"name": "jobs", "dead_letter": "jobs-dead", "max_deliveries": 5})
    ask(broker, "POST", "/queues/jobs/messages", {"value": "x"})
    # It has to have been seen without any first.
    until(lambda: len([one for one in series(broker, "queue:jobs-dead.ready") if one is not None]) > 1)
    (got,) = ask(broker, "POST", "/queues/jobs/receive")["items"]
    ask(broker, "POST", f"/queues/jobs/messages/{got['receipt']}/reject?detail=no")

    def rows(query: str) -> Any:
        return ask(broker, "GET", f"/api/v1/happenings?{query}")["items"]

    (row,) = until(lambda: rows("name=jobs-dead&severity=warning"))
    assert (row["kind"], row["text"]) == ("dead-letters-begin", "Queue jobs-dead has dead letters")
    assert row["seen_by"] == 1 and row["at"].endswith("Z")
    assert [one["kind"] for one in rows("thing=topic&name=jobs")] == ["topic-created"]
    assert rows("severity=error&name=jobs-dead") == []
    told = run(broker, "cluster", "happenings", "--name", "jobs-dead", "--severity", "warning")["items"]
    assert [one["text"] for one in told] == ["Queue jobs-dead has dead letters"]


def test_w22_a_change_in_the_console_has_its_before_and_after(broker: BrokerProcess) -> None:
    """In mode open too, as console@localhost; no message and no secret is in it, and twice the same is two rows."""
    ask(broker, "POST", "/api/v1/queues", {"name": "mail", "visibility_ms": 30_000}, page=True)
    for _ in range(2):
        ask(broker, "PATCH", "/api/v1/queues/mail", {"visibility_ms": 60_000}, page=True)
    ask(broker, "POST", "/queues/mail/messages", {"value": "a secret of somebody"}, page=True)
    ask(broker, "DELETE", "/api/v1/queues/mail", page=True)
    ask(broker, "POST", "/api/v1/queues", {"name": "no-page-made-this"})

    def rows(query: str = "") -> Any:
        return ask(broker, "GET", f"/api/v1/audit?event=console&{query}")["items"]

    until(lambda: any(row["operation"] == "DELETE" for row in rows()))
    deleted, sent, again, changed, made = rows()
    assert {row["principal"] for row in rows()} == {"console@localhost"}
    assert json.loads(deleted["before"]["visibility_ms"]) == 60_000 and deleted["after"] == {}
    assert changed["before"] == dict.fromkeys(("visibility_ms", "config.visibility_ms"), "30000")
    assert changed["after"] == dict.fromkeys(("visibility_ms", "config.visibility_ms"), "60000")
    assert (again["before"], again["after"]) == ({}, {}) and again["request_id"] != changed["request_id"]
    assert made["before"] == {} and json.loads(made["after"]["name"]) == "mail"
    assert sent["before"] == sent["after"] == {} and "secret of somebody" not in json.dumps(rows())
    (only,) = rows("contains=" + changed["request_id"])
    assert only == changed
    first = ask(broker, "GET", "/api/v1/audit?limit=2&event=console")
    more = ask(broker, "GET", f"/api/v1/audit?limit=9&event=console&cursor={first['next_cursor']}")
    assert first["items"] + more["items"] == [deleted, sent, again, changed, made]
    told = run(broker, "security", "audit", "--event", "console", "--user", "console@localhost")["items"]
    assert [row["request_id"] for row in told] == [row["request_id"] for row in rows()]


def test_a44_who_sees_one_topic_is_told_of_that_one_and_the_audit_needs_its_right() -> None:
    with BrokerProcess() as running:
        secured = Secured(running)
        user = secured.user()
        for name in ("seen", "unseen"):
            secured.topic(name)
        secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, "seen")

        def told(who: str, word: str) -> set[str]:
            _, found = secured.http("GET", "/api/v1/happenings?thing=topic", user=who, password=word)
            return {name for row in found["items"] for name in row["names"]}

        until(lambda: {"seen", "unseen"} <= told(ADMIN, PASSWORD))
        assert told(user, "a word") == {"seen"}
        assert secured.http("GET", "/api/v1/happenings")[0] == 401
        assert secured.http("GET", "/api/v1/audit", user=user, password="a word")[0] == 403
        secured.allow(user, AclOperation.DESCRIBE, ResourceType.BROKER, "kafka-cluster")
        until(lambda: secured.http("GET", "/api/v1/cluster", user=user, password="a word")[0] == 200)
        assert secured.http("GET", "/api/v1/audit", user=user, password="a word")[0] == 403
        status, found = secured.http("GET", "/api/v1/audit?event=login", user=ADMIN, password=PASSWORD)
        assert status == 200 and all(row["event"] == "login" for row in found["items"])
