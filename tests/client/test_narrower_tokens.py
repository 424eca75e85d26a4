"""A9, A40: tokens that may less than their owners, and what was opened with a token that has ended, at both doors and on the command line."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from raw_client import RawClient
from raw_login import authenticate, shake
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.client

WORD = "a word"
TOKENS = "/api/v1/security/tokens"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess(arguments=("--allow-plain-without-tls",)) as running:
        yield Secured(running)


def right(operation: str, resource: str, name: str = "") -> dict[str, str]:
    return {"operation": operation, "resource": resource, "name": name}


def token_of(secured: Secured, user: str, *rights: dict[str, str], password: str = WORD) -> dict[str, Any]:
    status, made = secured.http(
        "POST", TOKENS, {"rights": list(rights) or None}, user=user, password=password
    )
    assert status == 201, made
    return dict(made)


def somebody(secured: Secured, topic: str) -> str:
    """May read and write a topic, and read another."""
    user = secured.user()
    secured.topic(topic)
    secured.topic(f"{topic}-more")
    for name in (topic, f"{topic}-more"):
        secured.allow(user, AclOperation.READ, ResourceType.TOPIC, name)
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, topic)
    return user


def bearer(secured: Secured, token: str) -> RawClient:
    client = RawClient(secured.broker.kafka_port)
    assert shake(client, "OAUTHBEARER").error_code == 0
    assert authenticate(client, b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01").error_code == 0
    return client


def produced(secured: Secured, topic: str, token: str) -> int:
    body = {"records": [{"value": "x"}]}
    return secured.http("POST", f"/topics/{topic}/records", body, token=token)[0]


def seen(client: RawClient, *topics: str) -> list[int]:
    named = [MetadataRequestTopic(name=topic) for topic in topics]
    return [row.error_code for row in client.call(ApiKey.METADATA, 9, MetadataRequest(named)).topics]


def test_a40_a_token_is_for_less_than_its_owner_may_and_never_for_more(secured: Secured, topic: str) -> None:
    user = somebody(secured, topic)
    whole = token_of(secured, user)["token"]
    assert produced(secured, topic, whole) < 300
    reads = token_of(secured, user, right("Read", "Topic", topic), right("Write", "Topic", "*other*"))
    token = reads["token"]
    assert reads["rights"] == [right("Read", "Topic", topic), right("Write", "Topic", "*other*")]
    assert produced(secured, topic, token) == 403, "the owner may, the token not"
    assert secured.http("GET", f"/topics/{topic}/records", token=token)[0] == 200
    assert secured.http("GET", f"/topics/{topic}-more/records", token=token)[0] == 404
    listed = secured.http("GET", "/api/v1/topics", token=token)[1]["items"]
    assert [each["name"] for each in listed] == [topic], "Read implies Describe, of this one"
    more = token_of(secured, user, right("Delete", "Topic", "*"), right("Alter", "Cluster"))["token"]
    assert secured.http("DELETE", f"/api/v1/topics/{topic}", token=more)[0] in (403, 404)
    assert secured.http("GET", "/api/v1/security/users", token=more)[0] == 403
    kafka = bearer(secured, token)
    assert seen(kafka, topic, f"{topic}-more") == [0, 29]


def test_a40_a_super_users_token_is_bound_too(secured: Secured, topic: str) -> None:
    secured.topic(topic)
    token = token_of(secured, ADMIN, right("Write", "Topic", f"{topic[:-1]}*"), password=PASSWORD)["token"]
    assert produced(secured, topic, token) < 300
    assert secured.http("GET", "/api/v1/security/users", token=token)[0] == 403
    assert secured.http("GET", f"/topics/{topic}/records", token=token)[0] == 403


def test_a40_with_a_token_that_may_less_nobody_makes_one_that_may_more(secured: Secured, topic: str) -> None:
    user = somebody(secured, topic)
    token = token_of(secured, user, right("Read", "Topic", topic))["token"]
    for method, path, body in (
        ("POST", TOKENS, {}),
        ("POST", "/api/v1/security/keys", {}),
        ("POST", "/api/v1/session/links", None),
        ("DELETE", f"{TOKENS}/{token_of(secured, user)['id']}", None),
    ):
        status, answer = secured.http(method, path, body, token=token)
        assert status == 403, (path, answer)
    connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=30)
    connection.request(
        "POST", "/api/v1/session", json.dumps({"token": token}), {"content-type": "application/json"}
    )
    begun = connection.getresponse()
    cookie = (begun.headers["set-cookie"] or "").partition(";")[0]
    csrf = json.loads(begun.read())["csrf"]
    connection.request(
        "POST",
        f"/topics/{topic}/records",
        json.dumps({"records": [{"value": "x"}]}),
        {"content-type": "application/json", "cookie": cookie, "x-headrace-csrf": csrf},
    )
    assert connection.getresponse().status == 403, "a session that was begun with it is no more than it"
    connection.close()


@pytest.mark.parametrize(
    "wrong", [right("Read", "Nothing", "x"), right("Read", "Topic"), right("Write", "Group", "g")]
)
def test_a40_a_right_that_nothing_has_is_refused_in_words(secured: Secured, wrong: dict[str, str]) -> None:
    status, answer = secured.http("POST", TOKENS, {"rights": [wrong]}, user=ADMIN, password=PASSWORD)
    assert status == 400 and answer["detail"], answer


def test_a9_what_was_opened_with_a_token_ends_with_it_and_nothing_else_does(
    secured: Secured, topic: str
) -> None:
    user = somebody(secured, topic)
    doomed, kept = token_of(secured, user), token_of(secured, user)
    connections = [bearer(secured, each["token"]) for each in (doomed, kept)]
    for client in connections:
        assert seen(client, topic) == [0]
    stream = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=60)
    headers = {"authorization": f"Bearer {doomed['token']}", "x-headrace-client": "test"}
    stream.request("GET", f"/topics/{topic}/tail", headers=headers)
    reply = stream.getresponse()
    assert reply.status == 200
    secured.ask("DELETE", f"/tokens/{doomed['id']}")
    assert connections[0].is_closed_by_broker()
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        while reply.read(1):  # what was sent before it ended
            pass
        raise ConnectionError("its end")
    assert seen(connections[1], topic) == [0]
    assert secured.http("GET", "/api/v1/topics", token=doomed["token"])[0] == 401


def test_a40_on_the_command_line_and_in_what_was_denied(secured: Secured, topic: str) -> None:
    user = somebody(secured, topic)

    def headrace(*words: str) -> Any:
        environment = {
            **os.environ, "HEADRACE_URL": secured.broker.url, "HEADRACE_USER": user, "HEADRACE_PASSWORD": WORD,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words, "--json"],
            env=environment, text=True, capture_output=True, timeout=120,
        )  # fmt: skip
        return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr

    code, made = headrace("token", "create", "--may", f"read,describe-configs topic {topic}*")
    assert code == 0 and made["rights"] == [
        f"read topic {topic}*",
        f"describe-configs topic {topic}*",
    ]
    assert produced(secured, topic, made["token"]) == 403
    code, said = headrace("token", "create", "--may", "everything")
    assert code == 2 and "is no right" in json.dumps(said)
    denied = [
        each for each in secured.ask("GET", "/denials")["denied"] if each["principal"] == f"User:{user}"
    ]
    assert [(each["operation"], each["name"], each["token"]) for each in denied] == [
        ("Write", topic, made["id"])
    ]
