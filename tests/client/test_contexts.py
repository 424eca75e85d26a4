"""One address moves every command: the other one is learned, several are tried in turn."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.testing import BrokerProcess, LocalBroker

pytestmark = pytest.mark.client

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command of somebody with an empty home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
    environment = {**kept, "HOME": str(tmp_path)}

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, env={**environment, **more}, cwd=tmp_path
        )

    return run


@pytest.fixture
def nobody() -> str:
    """An address that refuses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def names(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [row["name"] for row in json.loads(done.stdout)["items"]]


def test_the_http_address_is_learned_from_the_kafka_address(
    headrace: LocalBroker, cli: Cli, nobody: str
) -> None:
    headrace.create_queue("jobs")
    several = f"{nobody},{headrace.bootstrap}"
    assert names(cli("queue", "list", "--json", "-b", several)) == ["jobs"]
    assert names(cli("queue", "list", "--json", HEADRACE_BOOTSTRAP=several)) == ["jobs"]
    assert cli("context", "add", "test", "-b", several).returncode == 0
    assert names(cli("queue", "list", "--json")) == ["jobs"]  # over HTTP
    assert "jobs" in names(cli("topic", "list", "--json"))  # over Kafka
    assert names(cli("queue", "list", "--json", "--url", f"http://{nobody},{headrace.url}")) == ["jobs"]


def test_the_config_that_tells_it_is_where_admin_clients_look(headrace: LocalBroker) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": headrace.bootstrap})
    ((_, future),) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).items()
    assert future.result(60)["headrace.http.address"].value == headrace.url


def test_nobody_to_ask_is_told_with_a_way_out(cli: Cli, nobody: str) -> None:
    done = cli("queue", "list", "-b", nobody)
    assert done.returncode == 4
    assert nobody in done.stderr and "--url" in done.stderr and "Traceback" not in done.stderr


def test_a_server_that_is_started_at_home_is_found_without_an_address(tmp_path: Path, cli: Cli) -> None:
    """On ports of its own, and secured: `local` says where it is, who we are and whom we trust."""
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))}
    command = [sys.executable, "-m", "headrace", "serve", "--secure", "--kafka-port", "0", "--http-port", "0", "--json"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**kept, **home}, cwd=tmp_path) as server:
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            shown = json.loads(cli("context", "show", "--json").stdout)
            assert (shown["name"], shown["bootstrap"], shown["url"]) == (
                "local",
                ready["kafka"],
                ready["http"],
            )
            assert shown["kept_by"] == ready["data_dir"]
            assert cli("topic", "create", "orders").returncode == 0
            assert cli("queue", "create", "jobs").returncode == 0
            assert "jobs" in names(cli("queue", "list", "--json"))
        finally:
            server.terminate()


def test_a_server_in_a_directory_of_its_own_writes_nothing_down(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / ".config")}
    with BrokerProcess(tmp_path / "data", environment=home):
        assert not (tmp_path / ".config").exists()
