"""The headrace command against a real broker: every verb, what it prints for programs, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Run = Callable[..., Result]


@pytest.fixture
def run(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADRACE_URL", broker.url)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(main, list(arguments), prog_name="headrace", input=input)

    return invoke


def row_type(*path: str) -> Any:
    command: Any = main
    for name in path:
        command = command.get_command(None, name)
    return command.row


def items(result: Result, *path: str) -> list[Any]:
    """The items of a document, each checked against the row that the command promises."""
    assert result.exit_code == Exit.OK, result.output
    document = json.loads(result.stdout)
    kind = row_type(*path)
    assert document["schema"] == kind.SCHEMA
    for item in document["items"]:
        assert set(item) == set(kind.__struct_fields__)
    return [msgspec.convert(item, kind) for item in document["items"]]


def one(result: Result, *path: str) -> Any:
    assert result.exit_code == Exit.OK, result.output
    document = json.loads(result.stdout)
    kind = row_type(*path)
    assert document.pop("schema") == kind.SCHEMA
    assert set(document) == set(kind.__struct_fields__)
    return msgspec.convert(document, kind)


def messages(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == Exit.OK, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(message["schema"] == "headrace.message/v2" for message in found)
    return found


# -- topics ----------------------------------------------------------------------------------------------------


def test_the_life_of_a_topic(run: Run, topic: str) -> None:
    created = items(
        run("topic", "create", topic, "-p", "3", "-c", "retention.ms=7d", "--json"), "topic", "create"
    )
    assert [(row.name, row.status) for row in created] == [(topic, "created")]
    listed = {row.name: row for row in items(run("topic", "list", "--json"), "topic", "list")}
    assert (listed[topic].partitions, listed[topic].messages, listed[topic].internal) == (3, 0, False)
    changed = one(
        run("topic", "alter", topic, "-p", "4", "-c", "max.message.bytes=2MiB", "--json"), "topic", "alter"
    )
    assert changed.changes == ["max.message.bytes = 2097152", "partitions 3 → 4"]
    (detail,) = items(run("topic", "describe", topic, "--json"), "topic", "describe")
    assert len(detail.partitions) == 4
    configs = {entry.name: entry for entry in detail.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("604800000", "topic")
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].source) == ("2097152", "topic")
    text = run("topic", "describe", topic).stdout
    assert f"{topic}: 4 partitions" in text and "2097152 (2.0 MiB)" in text
    assert run("topic", "delete", topic, "--dry-run").exit_code == Exit.OK
    assert topic in run("topic", "list", "-o", "name").stdout.splitlines()
    (deleted,) = items(run("topic", "delete", topic, "--yes", "--json"), "topic", "delete")
    assert deleted.status == "deleted"
    assert topic not in run("topic", "list", "-o", "name").stdout.splitlines()


def test_a_topic_that_is_not_there(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    result = run("topic", "describe", topic[:-1])
    assert result.exit_code == Exit.NOT_FOUND
    assert f'did you mean "{topic}"?' in result.stderr
    assert f"headrace topic create {topic[:-1]}" in result.stderr
    assert run("topic", "consume", "no-such-topic").exit_code == Exit.NOT_FOUND
    assert run("topic", "delete", "no-such-topic", "--yes").exit_code == Exit.NOT_FOUND
    assert run("topic", "delete", "no-such-topic", "--yes", "--if-exists").exit_code == Exit.OK


def test_some_of_several_things_failing_is_partial(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    result = run("topic", "create", topic, f"{topic}-b", "--json")
    assert result.exit_code == Exit.PARTIAL
    assert [row["status"] for row in json.loads(result.stdout)["items"]] == ["failed", "created"]
    assert json.loads(result.stderr)["code"] == "TOPIC_ALREADY_EXISTS"
    assert run("topic", "create", topic).exit_code == Exit.CONFLICT
    assert run("topic", "create", topic, "--if-not-exists").exit_code == Exit.OK


def test_what_the_broker_refuses_changes_nothing(run: Run, topic: str) -> None:
    assert run("topic", "create", topic, "-r", "3").exit_code == Exit.USAGE
    assert run("topic", "create", "bad/name").exit_code == Exit.USAGE
    assert run("topic", "create", topic, "--dry-run").exit_code == Exit.OK
    assert topic not in run("topic", "list", "-o", "name").stdout.splitlines()


def test_lines_in_and_out(run: Run, topic: str) -> None:
    produced = one(run("topic", "produce", topic, "--json", input="a\nb\r\nc"), "topic", "produce")
    assert (produced.produced, produced.failed, produced.bytes) == (3, 0, 3)
    assert produced.partitions[0].last_offset == 2
    assert run("topic", "consume", topic).stdout == "a\nb\nc\n"
    assert run("topic", "consume", topic).stdout == "a\nb\nc\n", "looking changes nothing"
    assert run("topic", "consume", topic, "-n", "2", "-f", "%o=%v;").stdout == "0=a;1=b;"
    assert run("topic", "consume", topic, "-o", "-1").stdout == "c\n"
    assert run("topic", "consume", topic, "-o", "1").stdout == "b\nc\n"
    assert run("topic", "consume", topic, "-o", "@1h", "--grep", "^[bc]$").stdout == "b\nc\n"
    assert run("topic", "consume", topic, "-o", "@2100-01-01").stdout == ""


def test_keys_headers_files_and_tombstones(run: Run, topic: str, tmp_path: Path) -> None:
    run("topic", "produce", topic, "one", "two", "-k", "k1", "-H", "source:test", "-z", "zstd")
    run("topic", "produce", topic, "-K", "=", input="k2=x=y\n")
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 7, "n": 1}\n{"id": "b", "n": 2}\n')
    assert run("topic", "produce", topic, "--file", str(file), "--key-field", "id").exit_code == Exit.OK
    assert run("topic", "produce", topic, "--tombstone", "-k", "k1", "--idempotent").exit_code == Exit.OK
    found = messages(run("topic", "consume", topic, "--json"))
    assert [message["key"] for message in found] == ["k1", "k1", "k2", "7", "b", "k1"]
    assert [message["value"] for message in found[:3]] == ["one", "two", "x=y"]
    assert found[0]["headers"] == {"source": "test"}
    assert found[-1]["value"] is None


def test_a_bad_line_stops_the_input_but_keeps_what_came_before(run: Run, topic: str) -> None:
    result = run("topic", "produce", topic, "--key-field", "id", input='{"id":1}\n{"no":2}\n{"id":3}\n')
    assert result.exit_code == Exit.USAGE
    assert 'line 2 has no field "id"' in result.stderr
    assert run("topic", "consume", topic).stdout == '{"id":1}\n'


def test_bytes_that_are_no_text_come_through(run: Run, topic: str) -> None:
    run("topic", "produce", topic, input=b"\xff\xfe\x00z\n")
    assert run("topic", "consume", topic).stdout_bytes == b"\xff\xfe\x00z\n"
    assert messages(run("topic", "consume", topic, "--output", "jsonl"))[0]["value"].keys() == {"base64"}


def test_the_last_messages_over_all_partitions_are_in_order_of_time(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-p", "3")
    for number in range(8):
        run("topic", "produce", topic, f"m{number}", "-p", str(number % 3))
    assert run("topic", "consume", topic, "-o", "-4").stdout.split() == ["m4", "m5", "m6", "m7"]
    tail = run("topic", "tail", topic, "-n", "2", "--wait", "300ms")
    assert tail.exit_code == Exit.TIMEOUT and tail.stdout.split() == ["m6", "m7"]


def test_a_message_that_is_too_large_is_told(run: Run, topic: str) -> None:
    run("topic", "create", topic, "-c", "max.message.bytes=1KiB")
    result = run("topic", "produce", topic, "x" * 5000)
    assert result.exit_code == Exit.FAILED
    assert "max.message.bytes" in result.stderr
    assert run("topic", "consume", topic).stdout == ""


# -- groups ----------------------------------------------------------------------------------------------------


def test_the_life_of_a_group(run: Run, topic: str) -> None:
    group = f"g-{topic}"
    run("topic", "produce", topic, input="".join(f"m{number}\n" for number in range(10)))
    assert run("topic", "consume", topic, "-g", group, "-n", "4").stdout.split() == ["m0", "m1", "m2", "m3"]
    listed = {row.name: row for row in items(run("group", "list", "--json"), "group", "list")}
    assert (listed[group].state, listed[group].members) == ("empty", 0)
    (lag,) = items(run("group", "lag", group, "--json"), "group", "lag")
    assert (lag.committed, lag.end_offset, lag.lag) == (4, 10, 6)
    (detail,) = items(run("group", "describe", group, "--json"), "group", "describe")
    assert (detail.lag, detail.offsets[0].committed) == (6, 4)
    (plan,) = items(run("group", "seek", group, "--to", "-2", "--dry-run", "--json"), "group", "seek")
    assert (plan.before, plan.after, plan.dry_run) == (4, 8, True)
    assert run("group", "seek", group, "--to", "start").exit_code == Exit.USAGE, "nobody to ask, and no --yes"
    run("group", "seek", group, "--to", "8", "--yes")
    assert run("topic", "consume", topic, "-g", group).stdout.split() == ["m8", "m9"]
    run("group", "seek", group, "--to", "start", "--topic", f"{topic}:0", "--yes")
    assert run("group", "lag", group).stdout.splitlines()[1].split()[3:] == ["0", "10", "10"]
    (deleted,) = items(run("group", "delete", group, "--yes", "--json"), "group", "delete")
    assert deleted.status == "deleted"
    assert run("group", "describe", group).exit_code == Exit.NOT_FOUND


def test_a_group_with_running_consumers_is_not_moved(run: Run, topic: str, broker: BrokerProcess) -> None:
    from headrace import Client

    group = f"g-{topic}"
    run("topic", "produce", topic, "a", "b")
    with Client(broker.bootstrap) as client:
        subscription = client.subscribe(topic, group=group)
        next(subscription)
        next(subscription)
        detail = items(run("group", "describe", group, "--json"), "group", "describe")[0]
        assert detail.state == "stable" and detail.members[0].partitions == [f"{topic}-0"]
        moved = run("group", "seek", group, "--to", "start", "--topic", topic, "--yes", "--json")
        assert moved.exit_code == Exit.CONFLICT
        assert json.loads(moved.stderr)["code"] == "NON_EMPTY_GROUP"
        assert run("group", "delete", group, "--yes").exit_code == Exit.CONFLICT


# -- measuring and looking -------------------------------------------------------------------------------------


def test_bench_measures_and_leaves_nothing_behind(run: Run, topic: str, broker: BrokerProcess) -> None:
    produced = one(run("bench", "produce", "-t", topic, "-n", "5k", "--keep", "--json"), "bench", "produce")
    assert (produced.messages, produced.bytes) == (5000, 5000 * 1024)
    assert produced.latency.samples == 50 and produced.broker.pid == broker.pid
    assert produced.broker.requests > 0
    consumed = one(run("bench", "consume", "-t", topic, "-n", "3k", "--json"), "bench", "consume")
    assert (consumed.messages, consumed.bytes) == (3000, 3000 * 1024)
    latency = one(run("bench", "latency", "-d", "300ms", "--rate", "100/s", "--json"), "bench", "latency")
    assert latency.latency.samples == latency.messages == 30
    assert latency.latency.p50_ms <= latency.latency.max_ms
    names = run("topic", "list", "-o", "name").stdout.splitlines()
    assert topic in names and "headrace-bench" not in names
    assert "messages/s" in run("bench", "produce", "-n", "1k").stdout


def test_the_log_of_a_running_broker_can_be_dumped(run: Run, topic: str, broker: BrokerProcess) -> None:
    run("topic", "produce", topic, "hello", "-k", "k")
    (directory,) = (broker.data_dir / "topics").glob(f"{topic}@*")
    result = run("debug", "dump-log", str(directory), "--records", "--json")
    assert result.exit_code == Exit.OK
    assert json.loads(result.stdout)["contents"][0]["value"] == "hello"


def test_doctor_is_content_with_a_healthy_broker(run: Run, broker: BrokerProcess) -> None:
    found = items(run("doctor", "--data-dir", str(broker.data_dir), "--json"), "doctor")
    states = {row.name: row for row in found}
    for name in ("broker", "readiness", "coordinator", "lock"):
        assert states[name].status == "ok", states[name]
    assert str(broker.pid) in states["lock"].detail


# -- serve -----------------------------------------------------------------------------------------------------


def serve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "headrace", "serve", "--kafka-port", "0", "--http-port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_it_is_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = serve("--json", "--data-dir", str(tmp_path / "data"))
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["schema"] == "headrace.serve/v1"
    assert ready["pid"] == process.pid and ready["data_dir"] == str(tmp_path / "data") and ready["durable"]
    for port in (ready["kafka_port"], ready["http_port"]):
        socket.create_connection(("127.0.0.1", port), timeout=120).close()
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == Exit.OK, errors
    assert (tmp_path / "data" / "clean-shutdown").exists()


def test_the_banner_is_short_and_right(tmp_path: Path) -> None:
    process = serve("--data-dir", str(tmp_path / "data"))
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(6)]
    process.terminate()
    rest, _ = process.communicate(timeout=120)
    assert rest == "" and lines[0].startswith("headrace 0.") and "ready in" in lines[0]
    assert lines[3].startswith("  Console ")
    assert str(tmp_path / "data") in lines[4] and "durable" in lines[4]
    assert "headrace topic produce hello -b localhost:" in lines[5]


def test_a_directory_in_use_or_of_another_node_is_refused_s27(
    fresh_broker: Callable[..., BrokerProcess],
) -> None:
    running = fresh_broker()
    second = serve("--data-dir", str(running.data_dir))
    _, errors = second.communicate(timeout=120)
    assert second.returncode == Exit.CONFLICT
    assert f"process {running.pid}" in errors and "--data-dir" in errors
    running.stop()
    other = serve("--data-dir", str(running.data_dir), "--node-id", "7")
    _, errors = other.communicate(timeout=120)
    assert other.returncode == Exit.CONFLICT
    assert "belongs to node 1, not 7" in errors and "--node-id 1" in errors
    assert "Traceback" not in errors


def test_a_taken_port_costs_nothing(fresh_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    stopped = fresh_broker()
    stopped.stop()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        process = serve("--data-dir", str(stopped.data_dir), "--kafka-port", str(port))
        _, errors = process.communicate(timeout=120)
    assert process.returncode == Exit.UNREACHABLE
    assert f"port {port} is in use by process {os.getpid()}" in errors
    assert (stopped.data_dir / "clean-shutdown").exists(), "the last clean stop still counts"


def test_ephemeral_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for variable in ("HOME", "XDG_DATA_HOME", "TMPDIR"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.setattr(tempfile, "tempdir", None)
    process = serve("--ephemeral", "--json", "--data-dir", str(tmp_path / "unused"))
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert ready["data_dir"] is None and not ready["durable"]
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", f"127.0.0.1:{ready['kafka_port']}")
    cli = CliRunner()
    assert cli.invoke(main, ["topic", "produce", "t", "gone"]).exit_code == Exit.OK
    assert cli.invoke(main, ["topic", "consume", "t", "-g", "g"]).stdout == "gone\n"
    admin = AdminClient({"bootstrap.servers": os.environ["HEADRACE_BOOTSTRAP"]})
    (told,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
    assert told.result()["log.dirs"].value == "memory:", "F36: not a directory that another broker may use"
    process.terminate()
    _, errors = process.communicate(timeout=120)
    assert process.returncode == Exit.OK, errors
    assert list(home.iterdir()) == [] and not (tmp_path / "unused").exists()


def test_messages_are_found_by_words(run: Run, topic: str) -> None:
    run("topic", "produce", topic, "a needle", "hay", "hay again")
    found = json.loads(run("topic", "search", topic, "needle", "--json").stdout)
    assert [(row["value"], row["offset"]) for row in found["items"]] == [("a needle", 0)]
    assert found["schema"] == "headrace.topic.search/v2" and found["items"][0]["timestamp"].endswith("Z")
