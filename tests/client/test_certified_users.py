"""A11, X3: clients that are known by their certificates, at the Kafka door and over HTTP."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from secured import ADMIN, PASSWORD, Secured

from headrace.cli.user_view import scram_records
from headrace.security.certificates import Pair, issue, make_authority, user_uri
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


class Certified:
    def __init__(self, directory: Path, broker: BrokerProcess, world: Secured) -> None:
        self.directory, self.broker, self.world = directory, broker, world

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def kafka(self, name: str, **more: str) -> dict[str, str]:
        return {
            "bootstrap.servers": f"localhost:{self.broker.kafka_port}", "security.protocol": "SSL", "ssl.ca.location": self.path("ca.pem"),
            "ssl.certificate.location": self.path(f"{name}.pem"), "ssl.key.location": self.path(f"{name}.key"), **more,
        }  # fmt: skip

    def get(self, name: str, path: str) -> tuple[int, Any]:
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        try:
            with urllib.request.urlopen(
                f"https://localhost:{self.broker.http_port}{path}", timeout=60, context=context
            ) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            return problem.code, json.load(problem)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    directory = tmp_path_factory.mktemp("certified")

    def pair(name: str) -> Pair:
        return Pair(directory / f"{name}.pem", directory / f"{name}.key")

    make_authority(pair("ca"), "an authority")
    issue(pair("ca"), pair("server"), "server", ["localhost", "127.0.0.1"])
    issue(pair("ca"), pair("stranger"), "stranger", [], ["spiffe://elsewhere/x"])
    made = [sys.executable, "-m", "headrace", "cert", "issue", "--user", "alice", "--ca", str(directory / "ca.pem"), "--out", str(directory / "alice.pem")]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True)
    issue(pair("ca"), pair("bob"), "bob", [], [user_uri("bob")])
    options = (
        "--tls-cert", str(directory / "server.pem"), "--tls-key", str(directory / "server.key"), "--tls-ca", str(directory / "ca.pem"),
        "--plaintext", "accept", "--tls-users", "URI:headrace://cluster/user/* -> $1",
    )  # fmt: skip
    with BrokerProcess(arguments=options) as broker:
        world = Secured(broker)
        world.topic("orders")
        for user in ("alice", "bob"):
            world.allow(user, AclOperation.WRITE, ResourceType.TOPIC, "orders")
        yield Certified(directory, broker, world)


def publish(settings: dict[str, str]) -> None:
    problems: list[Any] = []
    producer = Producer({**settings, "message.timeout.ms": "60000"})
    producer.produce("orders", b"by certificate", on_delivery=lambda problem, _: problems.append(problem))
    assert producer.flush(90) == 0 and problems == [None]


def test_a11_a_certificate_names_its_user(certified: Certified) -> None:
    publish(certified.kafka("alice"))
    assert certified.get("alice", "/api/v1/session")[1]["principal"] == "User:alice"
    status, said = certified.get("alice", "/api/v1/topics")
    assert status == 200 and [topic["name"] for topic in said["items"]] == ["orders"]
    assert certified.get("alice", "/api/v1/security/users")[0] in (403, 404)


def test_a11_who_logs_in_is_who_they_say(certified: Certified) -> None:
    sasl = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": ADMIN,
        "sasl.password": PASSWORD,
    }
    admin = AdminClient({**certified.kafka("alice"), **sasl})
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    assert (
        len(admin.describe_acls(everything, request_timeout=60).result(60)) >= 2
    )  # alice may not look at them


def test_x3_a_certificate_of_nobody_does_not_come_in(certified: Certified) -> None:
    """Not even as somebody without a name."""
    client = AdminClient({**certified.kafka("stranger"), "log_level": "0"})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    with pytest.raises((urllib.error.URLError, ConnectionError, ssl.SSLError)) as refused:
        certified.get("stranger", "/livez")
    assert not isinstance(refused.value, urllib.error.HTTPError)


def test_a11_a_disabled_user_is_out_whatever_they_hold(certified: Certified) -> None:
    publish(certified.kafka("bob"))
    certified.world.ask("POST", "/users", {"name": "bob", "scram": scram_records("a word", 4096)})
    certified.world.ask("PATCH", "/users/bob", {"enabled": False})
    with pytest.raises(KafkaException):
        AdminClient({**certified.kafka("bob"), "log_level": "0"}).list_topics(timeout=3)
