"""A10, A14, A18, A24, A26, A35, A38, A45, A46, A57: rules of security that had been held as units only, through the doors of one secured broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, ResourceType
from raw_client import RawClient
from raw_login import authenticate, log_in, shake
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.main import main
from headrace.cli.user_view import scram_records
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.client

WORD = "a word"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with LocalBroker() as running:
        yield Secured(running)  # type: ignore[arg-type]


def client_of(secured: Secured, user: str, password: str = WORD) -> RawClient:
    client = RawClient(secured.broker.kafka_port)
    log_in(client, user, password)
    return client


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "User:x", "ANONYMOUS", " x", "a\u0000b", "ﬁ", "x" * 250])
def test_a10_a_name_that_could_be_mistaken_is_no_users_at_either_door(secured: Secured, name: str) -> None:
    body = {"name": name, "scram": scram_records(WORD, 4096)}
    status, _ = secured.http("POST", "/api/v1/security/users", body, user=ADMIN, password=PASSWORD)
    assert status == 400
    client = client_of(secured, ADMIN, PASSWORD)
    entry = ScramCredentialUpsertion(name, 1, 4096, b"12345678", bytes(32))
    answer = client.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, AlterUserScramCredentialsRequest([], [entry])
    )
    assert answer.results[0].error_code == 93


def test_a14_versions_are_told_at_any_time_and_nothing_else_before_a_login(secured: Secured) -> None:
    client = RawClient(secured.broker.kafka_port)
    for _ in range(3):
        assert client.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1")).error_code == 0
    log_in(client, ADMIN, PASSWORD)
    assert client.call(ApiKey.API_VERSIONS, 3, ApiVersionsRequest("a", "1")).error_code == 0
    for key, request in (
        (ApiKey.METADATA, MetadataRequest([])),
        (ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest([])),
    ):
        stranger = RawClient(secured.broker.kafka_port)
        stranger.send(key, 4, request)
        assert stranger.is_closed_without_a_word()


@pytest.mark.parametrize(
    "first", [b"p=tls-unique,,n=x,r=abc", b"n,,n=a=2Db,r=abc", b"n,,m=x,n=x,r=abc", b"\xff", b"n,,r=abc"]
)
def test_a18_what_is_no_scram_is_refused_with_the_one_text(secured: Secured, first: bytes) -> None:
    client = RawClient(secured.broker.kafka_port)
    assert shake(client).error_code == 0
    answer = authenticate(client, first)
    assert (answer.error_code, answer.error_message) == (58, "the user name or the password is wrong")
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("iterations", [100, 4095, 100_001])
def test_a18_iterations_have_a_least_and_a_most(secured: Secured, iterations: int) -> None:
    records = scram_records(WORD, 4096)
    for record in records.values():
        record["iterations"] = iterations
    body = {"name": "few", "scram": records}
    assert secured.http("POST", "/api/v1/security/users", body, user=ADMIN, password=PASSWORD)[0] == 400


def test_a24_a_name_and_a_password_are_taken_and_nothing_is_hinted_in_the_answer(secured: Secured) -> None:
    user = secured.user()
    status, shown = secured.http("GET", "/api/v1/topics", user=user, password=WORD)
    assert (status, shown["items"]) == (200, [])
    assert secured.http("GET", "/api/v1/topics", user=user, password="another")[0] == 401


def test_a26_health_is_open_and_figures_are_not(secured: Secured) -> None:
    import urllib.request

    for path in ("/livez", "/readyz"):
        with urllib.request.urlopen(secured.broker.url + path, timeout=60) as answer:
            assert answer.status == 200
    assert secured.http("GET", "/metrics")[0] == 401
    assert secured.http("GET", "/metrics", user=secured.user(), password=WORD)[0] == 403


def test_a35_no_answer_holds_what_is_secret(secured: Secured) -> None:
    token = secured.http("POST", "/api/v1/security/tokens", {}, user=ADMIN, password=PASSWORD)[1]["token"]
    client = client_of(secured, ADMIN, PASSWORD)
    asked = DescribeConfigsRequest([DescribeConfigsResource(4, str(1), None)])
    seen = str(client.call(ApiKey.DESCRIBE_CONFIGS, 4, asked))
    routes = (
        "/api/v1/security",
        "/api/v1/security/users",
        "/api/v1/security/tokens",
        "/api/v1/security/denials",
    )
    for route in routes:
        seen += json.dumps(secured.http("GET", route, token=token)[1])
    assert PASSWORD not in seen and token not in seen and "stored_key" not in seen


def test_a38_a_verdict_on_an_open_connection_follows_the_rights(secured: Secured, topic: str) -> None:
    user = secured.user()
    secured.topic(topic)
    client = client_of(secured, user)

    def code() -> int:
        named = [MetadataRequestTopic(name=topic)]
        return int(client.call(ApiKey.METADATA, 9, MetadataRequest(named)).topics[0].error_code)

    assert code() == code() == 29
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    assert code() == code() == 0


def test_a45_what_may_be_seen_is_forbidden_in_words_and_the_rest_is_not_there(
    secured: Secured, topic: str
) -> None:
    user = secured.user()
    secured.topic(topic)
    assert secured.http("GET", "/api/v1/topics")[0] == 401
    assert secured.http("DELETE", f"/api/v1/topics/{topic}", user=user, password=WORD)[0] == 404
    secured.allow(user, AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
    status, answer = secured.http("DELETE", f"/api/v1/topics/{topic}", user=user, password=WORD)
    assert (status, answer["code"], answer["detail"]) == (
        403,
        "ACCESS_DENIED",
        f"needs Delete on topic {topic}",
    )


def test_a46_making_what_is_there_and_forbidden_says_forbidden(secured: Secured, topic: str) -> None:
    user = secured.user()
    secured.topic(topic)
    answers = [
        secured.http("POST", "/api/v1/topics", {"name": name}, user=user, password=WORD)
        for name in (topic, f"{topic}-absent")
    ]
    assert [status for status, _ in answers] == [403, 403]
    assert answers[0][1]["detail"].replace(topic, "") == answers[1][1]["detail"].replace(
        f"{topic}-absent", ""
    )


def test_a57_certificates_are_made_shown_and_checked_by_commands(tmp_path: Path) -> None:
    def headrace(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, words)
        assert done.exit_code == code, done.output
        return done.output

    authority, leaf = tmp_path / "ca.pem", tmp_path / "leaf.pem"
    headrace("cert", "ca", "--out", str(authority))
    headrace("cert", "issue", "queue.example", "--ca", str(authority), "--out", str(leaf))
    assert "queue.example" in headrace("cert", "show", str(leaf))
    assert [path.stat().st_mode & 0o077 for path in tmp_path.glob("*.key")] == [0, 0]
    (tmp_path / "leaf.key").write_text((tmp_path / "ca.key").read_text())
    done = CliRunner().invoke(main, ["cert", "check", str(leaf)])
    assert done.exit_code != 0, done.output
