"""Verbs of every day against a real broker: peek, trim, import, copy, stats, offsets, configs, elections, replicas, bundles."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from printed import as_promised

from headrace.cli.debug.bundle import without_secrets
from headrace.cli.main import main
from headrace.testing import LocalBroker, LocalCluster

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


def run(local: LocalCluster, *words: str, exit_code: int = 0, stdin: str | None = None) -> Any:
    place = ("-b", local.bootstrap)
    result = CliRunner().invoke(main, [*words, *place], prog_name="headrace", input=stdin)
    assert result.exit_code == exit_code, (words, result.output, result.stderr)
    return result


def shown(local: LocalCluster, *words: str, **options: Any) -> Any:
    return as_promised(run(local, *words, "--json", **options).stdout)


def publish(local: LocalCluster, topic: str, count: int, **options: Any) -> None:
    with local.client() as client:
        for number in range(count):
            client.publish(topic, f"m{number}", key=f"k{number}", headers={"n": str(number)}, **options)


def test_peek_and_trim(local: LocalBroker) -> None:
    topic = local.create_topic("trimmed")
    publish(local, topic, 10)
    assert run(local, "topic", "peek", topic, "-n", "3").stdout == "m7\nm8\nm9\n"
    planned = shown(local, "topic", "trim", topic, "--before", "-4", "--dry-run")["items"]
    assert [(row["before"], row["after"]) for row in planned] == [(0, 6)]
    run(local, "topic", "trim", topic, "--before", "-4", exit_code=2)
    run(local, "topic", "trim", f"{topic}:0", "--before", "-4", "--yes")
    assert len(run(local, "topic", "consume", topic).stdout.splitlines()) == 4
    assert shown(local, "topic", "trim", topic, "--before", "2", "--yes")["items"] == []


def test_what_was_exported_is_imported_as_it_was(local: LocalBroker, tmp_path: Path) -> None:
    topic, target = local.create_topic("exported", partitions=2), local.create_topic("imported", partitions=2)
    with local.client() as client:
        client.publish(topic, b"\xff\x00", key=b"\xfe", headers=[("h", "1"), ("h", b"\xfd")], partition=1)
        client.publish(topic, {"a": 1}, partition=0, timestamp_ms=1_700_000_000_000)
        client.publish(topic, None, key="gone", partition=1)
    file = tmp_path / "messages.jsonl"
    file.write_text(run(local, "topic", "export", topic).stdout)
    row = shown(local, "topic", "import", target, str(file), "--keep-partitions", "--keep-times")
    assert row["produced"] == 3
    places = ("partition", "key", "value", "headers", "timestamp_ms")

    def content(name: str) -> list[Any]:
        found = [json.loads(line) for line in run(local, "topic", "export", name).stdout.splitlines()]
        return sorted([[one[place] for place in places] for one in found], key=str)

    assert content(topic) == content(target)
    (tmp_path / "bad.jsonl").write_text('{"value": "fine"}\nnot json\n')
    refused = run(local, "topic", "import", target, str(tmp_path / "bad.jsonl"), exit_code=2)
    assert "line 2 is not a message" in refused.stderr


def test_copy(local: LocalBroker) -> None:
    topic, target = local.create_topic("copied-from"), local.create_topic("copied-to")
    publish(local, topic, 5)
    assert shown(local, "topic", "copy", topic, target, "--where", 'key != "k2"')["produced"] == 4
    lines = run(local, "topic", "consume", target, "-f", r"%k %v %h\n").stdout.splitlines()
    assert lines == ["k0 m0 n:0", "k1 m1 n:1", "k3 m3 n:3", "k4 m4 n:4"]
    run(local, "topic", "copy", topic, topic, exit_code=2)


def test_offsets_are_copied_and_forgotten(local: LocalBroker) -> None:
    topic, other = local.create_topic("offsets-a"), local.create_topic("offsets-b")
    for name in (topic, other):
        publish(local, name, 5)
        run(local, "group", "seek", "first", "--to", "3", "-t", name, "--yes")
    rows = shown(local, "group", "copy-offsets", "first", "second")["items"]
    assert [(row["topic"], row["before"], row["after"]) for row in rows] == [
        (topic, None, 3),
        (other, None, 3),
    ]
    run(local, "group", "copy-offsets", "first", "second", exit_code=2)
    planned = shown(local, "group", "delete-offsets", "second", "-t", topic, "--dry-run")["items"]
    assert [row["status"] for row in planned] == ["would delete"]
    run(local, "group", "delete-offsets", "second", "-t", f"{topic}:0", "--yes")
    left = shown(local, "group", "lag", "second")["items"]
    assert [row["topic"] for row in left] == [other]
    run(local, "group", "delete-offsets", "second", "-t", topic, "--yes", exit_code=3)


def test_queue_stats_and_subscriptions(local: LocalBroker) -> None:
    queue = local.create_queue("counted")
    local.ask("POST", f"/queues/{queue}/batch", {"records": [{"value": "a"}, {"value": "b"}]})
    found = run(local, "queue", "stats", queue, "--watch", "10ms", "-n", "2", "--json").stdout.splitlines()
    first, second = (json.loads(line)["items"][0] for line in found)
    assert (first["ready"], first["change_per_second"], second["change_per_second"]) == (2, None, 0.0)
    run(local, "queue", "stats", "missing", exit_code=3)
    topic = local.create_topic("subscribed")
    run(local, "subscription", "create", "watcher", topic)
    changed = shown(local, "subscription", "set", "watcher", "--filter", "value.a == 1", "--pause")
    assert (changed["filter"], changed["paused"]) == ("value.a == 1", True)
    assert shown(local, "subscription", "describe", "watcher")["topics"] == [topic]
    run(local, "subscription", "set", "watcher", exit_code=2)


def test_configs_of_the_cluster(local: LocalBroker) -> None:
    name = "log.retention.ms"
    run(local, "cluster", "config", "set", f"{name}=7200000")
    (row,) = shown(local, "cluster", "config", "get", name)["items"]
    assert (row["value"], row["source"]) == ("7200000", "cluster")
    assert [row["name"] for row in shown(local, "cluster", "config", "get", "--changed")["items"]] == [name]
    run(local, "cluster", "config", "set", "--unset", name)
    assert shown(local, "cluster", "config", "get", "--changed")["items"] == []
    run(local, "cluster", "config", "get", "log.retention.mx", exit_code=3)
    run(local, "cluster", "config", "set", "num.io.threads=3", exit_code=2)


def test_open_opens_the_console(local: LocalBroker, tmp_path: Path) -> None:
    assert run(local, "open", "--print").stdout == f"{local.url}/console\n"
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {tmp_path}/visited\n")
    browser.chmod(0o700)
    kept = {
        **os.environ,
        "BROWSER": str(browser),
        "HEADRACE_BOOTSTRAP": local.bootstrap,
        "HEADRACE_TIMEOUT": "60s",
    }
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "open"],
        env=kept,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert (tmp_path / "visited").read_text() == f"{local.url}/console\n" and done.stdout == ""


def test_yaml_and_no_input(local: LocalBroker) -> None:
    local.create_topic("in-yaml")
    found = yaml.safe_load(run(local, "topic", "describe", "in-yaml", "-o", "yaml").stdout)
    assert found["schema"].startswith("headrace.topic.describe/") and found["items"][0]["name"] == "in-yaml"
    refused = run(local, "topic", "delete", "in-yaml", "--no-input", exit_code=2)
    assert "nobody is here to ask" in refused.stderr


def test_bench_queue(local: LocalBroker) -> None:
    row = shown(local, "bench", "queue", "-n", "40", "-w", "2")
    assert row["messages"] == 40 and row["latency"]["samples"] == 40


def test_a_bundle_has_no_secrets(local: LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    row = shown(local, "debug", "bundle", "--to", str(file), "--data-dir", str(tmp_path / "nowhere"))
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        names = {name.removeprefix("headrace-bundle/") for name in archive.getnames()}
    assert {
        "versions.json",
        "settings.json",
        "checks.json",
        "metrics.txt",
        "topics.json",
        "cluster.json",
    } <= names
    assert [one.split(":")[0] for one in row["missing"]] == ["server.log"]
    text = 'password="hunter2" url http://me:hunter2@host token: hr_hunter2hunter2 "secret": "hunter2" whsec_hunter2hunter2'
    assert "hunter2" not in without_secrets(text)


def test_replicas_elections_and_brokers_that_went() -> None:
    with LocalCluster(3) as cluster:
        topic = cluster.create_topic("resized", partitions=3)
        publish(cluster, topic, 6)
        run(cluster, "topic", "alter", topic, "-r", "1")
        row = shown(cluster, "topic", "alter", topic, "-r", "3")
        assert len(row["changes"]) == 3
        assert [sorted(one) for one in replicas_of(cluster, topic)] == [[1, 2, 3]] * 3
        assert shown(cluster, "topic", "alter", topic, "-r", "2", "--dry-run")["dry_run"]
        run(cluster, "topic", "alter", topic, "-r", "2")
        assert [len(one) for one in replicas_of(cluster, topic)] == [2, 2, 2]
        assert len(run(cluster, "topic", "consume", topic).stdout.splitlines()) == 6
        run(cluster, "topic", "alter", topic, "-r", "4", exit_code=6)
        elected = shown(cluster, "cluster", "elect", "-t", topic)["items"]
        assert {one["status"] for one in elected} <= {"elected", "not needed"}
        refused = run(cluster, "cluster", "unregister", "2", "--yes", exit_code=2)
        assert "stop it first" in refused.stderr


def replicas_of(cluster: LocalCluster, topic: str) -> list[list[int]]:
    return [
        row["replicas"] for row in shown(cluster, "cluster", "partitions")["items"] if row["topic"] == topic
    ]
