"""A31: another key for what is sealed, at three brokers that work meanwhile: the new one first in every file, everything anew, the old one out."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import msgspec
import pytest
from botocore.config import Config
from click.testing import CliRunner
from raw_client import RawClient
from raw_login import log_in
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import ALLOW, until

from headrace.cli.main import main
from headrace.cli.user_view import scram_records
from headrace.security.sealing import Sealer
from headrace.testing.local_broker import LocalCluster
from headrace.wire.api import ApiKey
from headrace.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from headrace.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

OLD, NEW = "0a" * 32, "0b" * 32
WORD = "a word"


class World(Secured):
    def __init__(self, cluster: LocalCluster, files: list[Path]) -> None:
        self.cluster = cluster
        self.broker = cluster  # type: ignore[assignment]
        self.files = files

    def write(self, *keys: str, at: slice = slice(None)) -> None:
        for file in self.files[at]:
            file.write_text("\n".join(keys) + "\n")
            file.chmod(0o600)

    def kept(self) -> dict[str, bytes]:
        """What the coordinator has of secrets."""
        image = self.cluster._nodes.nodes[1].metadata.image
        return {
            f"{space}/{name}": raw
            for space in ("security", "secrets")
            for name, raw in image.opaque(space).items()
        }

    def marks(self) -> list[str]:
        return [each["keys"][0] for each in self.ask("GET", "/sealing")["brokers"]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name, value in ALLOW.items():
        monkeypatch.setenv(name, value)
    files = [tmp_path / f"{number}.key" for number in (1, 2, 3)]
    cluster = LocalCluster(3, num_partitions=1, secrets_key_file=str(files[0]), webhook_allow_http=True,
                           webhook_networks="127.0.0.0/8,::1", webhook_ports="any")  # fmt: skip
    for number, file in enumerate(files, 1):
        settings = cluster._nodes._settings
        settings[number] = msgspec.structs.replace(settings[number], secrets_key_file=str(file))
    made = World(cluster, files)
    made.write(OLD)
    with cluster:
        made.ask(
            "POST", "/users", {"name": ADMIN, "scram": scram_records(PASSWORD, 4096), "super": True}, user=""
        )
        made.set_mode("enforced", user="")
        yield made


class Signing:
    """Somebody who signs what they send to every broker in turn, without a pause."""

    def __init__(self, world: World, key: dict[str, str]) -> None:
        self.key = key
        self.errors: list[str] = []
        self.count = 0
        self._world = world
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def client(self, url: str) -> boto3.client:
        return boto3.client("sqs", endpoint_url=url, region_name="us-east-1", aws_access_key_id=self.key["id"],
                            aws_secret_access_key=self.key["secret"], config=Config(retries={"total_max_attempts": 1}))  # fmt: skip

    def _run(self) -> None:
        clients = [self.client(url) for url in self._world.cluster.urls]
        while not self._end.is_set():
            try:
                clients[self.count % len(clients)].list_queues()
                self.count += 1
            except Exception as problem:
                self.errors.append(str(problem))
                return

    def goes_on(self) -> None:
        wanted = self.count + 12
        until(lambda: self.count >= wanted or bool(self.errors))
        assert self.errors == []

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)


def reseal(world: World) -> tuple[int, str]:
    environment = {"HEADRACE_URL": world.cluster.url, "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD}
    done = CliRunner().invoke(main, ["security", "reseal"], env=environment)
    return done.exit_code, done.output


def opened(world: World, key: str) -> set[str]:
    """What somebody could read who has the coordinator and this key."""
    sealer, found = Sealer([bytes.fromhex(key)]), set()
    for name, raw in world.kept().items():
        about = name.split("/")[-1]
        if name == "secrets/cluster":
            sealed = bytes.fromhex(raw.removeprefix(b"sealed:").decode())
        elif name.startswith(("security/keys/", "security/delegation/", "secrets/webhook.")):
            sealed = base64.b64decode(msgspec.json.decode(raw)["sealed"])
        else:
            continue
        if sealer.open(sealed, about) is not None:
            found.add(name)
    return found


def test_a31_everything_is_sealed_anew_while_brokers_work_and_the_old_key_is_of_no_use(world: World) -> None:
    key = world.ask("POST", "/keys", {"name": "one"})
    client = RawClient(world.cluster._nodes.nodes[1].kafka_port)
    log_in(client, ADMIN, PASSWORD)
    asked = CreateDelegationTokenRequest(None, None, [], -1)
    token = client.call(ApiKey.CREATE_DELEGATION_TOKEN, 3, asked)
    assert token.error_code == 0, token
    hook = {"queue": "jobs", "url": "http://127.0.0.1:9/hook"}
    assert world.http("POST", "/api/v1/queues", {"name": "jobs"}, user=ADMIN, password=PASSWORD)[0] == 201
    status, answer = world.http("POST", "/api/v1/webhooks", hook, user=ADMIN, password=PASSWORD)
    assert status == 201, answer
    before = opened(world, OLD)
    assert {name.split("/")[1] for name in before} >= {"keys", "delegation", "cluster"} and len(before) == 4

    signing = Signing(world, key)
    try:
        signing.goes_on()
        world.write(NEW, OLD, at=slice(0, 2))
        code, words = reseal(world)
        assert code != 0 and "do not seal with one key" in words, "the third broker could read nothing of it"
        assert opened(world, OLD) == before
        world.write("no key at all", at=slice(2, 3))
        code, words = reseal(world)
        assert code != 0 and "do not seal with one key" in words, (
            "a file that is none leaves the keys as they were"
        )
        world.write(NEW, OLD)
        code, words = reseal(world)
        assert code == 0 and "4 secrets are sealed" in words, words
        assert opened(world, OLD) == set() and opened(world, NEW) == before
        signing.goes_on()
        world.write(NEW)
        assert len(set(world.marks())) == 1 and world.marks()[0] in words
        signing.goes_on()
    finally:
        signing.end()
    code, words = reseal(world)
    assert code == 0 and "0 secrets are sealed" in words, "again is no harm"

    world.cluster.stop_broker(3)
    world.cluster.start_broker(3)
    signing.client(world.cluster.urls[2]).list_queues()
    (shown,) = client.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, DescribeDelegationTokenRequest(None)).tokens
    assert shown.hmac == token.hmac, "sealed anew it is the same"
    node = world.cluster._nodes.nodes[3]
    assert node.doors.webhooks.registry.secrets_of("jobs") is not None
