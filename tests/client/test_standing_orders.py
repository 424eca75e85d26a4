"""A9, A39: webhooks and schedules run as who set them last: rights that are withdrawn stop them, and those of others are not replaced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, ResourceType
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import QUICK, Endpoint, Server, until

from headrace.testing.local_broker import LocalBroker

pytestmark = pytest.mark.client

WORD = "a word"


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker(
        webhook_allow_http=True, webhook_networks="127.0.0.0/8,::1", webhook_ports="any"
    ) as running:
        yield running


@pytest.fixture(scope="module")
def secured(local: LocalBroker) -> Secured:
    return Secured(local)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def ask(
    secured: Secured, method: str, path: str, body: Any = None, user: str = ADMIN, status: int = 0
) -> Any:
    found, answer = secured.http(method, path, body, user=user, password=PASSWORD if user == ADMIN else WORD)
    assert found == status if status else found < 300, (found, answer)
    return answer


def take(secured: Secured, acl: AclBinding) -> None:
    asked = AclBindingFilter(
        acl.restype, acl.name, acl.resource_pattern_type, acl.principal, acl.host, acl.operation, acl.permission_type
    )  # fmt: skip
    for future in secured.admin.delete_acls([asked]).values():
        assert len(future.result(30)) == 1


def pushed(secured: Secured, queue: str, endpoint: Endpoint) -> tuple[str, AclBinding]:
    """Somebody who has set a webhook, and the right without which it has nothing to push."""
    ask(secured, "POST", "/api/v1/queues", {"name": queue})
    user = secured.user()
    secured.allow(user, AclOperation.ALTER_CONFIGS, ResourceType.GROUP, queue)
    secured.allow(user, AclOperation.READ, ResourceType.GROUP, queue)
    acl = secured.allow(user, AclOperation.READ, ResourceType.TOPIC, queue)
    body = {"name": queue, "queue": queue, "url": endpoint.url, "retry": QUICK}
    assert ask(secured, "POST", "/api/v1/webhooks", body, user)["owner"] == f"User:{user}"
    send(secured, queue, "first")
    until(lambda: endpoint.values() == ["first"])
    return user, acl


def send(secured: Secured, queue: str, value: str) -> None:
    ask(secured, "POST", f"/queues/{queue}/messages", {"value": value})


def reason(secured: Secured, webhook: str) -> str:
    return str(ask(secured, "GET", f"/api/v1/webhooks/{webhook}")["reason"])


def test_a39_a_webhook_stops_with_the_rights_of_who_set_it_and_goes_on_with_them(
    secured: Secured, server: Server
) -> None:
    endpoint = server.endpoint()
    user, acl = pushed(secured, "hooked", endpoint)
    take(secured, acl)
    send(secured, "hooked", "second")
    until(lambda: "no Read on topic hooked" in reason(secured, "hooked"))
    assert endpoint.values() == ["first"]
    secured.allow(user, AclOperation.READ, ResourceType.TOPIC, "hooked")
    until(lambda: endpoint.values() == ["first", "second"])


def test_a9_a_webhook_of_a_user_who_is_gone_stops_until_somebody_else_sets_it(
    secured: Secured, server: Server
) -> None:
    endpoint = server.endpoint()
    user, _ = pushed(secured, "orphan", endpoint)
    secured.ask("DELETE", f"/users/{user}")
    send(secured, "orphan", "second")
    until(lambda: "is gone" in reason(secured, "orphan"))
    assert endpoint.values() == ["first"], "the rights are still there, the user is not"
    assert ask(secured, "PATCH", "/api/v1/webhooks/orphan", {"rate": 0})["owner"] == f"User:{ADMIN}"
    until(lambda: endpoint.values() == ["first", "second"])


def test_a39_a_schedule_sends_in_the_name_of_who_set_it(secured: Secured, local: LocalBroker) -> None:
    user, other = secured.user(), secured.user()
    acl = secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, secured.topic("hourly"))
    secured.allow(other, AclOperation.WRITE, ResourceType.TOPIC, secured.topic("elsewhere"))
    schedule = {"name": "tick", "cron": "0 * * * *", "topic": "hourly", "value": "x"}
    assert ask(secured, "POST", "/api/v1/schedules", schedule, user)["owner"] == f"User:{user}"

    def sent() -> int:
        return len(ask(secured, "GET", "/topics/hourly/records")["items"])

    def an_hour() -> None:
        local.clock.advance(minutes=61)

    an_hour()
    until(lambda: sent() > 0)
    ask(secured, "POST", "/api/v1/schedules", {**schedule, "topic": "elsewhere"}, other, status=404)
    ask(secured, "DELETE", "/api/v1/schedules/tick", None, other, status=404)
    take(secured, acl)
    before = sent()
    an_hour()

    def denied() -> list[Any]:
        return [
            each for each in secured.ask("GET", "/denials")["denied"] if each["principal"] == f"User:{user}"
        ]

    until(lambda: any(each["name"] == "hourly" for each in denied()))
    assert sent() == before
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, "hourly")
    an_hour()
    until(lambda: sent() > before)
    ask(secured, "DELETE", "/api/v1/schedules/tick", None, user)


def test_a52_what_nobody_set_is_seen_in_observe_and_stops_when_names_are_asked_for(
    secured: Secured, server: Server
) -> None:
    endpoint = server.endpoint()
    secured.set_mode("open")
    ask(secured, "POST", "/api/v1/queues", {"name": "old"}, user="")
    ask(secured, "POST", "/api/v1/webhooks", {"queue": "old", "url": endpoint.url, "retry": QUICK}, user="")
    ask(secured, "POST", "/queues/old/messages", {"value": "first"}, user="")
    until(lambda: endpoint.values() == ["first"])
    secured.set_mode("observe", user="")
    send(secured, "old", "second")
    until(lambda: endpoint.values() == ["first", "second"])
    status, answer = secured.http(
        "PUT", "/api/v1/security/mode", {"mode": "enforced"}, user=ADMIN, password=PASSWORD
    )
    assert status == 409 and "User:ANONYMOUS Read Group old" in answer["detail"], answer
    secured.set_mode("enforced")
    send(secured, "old", "third")
    until(lambda: "set by nobody" in reason(secured, "old"))
    assert endpoint.values() == ["first", "second"]
