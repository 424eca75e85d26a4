"""A12, A17, A20, A21, P2 (OAUTHBEARER): tokens of an issuer that signs for real, and our own, at the Kafka door and over HTTP."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka.admin import AclOperation, ResourceType
from issuer import TokenIssuer
from raw_client import RawClient
from raw_login import authenticate, log_in, shake
from secured import Secured

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.client, pytest.mark.timeout(300)]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    made = TokenIssuer()
    yield made
    made.close()


@pytest.fixture(scope="module")
def secured(issuer: TokenIssuer) -> Iterator[Secured]:
    with BrokerProcess(arguments=("--allow-plain-without-tls", *issuer.arguments)) as running:
        made = Secured(running)
        # The keys come after the start: until then logins are closed without an answer, and clients try again (A17).
        token = issuer.token("probe")
        while made.http("GET", "/api/v1/topics", token=token)[0] == 503:
            time.sleep(0.1)
        yield made


def somebody(secured: Secured, topic: str) -> str:
    """A principal of the issuer, which has no record here, with rights on a topic."""
    name = f"jwt-{next(_numbers)}@example.com"
    secured.topic(topic)
    for operation in (AclOperation.READ, AclOperation.WRITE):
        secured.allow(name, operation, ResourceType.TOPIC, topic)
    secured.allow(name, AclOperation.READ, ResourceType.GROUP, "g")
    return name


def bearer(client: RawClient, token: str) -> Any:
    assert shake(client, "OAUTHBEARER").error_code == 0
    return authenticate(client, b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01")


def settings(secured: Secured, give: Callable[[], str], refused: list[Any]) -> dict[str, Any]:
    def note(error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            refused.append(error)

    return {
        "bootstrap.servers": secured.broker.bootstrap, "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (give(), time.time() + 3600), "error_cb": note,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["jwt", "own"])
def test_p2_librdkafka_logs_in_with_a_token_and_a_wrong_one_is_its_own_error(
    secured: Secured, issuer: TokenIssuer, topic: str, kind: str
) -> None:
    if kind == "jwt":
        good = issuer.token(somebody(secured, topic))
    else:
        user = secured.user()
        secured.topic(topic)
        secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, topic)
        good = secured.ask("POST", "/tokens", {}, user=user, password="a word")["token"]
    refused: list[Any] = []
    outcome: list[Any] = []
    producer = confluent_kafka.Producer(settings(secured, lambda: good, refused))
    for number in range(100):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: outcome.append(error))
    assert producer.flush(120) == 0 and outcome == [None] * 100 and not refused
    wrong = confluent_kafka.Producer(settings(secured, lambda: good[:-8] + "AAAAAAAA", refused))
    wrong.produce(topic, b"x")
    while not refused:
        wrong.poll(0.2)
    wrong.purge()


async def test_p2_aiokafka_logs_in_with_a_token(secured: Secured, issuer: TokenIssuer, topic: str) -> None:
    token = issuer.token(somebody(secured, topic))

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=secured.broker.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(), enable_idempotence=False,
    )  # fmt: skip
    await producer.start()
    try:
        assert (await producer.send_and_wait(topic, b"x")).offset == 0
    finally:
        await producer.stop()


def test_a12_over_http_a_token_of_the_issuer_is_who_it_says(
    secured: Secured, issuer: TokenIssuer, topic: str
) -> None:
    name = somebody(secured, topic)
    path = f"/topics/{topic}/records"
    assert secured.http("POST", path, {"value": "x"}, token=issuer.token(name))[0] < 300
    assert secured.http("POST", path, {"value": "x"}, token=issuer.token("somebody-else"))[0] == 404
    for wrong in (issuer.token(name, -120), issuer.token(name, aud="other"), "a.b.c"):
        assert secured.http("POST", path, {"value": "x"}, token=wrong)[0] == 401


def test_a20_what_is_wrong_is_said_as_json_first_and_then_the_login_has_failed(
    secured: Secured, issuer: TokenIssuer
) -> None:
    client = RawClient(secured.broker.kafka_port)
    told = bearer(client, issuer.token("x", -120))
    assert told.error_code == 0 and bytes(told.auth_bytes) == b'{"status":"invalid_token"}'
    assert authenticate(client, b"\x01").error_code == 58
    assert client.is_closed_by_broker()
    nonsense = RawClient(secured.broker.kafka_port)
    assert shake(nonsense, "OAUTHBEARER").error_code == 0
    assert b"invalid_token" in bytes(authenticate(nonsense, b"\x00" * 100).auth_bytes)


def test_a21_a_login_ends_with_its_token_unless_it_is_renewed(
    secured: Secured, issuer: TokenIssuer, topic: str
) -> None:
    """KIP-368. How long it is good is in the answer; afterwards the connection ends, without an error that clients hang on."""
    name = somebody(secured, topic)
    asked = MetadataRequest([MetadataRequestTopic(name=topic)])
    for seconds in (3, 9, 27, 81):  # longer on a machine that is too busy to log in so quickly
        client, renewing = (RawClient(secured.broker.kafka_port) for _ in range(2))
        answers = [bearer(each, issuer.token(name, seconds)) for each in (client, renewing)]
        if all(answer.error_code == 0 and answer.session_lifetime_ms for answer in answers):
            break
    assert all(0 < answer.session_lifetime_ms <= seconds * 1_000 for answer in answers)
    assert bearer(renewing, issuer.token(name, 3_600)).session_lifetime_ms > seconds * 1_000
    with pytest.raises(ConnectionError):
        while True:
            assert client.call(ApiKey.METADATA, 9, asked).topics[0].error_code == 0
            time.sleep(0.1)
    assert renewing.call(ApiKey.METADATA, 9, asked).topics[0].error_code == 0
    other = RawClient(secured.broker.kafka_port)
    assert bearer(other, issuer.token(name, 3_600)).error_code == 0
    stolen = bearer(other, issuer.token("somebody-else"))
    assert stolen.error_code == 58, "a renewed login is the same user's"


def test_a21_passwords_have_no_end_unless_it_is_set(
    secured: Secured, fresh_broker: Callable[..., BrokerProcess]
) -> None:
    lifetimes = []
    for held in (secured, Secured(fresh_broker(arguments=("--connections-max-reauth-ms", "90000")))):
        client, user = RawClient(held.broker.kafka_port), held.user()
        log_in(client, user, "a word")
        shake(client)
        lifetimes.append(log_in(client, user, "a word"))
    assert lifetimes[0] == 0 and 60_000 < lifetimes[1] <= 90_000


def test_x6_a_new_key_of_the_issuer_is_fetched_when_a_token_names_it(
    fresh_broker: Callable[..., BrokerProcess], topic: str
) -> None:
    """A17: while the issuer's keys are not there nobody is told that a token is wrong."""
    issuer = TokenIssuer()
    try:
        secured = Secured(fresh_broker(arguments=("--allow-plain-without-tls", *issuer.arguments)))
        name = somebody(secured, topic)
        token = issuer.token(name)

        def status() -> int:
            return secured.http("GET", f"/api/v1/topics/{topic}", token=token)[0]

        while (first := status()) == 503:
            time.sleep(0.1)
        assert first == 200
        asked = issuer.asked
        issuer.rotate("second")
        token = issuer.token(name)
        seen = set()
        while (now := status()) != 200:
            seen.add(now)
            time.sleep(0.5)
        assert issuer.asked > asked and seen <= {401, 503}
    finally:
        issuer.close()


def test_a12_where_the_keys_are_is_found_out_from_the_issuer_itself(issuer: TokenIssuer) -> None:
    settings = {"oidc_issuer": issuer.own_name, "oidc_audience": "headrace"}
    token = issuer.token("probe", iss=issuer.own_name)
    with LocalBroker(**settings) as running:
        secured = Secured(running)  # type: ignore[arg-type]
        while (status := secured.http("GET", "/api/v1/topics", token=token)[0]) == 503:
            time.sleep(0.05)
        assert status == 200
        assert secured.http("GET", "/api/v1/topics", token=issuer.token("probe"))[0] == 401, (
            "of another issuer"
        )
    issuer.says_it_is = "https://somebody.else"
    try:
        with LocalBroker(**settings) as running:
            asked = issuer.asked
            secured = Secured(running)  # type: ignore[arg-type]
            while issuer.asked == asked:
                time.sleep(0.05)
            assert secured.http("GET", "/api/v1/topics", token=token)[0] == 503, (
                "there are no keys, so nobody is wrong"
            )
    finally:
        issuer.says_it_is = issuer.own_name
