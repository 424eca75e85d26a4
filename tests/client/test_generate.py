"""What `generate` writes is checked against what exists: commands, addresses, metrics; programs are run."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.client_programs import PROGRAMS, Ways
from headrace.cli.generate.alerts import ALERTS
from headrace.cli.main import main
from headrace.cli.serve import command as serve
from headrace.testing import LocalBroker, LocalCluster

pytestmark = pytest.mark.client

Generate = Callable[..., str]


@pytest.fixture
def generate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generate:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("HEADRACE_BOOTSTRAP", "HEADRACE_URL", "HEADRACE_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(main, ["generate", *arguments], prog_name="headrace")
        assert done.exit_code == 0, done.output
        return done.stdout

    return run


def test_the_unit_runs_a_command_that_is_taken(generate: Generate) -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(generate("systemd", "--host", "10.0.0.1", "--secure", "--retention-ms", "3d"))
    program, verb, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).is_absolute() and Path(program).name == "headrace" and verb == "serve"
    given = serve.make_context("serve", words, obj=None, resilient_parsing=True).params
    assert given["host"] == "10.0.0.1" and given["secure"] and given["data_dir"] == "/var/lib/headrace"
    assert unit["Service"]["ReadWritePaths"] == "/var/lib/headrace"
    assert unit["Service"]["RestartPreventExitStatus"] == "2 5 6"


def test_a_unit_with_a_setting_that_is_wrong_is_not_written(generate: Generate) -> None:
    done = CliRunner().invoke(main, ["generate", "systemd", "--kafka-port", "99999"], prog_name="headrace")
    assert done.exit_code == 2 and "kafka_port" in done.stderr


def test_prometheus_reads_every_broker(generate: Generate, headrace_cluster: LocalCluster) -> None:
    written = yaml.safe_load(generate("prometheus-config", "-b", headrace_cluster.bootstrap))
    (job,) = written["scrape_configs"]
    (targets,) = (entry["targets"] for entry in job["static_configs"])
    assert sorted(f"http://{target}" for target in targets) == sorted(headrace_cluster.urls)
    with urllib.request.urlopen(f"{job['scheme']}://{targets[0]}{job['metrics_path']}", timeout=60) as answer:
        assert b"mq_health" in answer.read()


def test_alerts_are_about_metrics_that_brokers_have(generate: Generate, headrace: LocalBroker) -> None:
    written = yaml.safe_load(generate("alerts"))
    rules = written["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
    headrace.create_queue("jobs-dead")
    headrace.create_queue("jobs", dead_letter="jobs-dead", max_deliveries=3)
    headrace.ask("POST", "/queues/jobs-dead/messages", {"value": "x"})
    with headrace.client() as client:
        client.publish("orders", {"id": 1}).result(60)
        for message in client.subscribe("orders", group="billing", follow=False):
            assert message.json() == {"id": 1}
    text = ""
    while "mq_disk_free_bytes" not in text:  # there once the disk was looked at for the first time
        with urllib.request.urlopen(f"{headrace.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.M)) | {"up"}
    for rule in rules:
        used = set(re.findall(r"\b(?:mq|kafka)_\w+|\bup\b", rule["expr"]))
        assert used and used <= known, rule["alert"]
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            (name,) = used
            shown = re.findall(rf"^{name}\{{(.*)\}}", text, re.M)
            assert label == "instance" or not shown or all(f'{label}="' in row for row in shown), rule[
                "alert"
            ]


ELSEWHERE = {
    "javascript": "below",
    "java": "make interop: tests/interop/test_client_programs.py",
    "go": "make interop: tests/interop/test_client_programs.py",
}


@pytest.mark.parametrize("language", [name for name in PROGRAMS if name not in ELSEWHERE])
def test_every_program_runs(generate: Generate, headrace: LocalBroker, language: str, tmp_path: Path) -> None:
    program = tmp_path / PROGRAMS[language].file
    program.write_text(generate("client", language, "-b", headrace.bootstrap, "--topic", "greetings"))
    command = ["sh", str(program)] if program.suffix == ".sh" else [sys.executable, str(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert "hello" in ran.stdout


def test_the_program_for_kafkajs_runs(generate: Generate, headrace: LocalBroker, kafkajs: Path) -> None:
    text = generate("client", "javascript", "-b", headrace.bootstrap, "--topic", "greetings")
    ran = subprocess.run(["node", "-"], input=text, cwd=kafkajs, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert "hello" in ran.stdout.splitlines()


@pytest.mark.parametrize("language", PROGRAMS)
def test_no_program_holds_a_password(language: str) -> None:
    text = PROGRAMS[language].text(Ways("k:1", "https://k:2", "t", "alice", "/ca.pem"))
    assert "alice" in text or language == "boto3"
    assert "PASSWORD" in text or language == "boto3"
    assert "/ca.pem" in text


def test_json_names_the_file(generate: Generate) -> None:
    found = json.loads(generate("alerts", "--json"))
    assert found["name"] == "headrace-alerts.yml" and found["text"].startswith("groups:")


def test_the_verbs_are_in_help() -> None:
    group = main.get_command(click.Context(main), "generate")
    assert isinstance(group, click.Group)
    assert group.list_commands(click.Context(group)) == [
        "systemd",
        "prometheus-config",
        "alerts",
        "grafana-dashboard",
        "compose",
        "k8s",
        "client",
    ]
