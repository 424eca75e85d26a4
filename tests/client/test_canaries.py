"""P16: secrets of every kind go through every door of a secured broker on etcd, and then nobody finds any of them: not in etcd, on the broker's disk, in its
log, figures, answers, audit and bundle, nor in what the machine shows of the process."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import pytest
from botocore.exceptions import ClientError
from issuer import TokenIssuer
from sasl_clients import Login, WrongPassword, with_confluent, with_kafka_python
from webhook_endpoint import ALLOW, QUICK, Endpoint, Server, until

from headrace.cli.user_view import scram_records
from headrace.core.cluster_key import PEER_REQUESTS, RECEIPTS, derive
from headrace.security.access_keys import read_access_keys
from headrace.security.founding import ADMIN, SecureFiles
from headrace.security.sealing import read_sealer
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, etcd_binary

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(600),
    pytest.mark.skipif(etcd_binary() is None, reason="etcd is not installed"),
]

ROOT = Path(__file__).parents[2]
WORD, TYPED = "canary-4f1d-of-bob", "canary-9e77-typed-wrong"


class World:
    def __init__(self, broker: BrokerProcess, endpoint: Endpoint, issuer: TokenIssuer) -> None:
        self.broker, self.endpoint, self.issuer = broker, endpoint, issuer
        self.files = SecureFiles(broker.data_dir / "security")
        self.ca = str(self.files.authority.certificate)
        self.bootstrap = f"localhost:{broker.kafka_port}"
        self.url = f"https://localhost:{broker.http_port}"
        self.password = self.files.password.read_text().strip()
        self.secrets: dict[str, str | bytes] = {"the administrator's password": self.password, "bob's password": WORD, "a password typed wrong": TYPED}  # fmt: skip
        self.shown: dict[str, bytes] = {}
        """What went out, by where; answers that make a secret are the one place where it may be."""

    def basic(self, user: str = ADMIN, password: str = "") -> dict[str, str]:
        shown = f"{user}:{password or self.password}".encode()
        return {"authorization": "Basic " + base64.b64encode(shown).decode()}

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, *, makes: bool = False) -> tuple[int, Any, Any]:  # fmt: skip
        request = urllib.request.Request(self.url + path, method=method, headers=headers or self.basic())
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        trust = ssl.create_default_context(cafile=self.ca)
        try:
            with urllib.request.urlopen(request, timeout=120, context=trust) as answer:
                status, said, got = answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as problem:
            status, said, got = problem.code, problem.read(), problem.headers
        if not makes:
            self.shown[f"{method} {path} ({status})"] = said + str(got).encode()
        with contextlib.suppress(ValueError):
            return status, json.loads(said or b"null"), got
        return status, None, got

    def command(self, *words: str) -> str:
        environment = {
            **os.environ, "HEADRACE_URL": self.url, "HEADRACE_BOOTSTRAP": self.bootstrap, "HEADRACE_USER": ADMIN,
            "HEADRACE_PASSWORD_FILE": str(self.files.password), "HEADRACE_TLS_CA": self.ca,
        }  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "headrace", *words], env=environment, capture_output=True, timeout=240)  # fmt: skip
        self.shown[" ".join(words[:2])] = done.stdout + done.stderr
        return done.stdout.decode()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdServer]:
    made = EtcdServer(tmp_path / "etcd").start()
    yield made
    made.stop()


@pytest.fixture
def world(tmp_path: Path, etcd: EtcdServer) -> Iterator[World]:
    server, issuer = Server(), TokenIssuer()
    arguments = ("--secure", "--coordinator", f"etcd://{etcd.address}/prod", *issuer.arguments, "-v")
    with BrokerProcess(tmp_path / "data", arguments=arguments, environment=ALLOW) as running:
        yield World(running, server.endpoint(), issuer)
    server.http.shutdown()
    server.http.server_close()
    issuer.close()


def kafka_door(world: World) -> None:
    """SCRAM, PLAIN, a token of ours, one of the issuer; right and wrong."""
    login = Login(world.bootstrap, "SCRAM-SHA-512", "bob", WORD, world.ca)
    with_confluent(login, "orders", Path())
    with_kafka_python(login._replace(mechanism="PLAIN"), "more-orders", Path())
    for token in (world.secrets["a token"], world.secrets["a token of the issuer"]):
        settings = {
            "bootstrap.servers": world.bootstrap, "security.protocol": "SASL_SSL", "ssl.ca.location": world.ca,
            "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _, token=token: (token, 4e9),
        }  # fmt: skip
        producer = confluent_kafka.Producer(settings)
        assert producer.list_topics(timeout=60).brokers


def guesses(world: World) -> None:
    """Last, because who guesses is not heard for a while."""
    token = world.secrets["a token"]
    assert world.ask("GET", "/api/v1/topics", headers={"authorization": f"Bearer {token!s}"[:-1]})[0] == 401
    assert world.ask("GET", "/api/v1/topics", headers=world.basic("bob", TYPED))[0] == 401
    login = Login(world.bootstrap, "PLAIN", "bob", TYPED, world.ca)
    with pytest.raises(WrongPassword):
        with_confluent(login, "orders", Path())


def http_door(world: World) -> None:
    made = world.ask("POST", "/api/v1/security/tokens", {"name": "ci"}, world.basic("bob", WORD), makes=True)[
        1
    ]
    world.secrets["a token"] = made["token"]
    world.secrets["a token of the issuer"] = world.issuer.token("carol")
    assert world.ask("GET", "/api/v1/topics", headers={"authorization": f"Bearer {made['token']}"})[0] == 200
    jwt = {"authorization": f"Bearer {world.secrets['a token of the issuer']!s}"}
    until(lambda: world.ask("GET", "/api/v1/topics", headers=jwt)[0] == 200)
    status, _, headers = world.ask("POST", "/api/v1/session", {"user": "bob", "password": WORD}, {"x-headrace-csrf": "1"}, makes=True)  # fmt: skip
    assert status in (200, 201, 204), status
    world.secrets["a session"] = headers["set-cookie"].partition("=")[2].partition(";")[0]


def sqs_door(world: World) -> None:
    made = world.ask("POST", "/api/v1/security/keys", {"name": "ci"}, makes=True)[1]
    world.secrets["an access key"] = made["secret"]
    (world.secrets["the administrator's access key"],) = read_access_keys(
        str(world.files.access_key)
    ).values()
    for secret in (made["secret"], made["secret"][::-1]):
        sqs = boto3.client("sqs", endpoint_url=world.url, verify=world.ca, region_name="us-east-1", aws_access_key_id=made["id"], aws_secret_access_key=secret)  # fmt: skip
        with contextlib.suppress(ClientError):
            sqs.send_message(QueueUrl=sqs.create_queue(QueueName="jobs")["QueueUrl"], MessageBody="work")


def webhook_door(world: World) -> None:
    hook = {"queue": "jobs", "url": world.endpoint.url, "retry": QUICK}
    status, made, _ = world.ask("POST", "/api/v1/webhooks", hook, makes=True)
    assert status == 201, made
    until(lambda: len(world.endpoint.got) >= 1)
    second = world.ask("POST", "/api/v1/webhooks/jobs/rotate-secret", {}, makes=True)[1]["secret"]
    world.secrets |= {"a webhook's secret": made["secret"], "its next one": second, "its confirmation": world.endpoint.tokens[0]}  # fmt: skip


def look_at_everything(world: World) -> None:
    """What an administrator, an operator and the machine can see while it runs."""
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    for path, methods in document["paths"].items():
        if "get" not in methods or "{" in path:
            continue
        kinds = {
            kind for answer in methods["get"]["responses"].values() for kind in answer.get("content", ())
        }
        if "text/event-stream" not in kinds:
            world.ask("GET", path)
    for words in (["user", "list"], ["token", "list"], ["key", "list"], ["webhook", "list"], ["security", "audit", "-n", "500"], ["security", "status"],
                  ["cluster", "config"], ["doctor"], ["topic", "consume", "__audit", "-n", "500"]):  # fmt: skip
        world.command(*words)
    bundle = world.broker.data_dir.parent / "bundle.tar.gz"
    world.command("debug", "bundle", "--to", str(bundle), "--data-dir", str(world.broker.data_dir))
    with tarfile.open(bundle) as opened:
        for member in opened.getmembers():
            world.shown[f"bundle: {member.name}"] = opened.extractfile(member).read()  # type: ignore[union-attr]
    if sys.platform == "linux":
        for what in ("cmdline", "environ", "limits", "status"):
            world.shown[f"/proc: {what}"] = Path(f"/proc/{world.broker.pid}/{what}").read_bytes()


def files_of(directory: Path, *apart: str) -> dict[str, bytes]:
    return {
        str(file): file.read_bytes()
        for file in directory.rglob("*")
        if file.is_file() and not any(part in file.relative_to(directory).parts for part in apart)
    }


def ways_to_write(secret: str | bytes) -> set[bytes]:
    plain = secret.encode() if isinstance(secret, str) else secret
    ways = {plain, base64.b64encode(plain).rstrip(b"="), base64.urlsafe_b64encode(plain).rstrip(b"=")}
    if isinstance(secret, bytes):
        ways.add(plain.hex().encode())
    return ways


def cluster_key(world: World, kept: dict[str, bytes]) -> bytes:
    """The key that brokers share: sealed in etcd, so it takes the file to have it."""
    sealed = [text for text in kept.values() if b"sealed:" in text]
    assert sealed, "it is where it is looked for"
    digits = sealed[0].partition(b"sealed:")[2]
    end = next(place for place, byte in enumerate(digits) if byte not in b"0123456789abcdef")
    plain = read_sealer(str(world.files.secrets_key)).open(bytes.fromhex(digits[:end].decode()), "cluster")
    assert plain is not None
    return plain


def test_p16_what_is_secret_is_found_nowhere(world: World, etcd: EtcdServer) -> None:
    assert world.ask("POST", "/api/v1/security/users", {"name": "bob", "scram": scram_records(WORD, 4096), "super": True})[0] == 201  # fmt: skip
    for topic in ("orders", "more-orders"):
        assert world.ask("POST", "/api/v1/topics", {"name": topic, "partitions": 1})[0] == 201
    http_door(world)
    kafka_door(world)
    sqs_door(world)
    webhook_door(world)
    look_at_everything(world)
    guesses(world)
    data = world.broker.data_dir
    world.broker.kill()
    etcd.stop()
    in_etcd = files_of(etcd.directory)
    shared = cluster_key(world, in_etcd)
    world.secrets |= {"the key that brokers share": shared, "a key made of it": derive(shared, PEER_REQUESTS), "another": derive(shared, RECEIPTS)}  # fmt: skip
    world.secrets["the key that seals"] = bytes.fromhex(world.files.secrets_key.read_text().split()[0])
    for pair in (world.files.authority, world.files.broker(1)):
        world.secrets[str(pair.key.name)] = pair.key.read_text().splitlines()[1]

    places = {**world.shown, **in_etcd, **files_of(data, "security"), "log": world.broker.log().encode()}
    assert len(places) > 60 and b"jobs" in b"".join(in_etcd.values()), "there is something to look through"
    found = [
        (name, where)
        for name, secret in world.secrets.items()
        for way in ways_to_write(secret)
        for where, text in places.items()
        if way in text
    ]
    assert found == []
    assert all(len(secret) >= 15 for secret in world.secrets.values()) and len(world.secrets) >= 14
