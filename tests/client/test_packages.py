"""What people deploy: the files under deploy/, the Dockerfile and what `generate` writes. No container can run here, so what
containers would run is taken out of the files and run by hand: commands, variables, probes, names."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
import yaml
from click.testing import CliRunner

from headrace import __version__
from headrace.cli.generate.grafana_dashboard import ROWS
from headrace.cli.main import main
from headrace.cli.serve import command as serve
from headrace.node.settings import load_settings
from headrace.testing import LocalBroker

pytestmark = pytest.mark.client

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
WRITTEN = {
    "compose.yaml": ["compose"],
    "compose-cluster.yaml": ["compose", "--brokers", "3"],
    "kubernetes.yaml": ["k8s"],
    "kubernetes-secure.yaml": ["k8s", "--secure"],
    "grafana-dashboard.json": ["grafana-dashboard"],
    "alerts.yml": ["alerts"],
}


def generated(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["generate", *arguments], prog_name="headrace")
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_committed_is_what_the_command_writes(name: str) -> None:
    assert (DEPLOY / name).read_text() == generated(*WRITTEN[name])


def taken(command: list[str], environment: dict[str, str]) -> None:
    """A broker would start with this: the flags are flags, and the variables are settings with values that are allowed."""
    verb, *words = command
    assert verb == "serve"
    serve.make_context("serve", words, obj=None, resilient_parsing=True)
    found = load_settings({}, environment, [])
    said = {name for name, source in found.origins.items() if source.startswith("HEADRACE_")}
    assert said == {name.removeprefix("HEADRACE_").lower() for name in environment}


def resolved(text: str) -> str:
    """Compose's ${NAME:-default} where nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("name", ["compose.yaml", "compose-cluster.yaml"])
