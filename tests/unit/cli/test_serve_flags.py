"""`headrace serve`: flags from Settings, the banner, and why it would not start. No broker is started here."""

from __future__ import annotations

import errno
import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from headrace.cli.failure import Exit, Failure
from headrace.cli.serve import ServeRow, banner, command
from headrace.cli.start_checks import bind_failure, need_safe_bind, start_failure
from headrace.coordinator.port import CoordinatorUnavailable
from headrace.node.data_directory import DirectoryRefused
from headrace.node.settings import Settings, field_documentation

Run = Callable[..., Result]


def test_every_setting_is_a_flag_with_words_for_people() -> None:
    flags = {param.name for param in command.params}
    assert set(Settings.__struct_fields__) <= flags
    documented = field_documentation(Settings)
    assert set(documented) == set(Settings.__struct_fields__)


def test_help_shows_the_defaults(run: Run) -> None:
    text = " ".join(run("serve", "--help").output.split())
    assert "Kafka port; 0 picks a free one. [9092]" in text
    assert "[commit|interval|os]" in text
    assert "--auto-create-topics / --no-auto-create-topics" in text


def test_all_wrong_settings_are_told_at_once(run: Run) -> None:
    result = run("serve", "--kafka-port", "99999", "--retention-ms", "7q", "--num-partitions", "0")
    assert result.exit_code == Exit.USAGE
    for name in ("kafka_port", "retention_ms", "num_partitions"):
        assert name in result.stderr


def test_a_misspelt_key_of_a_file_gets_the_nearest_one(run: Run) -> None:
    Path("headrace.toml").write_text('kafka_prt = 1\n[client]\nbootstrap = "x:1"\n')
    result = run("serve")
    assert result.exit_code == Exit.USAGE
    assert (
        "headrace.toml: there is no setting called 'kafka_prt'; did you mean 'kafka_port'?" in result.stderr
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com"])
def test_a_bind_that_others_can_reach_is_refused_unless_said_so_x1(run: Run, host: str) -> None:
    result = run("serve", "--host", host)
    assert result.exit_code == Exit.DENIED
    assert "--insecure" in result.stderr
    need_safe_bind(Settings(host=host, insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_needs_no_permission_x1(host: str) -> None:
    need_safe_bind(Settings(host=host))


@pytest.mark.parametrize("flag", ["--kafka-port", "--http-port"])
def test_a_port_in_use_is_exit_4_with_who_and_what_to_do(run: Run, tmp_path: Path, flag: str) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        other = "--http-port" if flag == "--kafka-port" else "--kafka-port"
        result = run("serve", flag, str(port), other, "0", "--data-dir", str(tmp_path / "data"))
    assert result.exit_code == Exit.UNREACHABLE
    assert f"port {port} is in use by process" in result.stderr
    assert f"headrace serve {flag} 0" in result.stderr
    assert not (tmp_path / "data").exists(), "nothing may be touched when the broker can't start"


def test_reasons_not_to_start_have_their_codes() -> None:
    settings = Settings(coordinator="etcd://nowhere:2379")
    for problem, code in (
        (DirectoryRefused("belongs to node 2", "--node-id 2"), Exit.CONFLICT),
        (CoordinatorUnavailable("no answer"), Exit.UNREACHABLE),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), Exit.DENIED),
        (OSError(errno.ENOSPC, "No space left on device"), Exit.FAILED),
        (OSError(errno.EADDRINUSE, "Address already in use"), Exit.UNREACHABLE),
        (TimeoutError(), Exit.TIMEOUT),
        (ValueError("bad URL"), Exit.USAGE),
    ):
        failure = start_failure(problem, settings)
        assert failure is not None and failure.exit is code, problem
    assert start_failure(KeyError("bug"), settings) is None


def test_a_low_port_is_a_matter_of_rights() -> None:
    failure = bind_failure(OSError(errno.EACCES, "Permission denied"), "127.0.0.1", 80, "--http-port")
    assert isinstance(failure, Failure) and failure.exit is Exit.DENIED


def row(**changes: object) -> ServeRow:
    fields: dict[str, object] = {
        "version": "0.1.0", "kafka": "localhost:9092", "http": "http://localhost:9324", "kafka_port": 9092,
        "http_port": 9324, "node_id": 1, "cluster_id": "c", "data_dir": "/data/headrace", "durable": True,
        "pid": 7, "ready_ms": 420, **changes,
    }  # fmt: skip
    return ServeRow(**fields)  # type: ignore[arg-type]


def test_the_banner_says_what_a_person_needs_in_at_most_eight_lines() -> None:
    lines = banner(row()).splitlines()
    assert len(lines) <= 8
    assert lines[0] == "headrace 0.1.0  ready in 0.42s"
    text = "\n".join(lines)
    for needed in (
        "localhost:9092",
        "http://localhost:9324",
        "/data/headrace",
        "durable",
        "headrace topic produce",
    ):
        assert needed in text


def test_the_next_command_of_the_banner_works_on_other_ports_too() -> None:
    assert "headrace topic produce hello -b localhost:4711" in banner(
        row(kafka="localhost:4711", kafka_port=4711)
    )


def test_the_banner_of_an_ephemeral_broker_says_that_nothing_is_kept() -> None:
    assert "in memory only" in banner(row(data_dir=None, durable=False))


def test_config_show_tells_where_each_value_comes_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("headrace.toml").write_text('retention_ms = "1d"\n[client]\nbootstrap = "file:1"\n')
    monkeypatch.setenv("HEADRACE_KAFKA_PORT", "4711")
    found = {entry["name"]: entry for entry in json.loads(run("config", "show", "--json").stdout)["items"]}
    assert found["kafka_port"]["value"] == 4711
    assert found["kafka_port"]["origin"] == "HEADRACE_KAFKA_PORT"
    assert (found["retention_ms"]["value"], found["retention_ms"]["origin"]) == (86_400_000, "headrace.toml")
    assert (found["client.bootstrap"]["value"], found["client.bootstrap"]["origin"]) == (
        "file:1",
        "headrace.toml",
    )
    assert found["flush"]["origin"] == "default"
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "env:2")
    assert "env:2" in run("config", "show", "--origin").stdout


def test_f52_the_banner_of_a_directory_that_was_secured_before_promises_nothing_to_strangers() -> None:
    text = banner(row(mode="enforced"))
    assert "(mode enforced)" in text and "Try:  headrace login" in text
    assert "any access key" not in text and "topic produce" not in text
