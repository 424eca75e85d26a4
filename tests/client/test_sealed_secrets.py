"""P16 (short): what the coordinator keeps of webhooks and of the cluster's key is sealed where brokers have a key for it, and of no use to others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import standardwebhooks
from webhook_endpoint import ALLOW, Api, Endpoint, Server, until

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Server()
    made = server.endpoint()
    yield made
    made.end.set()
    server.http.shutdown()
    server.http.server_close()


def keys(path: Path, byte: str) -> str:
    path.write_text(byte * 32 + "\n")
    path.chmod(0o600)
    return str(path)


def kept(broker: BrokerProcess) -> bytes:
    return b"".join(file.read_bytes() for file in broker.data_dir.rglob("*") if file.is_file())


def test_a_webhooks_secret_is_nowhere_and_signs_after_a_restart(
    fresh_broker: Callable[..., BrokerProcess], endpoint: Endpoint, tmp_path: Path
) -> None:
    file = keys(tmp_path / "secrets.key", "07")
    broker = fresh_broker(arguments=("--secrets-key-file", file), environment=ALLOW)
    api = Api(broker)
    first = api.add("jobs", endpoint)
    second = api.ask("POST", "/api/v1/webhooks/jobs/rotate-secret", {"overlap_ms": 0})["secret"]
    (token,) = endpoint.tokens
    broker.kill()
    found = kept(broker)
    assert b"webhook.jobs" in found and b'"sealed"' in found and b"sealed:" in found
    for secret in (first, second, token):
        assert secret.removeprefix("whsec_").encode() not in found and secret not in broker.log()
    broker.start()
    Api(broker).send("jobs", "after")
    until(lambda: endpoint.values() == ["after"])
    standardwebhooks.Webhook(second).verify(endpoint.got[-1].body, endpoint.got[-1].headers)

    broker.kill()
    other = subprocess.run(
        [
            sys.executable, "-m", "headrace", "serve", "--data-dir", str(broker.data_dir), "--kafka-port", "0",
            "--http-port", "0", "--secrets-key-file", keys(tmp_path / "other.key", "08"),
        ],
        env={**os.environ, **ALLOW}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert other.returncode != 0
    assert (
        "sealed" in other.stderr and "--secrets-key-file" in other.stderr and "Traceback" not in other.stderr
    )


def test_without_a_key_it_is_kept_as_before_and_sealed_when_there_is_one(
    fresh_broker: Callable[..., BrokerProcess], endpoint: Endpoint, tmp_path: Path
) -> None:
    broker = fresh_broker(environment=ALLOW)
    api = Api(broker)
    first = api.add("jobs", endpoint)
    broker.kill()
    assert first.removeprefix("whsec_").encode() in kept(broker)
    broker._arguments = ("--secrets-key-file", keys(tmp_path / "secrets.key", "07"))
    broker.start()
    api = Api(broker)
    api.send("jobs", "still")
    until(lambda: endpoint.values() == ["still"])
    standardwebhooks.Webhook(first).verify(endpoint.got[-1].body, endpoint.got[-1].headers)
    second = api.ask("POST", "/api/v1/webhooks/jobs/rotate-secret", {"overlap_ms": 0})["secret"]
    api.send("jobs", "sealed")
    until(lambda: endpoint.values() == ["still", "sealed"])
    standardwebhooks.Webhook(second).verify(endpoint.got[-1].body, endpoint.got[-1].headers)
    broker.kill()
    assert second.removeprefix("whsec_").encode() not in kept(broker)