def test_brokers_of_a_compose_file_take_their_settings(name: str) -> None:
    services = yaml.safe_load(resolved((DEPLOY / name).read_text()))["services"]
    brokers = {key: service for key, service in services.items() if key.startswith("headrace")}
    for service in brokers.values():
        taken(service["command"], service["environment"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert len({service["environment"].get("HEADRACE_NODE_ID") for service in brokers.values()}) == len(
        brokers
    )


@contextmanager
def ran_by_hand(compose: Path, home: Path) -> Iterator[dict[str, dict[str, str]]]:
    """Every service as a process, each with an address of its own on loopback in place of its name. Yields their variables."""
    text = resolved(compose.read_text())
    names = list(yaml.safe_load(text)["services"])
    net = f"127.{10 + os.getpid() % 200}.{os.getpid() // 200 % 250}"
    addresses = {name: f"{net}.{number}" for number, name in enumerate(names, 1)}
    for name, address in addresses.items():
        # Names in values only: keys of services and volumes stay as they are.
        text = re.sub(rf"(?<=[/,\s]){name}(?=[:\s,]\S|\n)(?!: *\{{)(?!:\n)", address, text)
    services = yaml.safe_load(text)["services"]
    processes: list[subprocess.Popen[bytes]] = []
    told: dict[str, dict[str, str]] = {}
    try:
        for name, service in services.items():
            address, data = addresses[name], home / name
            words = [
                word.replace("0.0.0.0", address).replace("/var/lib/etcd", str(data))
                for word in service["command"]
            ]
            words = [word.replace(f"--name={address}", f"--name={name}") for word in words]
            words = [re.sub(rf"{re.escape(address)}=http", f"{name}=http", word) for word in words]
            for other, place in addresses.items():
                words = [word.replace(f"{place}=http", f"{other}=http") for word in words]
            told[name] = {
                key: value.replace("0.0.0.0", address).replace("/var/lib/headrace", str(data))
                for key, value in service.get("environment", {}).items()
            }
            if told[name]:
                words = [sys.executable, "-m", "headrace", *words]
            with (home / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen(words, env={**os.environ, **told[name]}, stdout=log, stderr=log)
                )
        yield {name: variables for name, variables in told.items() if variables}
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(120)


def test_three_brokers_of_the_compose_file_are_a_cluster(tmp_path: Path) -> None:
    with ran_by_hand(DEPLOY / "compose-cluster.yaml", tmp_path) as brokers:
        check = [sys.executable, str(DEPLOY / "healthcheck.py")]
        deadline = time.monotonic() + 300
        waiting = dict(brokers)
        while waiting:
            assert time.monotonic() < deadline, "\n".join(
                (tmp_path / f"{name}.log").read_text()[-2000:] for name in waiting
            )
            for name, variables in list(waiting.items()):
                asked = subprocess.run(
                    check, env={**os.environ, **variables}, capture_output=True, timeout=60
                )
                if asked.returncode == 0:
                    del waiting[name]
            time.sleep(0.1)
        first = brokers["headrace-1"]
        bootstrap = f"{first['HEADRACE_ADVERTISED_HOST']}:{first['HEADRACE_KAFKA_PORT']}"
        producer = ck.Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        told: list[Any] = []
        producer.produce("orders", b"first", on_delivery=lambda error, message: told.append(error))
        producer.flush(240)
        assert told == [None]
        url = f"http://{first['HEADRACE_ADVERTISED_HOST']}:{first['HEADRACE_HTTP_PORT']}"
        with urllib.request.urlopen(f"{url}/api/v1/topics/orders", timeout=60) as answer:
            (partition,) = json.load(answer)["partitions"]
        assert sorted(partition["replicas"]) == [1, 2, 3]


def test_a_container_that_is_not_ready_says_why(tmp_path: Path) -> None:
    asked = subprocess.run(
        [sys.executable, str(DEPLOY / "healthcheck.py")],
        env={**os.environ, "HEADRACE_HTTP_PORT": "1", "HEADRACE_HOST": "0.0.0.0"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert asked.returncode == 1 and "nobody answers" in asked.stderr


@pytest.mark.parametrize(
    ("name", "scheme"), [("kubernetes.yaml", "HTTP"), ("kubernetes-secure.yaml", "HTTPS")]
)
def test_a_pod_starts_a_broker_with_a_number_of_its_own(
    name: str, scheme: str, headrace: LocalBroker
) -> None:
    objects = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    (brokers,) = [
        one for one in objects if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "headrace"
    ]
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    shell, flag, script = container["command"]
    said = subprocess.run(
        [shell, flag, script.replace("exec headrace", "exec echo")],
        env={"PATH": os.environ["PATH"], "POD_NAME": "headrace-2"}, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    words = shlex.split(said)
    assert words[-2:] == ["--node-id", "3"]
    variables = {
        row["name"]: row["value"].replace("$(POD_NAME)", "headrace-2")
        for row in container["env"]
        if "value" in row
    }
    taken(words, variables)
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["scheme"] == scheme
        with urllib.request.urlopen(f"{headrace.url}{asked['path']}", timeout=60) as answer:
            assert answer.status == 200
    services = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert brokers["spec"]["serviceName"] in services
    assert f"headrace-2.{brokers['spec']['serviceName']}." in variables["HEADRACE_ADVERTISED_HOST"]
    (budget,) = [
        one
        for one in objects
        if one["kind"] == "PodDisruptionBudget" and one["metadata"]["name"] == "headrace"
    ]
    assert budget["spec"]["selector"]["matchLabels"] == brokers["spec"]["template"]["metadata"]["labels"]


def test_the_image_runs_what_there_is() -> None:
    text = (ROOT / "Dockerfile").read_text()
    lines = dict(re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])$", text, re.M))
    variables = dict(re.findall(r"(HEADRACE_\w+)=(\S+)", text))
    assert json.loads(lines["ENTRYPOINT"]) == ["headrace"]
    taken(json.loads(lines["CMD"]), variables)
    assert "USER 10001:10001" in text and "healthcheck.py" in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M)
    assert all((ROOT / name).exists() for row in copied for name in row.split())
    kept = (ROOT / ".dockerignore").read_text()
    assert all(f"!{name}" in kept for row in copied for name in row.split()), "what is copied is not ignored"
    assert f"headrace:{__version__}" in text


def test_the_dashboard_asks_for_metrics_that_brokers_have(headrace: LocalBroker) -> None:
    headrace.create_queue("jobs")
    headrace.ask("POST", "/queues/jobs/messages", {"value": "x"})
    text = ""
    while "mq_disk_free_bytes" not in text:  # there once the disk was looked at for the first time
        with urllib.request.urlopen(f"{headrace.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
    known |= {f"{name}_bucket" for name in re.findall(r"^# TYPE (\w+) histogram", text, re.M)} | {"up"}
    for panel in (panel for row in ROWS.values() for panel in row):
        for legend, expression in panel.queries.items():
            used = set(re.findall(r"\b(?:mq|kafka|process)_\w+|\bup\b", expression))
            assert used and used <= known, panel.title
            for label in set(re.findall(r"\{\{(\w+)\}\}", legend)) - {"instance"}:
                (name,) = used
                shown = re.findall(rf"^{name}\{{(.*)\}}", text, re.M)
                assert not shown or all(f'{label}="' in row for row in shown), panel.title


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(generated("grafana-dashboard"))["panels"]
    cells = [
        (column, line)
        for panel in panels
        for column in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for line in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(column for column, _ in cells) == 23
