"""Kernel of the node: what can be set, from where, and which source won.

Precedence: flag > environment (HEADRACE_KAFKA_PORT) > project headrace.toml > user config.toml > default. All
problems are reported at once, each with the place it came from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import platformdirs

from headrace.core.units import parse_duration_ms, parse_size

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one broker. Every field is a flag of `headrace serve`, an environment variable and a TOML key."""

    host: str = "127.0.0.1"
    """Address to bind. Anything but loopback needs authentication or --insecure (X1)."""
    kafka_port: Port = 9092
    """Kafka port; 0 picks a free one."""
    http_port: Port = 9324
    """SQS, REST, console and metrics port; 0 picks a free one."""
    advertised_host: str = ""
    """Host name that clients are told; the bound address when empty."""
    data_dir: str = ""
    """Where data lives; the platform's data directory when empty."""
    ephemeral: bool = False
    """Keep everything in memory and forget it at stop."""
    insecure: bool = False
    """Allow a non-loopback bind without authentication."""
    node_id: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Broker id, stable for the life of the data directory."""
    rack: str = ""
    """Data centre or rack of this broker."""
    coordinator: str = ""
    """Coordinator URL: sqlite in the data directory when empty, or etcd://host:2379,…"""
    flush: Literal["commit", "interval", "os"] = "commit"
    """commit: acks=all means on disk. interval: synced every flush_interval_ms. os: left to the kernel."""
    flush_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 1000
    auto_create_topics: bool = True
    """Create topics on first use."""
    num_partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """Partitions of a topic that is created without a number."""
    default_replication_factor: Annotated[int, msgspec.Meta(ge=1)] = 1
    retention_ms: Annotated[int, msgspec.Meta(ge=-1)] = 7 * 86_400_000
    segment_bytes: Annotated[int, msgspec.Meta(ge=14)] = 1 << 30
    segment_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * 86_400_000
    max_message_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1_048_588
    offsets_partitions: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """Partitions of __consumer_offsets; fixed once the topic exists."""
    group_initial_rebalance_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Wait for more members before the first rebalance of an empty group. Kafka's default is 3000."""
    group_min_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 6_000
    group_max_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_800_000
    repair: bool = False
    """Open a log with corruption in the middle: quarantine what is damaged (S4). Never automatic."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def directory(self) -> Path:
        return (
            Path(self.data_dir) if self.data_dir else Path(platformdirs.user_data_dir("headrace")) / "local"
        )


class SettingsError(Exception):
    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Loaded(NamedTuple):
    settings: Settings
    origins: dict[str, str]
    """Setting name -> where its value came from."""


_DURATIONS = {name for name in Settings.__struct_fields__ if name.endswith("_ms")}
_SIZES = {name for name in Settings.__struct_fields__ if name.endswith("_bytes")}


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    files: list[Path] | None = None,
) -> Loaded:
    """Merge all layers. `flags` with value None were not given."""
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []

    def layer(source: Mapping[str, Any], origin: str) -> None:
        for name, value in source.items():
            if name not in Settings.__struct_fields__:
                problems.append(f"{origin}: there is no setting called {name!r}")
                continue
            try:
                values[name] = _read(name, value)
                origins[name] = origin
            except ValueError as problem:
                problems.append(f"{origin}: {name}: {problem}")

    for path in files or []:
        if path.is_file():
            try:
                layer(tomllib.loads(path.read_text()), str(path))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
                problems.append(f"{path}: {problem}")
    prefix = "HEADRACE_"
    from_env = {
        key[len(prefix) :].lower(): value
        for key, value in (environ or {}).items()
        if key.startswith(prefix) and key[len(prefix) :].lower() in Settings.__struct_fields__
    }
    layer(from_env, "environment")
    layer({name: value for name, value in (flags or {}).items() if value is not None}, "command line")
    if problems:
        raise SettingsError(problems)
    return Loaded(msgspec.convert(values, Settings), origins)


def _read(name: str, value: Any) -> Any:
    """One value from text or TOML, checked against its own field."""
    if isinstance(value, str):
        if name in _DURATIONS:
            value = parse_duration_ms(value)
        elif name in _SIZES:
            value = parse_size(value)
    field = next(entry for entry in msgspec.structs.fields(Settings) if entry.name == name)
    try:
        return msgspec.convert(value, field.type, strict=False)
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None


def default_files() -> list[Path]:
    """Weakest first."""
    return [Path(platformdirs.user_config_dir("headrace")) / "config.toml", Path("headrace.toml")]
