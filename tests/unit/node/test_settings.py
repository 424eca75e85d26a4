"""Layers of settings: which source wins, and that every problem is told at once with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.node.settings import Settings, SettingsError, load_layers, load_settings


def test_flag_beats_environment_beats_project_beats_user(tmp_path: Path) -> None:
    user, project = tmp_path / "config.toml", tmp_path / "headrace.toml"
    user.write_text("kafka_port = 1\nhttp_port = 1\nnode_id = 1\nnum_partitions = 11\n")
    project.write_text("kafka_port = 2\nhttp_port = 2\nnode_id = 2\n")
    environ = {"HEADRACE_KAFKA_PORT": "3", "HEADRACE_HTTP_PORT": "3", "HEADRACE_UNKNOWN": "ignored"}
    loaded = load_settings({"kafka_port": 4, "host": None}, environ, [user, project])
    settings = loaded.settings
    assert (settings.kafka_port, settings.http_port, settings.node_id, settings.num_partitions) == (
        4,
        3,
        2,
        11,
    )
    assert loaded.origins == {
        "kafka_port": "command line",
        "http_port": "HEADRACE_HTTP_PORT",
        "node_id": str(project),
        "num_partitions": str(user),
    }


def test_durations_sizes_and_booleans_as_people_write_them() -> None:
    environ = {
        "HEADRACE_RETENTION_MS": "7d",
        "HEADRACE_SEGMENT_BYTES": "64MiB",
        "HEADRACE_EPHEMERAL": "true",
        "HEADRACE_AUTO_CREATE_TOPICS": "false",
    }
    settings = load_settings({}, environ).settings
    assert settings.retention_ms == 604_800_000
    assert settings.segment_bytes == 64 << 20
    assert settings.ephemeral and not settings.auto_create_topics


def test_every_problem_is_told_with_its_place(tmp_path: Path) -> None:
    broken, wrong = tmp_path / "broken.toml", tmp_path / "wrong.toml"
    broken.write_text("kafka_port = \n")
    wrong.write_text('flush = "sometimes"\nkafka_prt = 1\n')
    with pytest.raises(SettingsError) as told:
        load_settings({"kafka_port": "99999"}, {"HEADRACE_NODE_ID": "one"}, [broken, wrong])
    text = "\n".join(told.value.problems)
    assert len(told.value.problems) == 5
    for place in (str(broken), str(wrong), "HEADRACE_NODE_ID", "command line", "did you mean 'kafka_port'?"):
        assert place in text


def test_the_client_table_is_not_the_brokers_business(tmp_path: Path) -> None:
    import msgspec

    class ClientPart(msgspec.Struct):
        bootstrap: str = "default:1"

    file = tmp_path / "headrace.toml"
    file.write_text('kafka_port = 5\n[client]\nbootstrap = "there:2"\n')
    assert load_settings({}, {}, [file]).settings.kafka_port == 5
    assert load_layers(ClientPart, {}, {}, [file], table="client").settings.bootstrap == "there:2"


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.1", False)],
)
def test_what_is_loopback_x1(host: str, loopback: bool) -> None:
    assert Settings(host=host).is_loopback is loopback
