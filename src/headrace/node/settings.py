"""Kernel of the node: what can be set, from where, and which source won.

Precedence: flag > environment (HEADRACE_KAFKA_PORT) > project headrace.toml > user config.toml > default. All
problems are reported at once, each with the place it came from. The same layers serve the commands that talk to a
broker: theirs is the [client] table of the same files.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
import platformdirs

from headrace.core.units import parse_duration_ms, parse_size

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
T = TypeVar("T", bound=msgspec.Struct)

_BOUND = re.compile(r"Expected `int` ([<>]=) (-?[0-9]{1,20})")
_BEYOND = {">=": "less than", "<=": "more than"}

CLIENT_TABLE = "client"
"""The table of a settings file that is not about the broker."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one broker. Every field is a flag of `headrace serve`, an environment variable and a TOML key."""

    host: str = "127.0.0.1"
    """Address to bind. Anything but loopback needs authentication or --insecure."""
    kafka_port: Port = 9092
    """Kafka port; 0 picks a free one."""
    http_port: Port = 9324
    """SQS, REST and metrics port; 0 picks a free one."""
    schema_registry_port: Port = 0
    """A port with nothing but the schema registry, at its root, for clients that take no path; 0: none. It is under /schemas of the HTTP port as well."""
    advertised_host: str = ""
    """Host name that clients are told; the bound address when empty."""
    allowed_hosts: str = ""
    """Further host names that HTTP answers to, as in queue.example,.corp.example: loopback names, addresses and the advertised host
    always are; any other is a page's name rebound to us. * is any."""
    allowed_origins: str = ""
    """Origins whose web pages may use HTTP here, as in https://shop.example (CORS). Other pages are refused."""
    console: bool = True
    """Serve the web console on the HTTP port."""
    console_idle_ms: Annotated[int, msgspec.Meta(ge=0)] = 1_800_000
    """A login of the console ends after so long without a key or a touch; 0: only after its twelve hours."""
    data_dir: str = ""
    """Where data lives; the platform's data directory when empty."""
    ephemeral: bool = False
    """Keep everything in memory and forget it at stop."""
    insecure: bool = False
    """Allow a non-loopback bind without authentication."""
    secure: bool = False
    """Make what is missing (an authority, certificates, an administrator), speak TLS, and let nobody in without a name."""
    security_dir: str = ""
    """Where the files of a secured cluster are; security in the data directory when empty."""
    secrets_key_file: str = ""
    """The key under which secrets in the coordinator are sealed (access keys), the same for all brokers; secrets.key in the security directory with --secure."""
    tls_cert: str = ""
    """The certificate of this broker, PEM, with those between it and its authority: both ports then speak TLS."""
    tls_key: str = ""
    """The key of the certificate, PEM, readable by nobody else."""
    tls_ca: str = ""
    """Certificates that this broker trusts when it calls others, PEM."""
    tls_users: str = ""
    """Which user a client's certificate is of, as in 'URI:headrace://cluster/user/* -> $1; CN=*,O=Acme -> $1/L'; the authority is that of --tls-ca."""
    plaintext: Literal["", "accept", "loopback", "refuse"] = ""
    """Beside TLS: connections without it, from anywhere, from this host, or not at all. Empty: accept, and refuse with --secure."""
    internal_tls: bool = False
    """Call other brokers with TLS; always so with --secure."""
    internal_tls_moving: bool = False
    """While brokers are restarted with --internal-tls one by one: those that call without a certificate are heard, too, by the cluster's key alone."""
    allow_plain_without_tls: bool = False
    """Take passwords in the clear (SASL PLAIN) on connections without TLS."""
    connections_max_reauth_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How long a login is good before it has to be renewed (KIP-368), at least a minute; 0: as long as what proved it."""
    oidc_issuer: str = ""
    """The issuer whose tokens (JWT) are taken, as their claim iss names it. Needs headrace[oidc]."""
    oidc_audience: str = ""
    """What their claim aud must hold."""
    oidc_jwks: str = ""
    """Where the issuer publishes its keys: an https URL, or a file; empty: it says so itself (OIDC discovery)."""
    oidc_claim: str = "sub"
    """The claim that is the user's name."""
    oidc_prefix: str = ""
    """Before every name that comes from the issuer, so that none can be that of a user here."""
    oidc_ca: str = ""
    """Certificates to trust when the keys are fetched, PEM; the system's when empty."""
    node_id: Annotated[int, msgspec.Meta(ge=0)] = 1
    """Broker id, stable for the life of the data directory."""
    rack: str = ""
    """Data centre or rack of this broker."""
    coordinator: str = ""
    """Coordinator URL: sqlite in the data directory when empty, or etcd://host:2379,…"""
    insecure_coordinator: bool = False
    """Call an etcd on a network without TLS although the cluster enforces rights."""
    flush: Literal["commit", "interval", "os"] = "commit"
    """commit: acks=all means on disk. interval: synced every flush_interval_ms. os: left to the kernel."""
    flush_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """With flush=interval: how often data is synced."""
    disk_reserve_bytes: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Refuse clients' writes when the disk has less than this left; -1: 5 % of it, 1 GiB at most."""
    auto_create_topics: bool = True
    """Create topics on first use."""
    num_partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """Partitions of a topic that is created without a number."""
    default_replication_factor: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Replicas of a topic that is created without a number."""
    retention_ms: Annotated[int, msgspec.Meta(ge=-1)] = 7 * 86_400_000
    """How long data is kept; -1 is for ever."""
    retention_check_interval_ms: Annotated[int, msgspec.Meta(ge=100)] = 30_000
    """How often segments are looked over: retention, compaction, forgotten producers. Kafka's default is 5 minutes."""
    segment_bytes: Annotated[int, msgspec.Meta(ge=14)] = 1 << 30
    """Start a new segment file at this size."""
    segment_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * 86_400_000
    """Start a new segment file at this age."""
    max_message_bytes: Annotated[int, msgspec.Meta(ge=0)] = 1_048_588
    """The largest record batch that is accepted, as sent."""
    offsets_partitions: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """Partitions of __consumer_offsets; fixed once the topic exists."""
    group_initial_rebalance_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Wait for more members before the first rebalance of an empty group. Kafka's default is 3000."""
    group_min_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 6_000
    """The shortest session timeout a group member may ask for."""
    group_max_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 1_800_000
    """The longest session timeout a group member may ask for."""
    group_consumer_session_timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 45_000
    """With the consumer protocol (KIP-848): how long a member may be silent. The broker decides, not the client."""
    group_consumer_heartbeat_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000
    """With the consumer protocol (KIP-848): how often members report, and so how quickly a rebalance gets around."""
    transaction_connection_fencing: bool = True
    """Old clients' transactions: once a newer connection speaks for a producer, older ones are not heard. Off: as Kafka."""
    sqs_strict: bool = False
    """Refuse what AWS would refuse: delays over 15 minutes, batches over ten."""
    sqs_account: str = "000000000000"
    """The account in queue URLs and ARNs."""
    sqs_region: str = "us-east-1"
    """The region in ARNs when a request does not name one; its queues are topics of the same name."""
    sqs_regions: Literal["shared", "separate"] = "shared"
    """Shared: a queue is found from every region. Separate: each region has its own, as in AWS; one of another region is the topic REGION.NAME."""
    sqs_credentials: str = ""
    """A file in the form of ~/.aws/credentials. When given, SQS requests must be signed with a key in it (SigV4)."""
    webhook_allow_http: bool = False
    """Webhooks may use http, not only https."""
    webhook_networks: str = ""
    """Private networks that webhooks may reach all the same, as in 127.0.0.0/8,::1 for development."""
    webhook_ports: str = "443,8443"
    """Ports that webhooks may use, or any."""
    webhook_ca_file: str = ""
    """Certificates that webhooks trust, instead of the system's."""
    otlp_endpoint: str = ""
    """Where spans of REST, SQS and webhooks are sent, as in http://collector:4318 (OTLP over HTTP); empty: where OTEL_EXPORTER_OTLP_ENDPOINT says, if anywhere. Needs headrace[otel]."""
    repair: bool = False
    """Open a log with corruption in the middle: quarantine what is damaged. Never automatic."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """How much is logged to stderr."""

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def plaintext_policy(self) -> str:
        return self.plaintext or ("refuse" if self.secure else "accept")

    @property
    def is_coordinator_embedded(self) -> bool:
        """In this process or in a file of this host: nothing to wait for."""
        return not self.coordinator.startswith("etcd")

    def directory(self) -> Path:
        return (
            Path(self.data_dir) if self.data_dir else Path(platformdirs.user_data_dir("headrace")) / "local"
        )


class SettingsError(Exception):
    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class LoadedSettings(NamedTuple, Generic[T]):
    settings: T
    origins: dict[str, str]
    """Setting name -> where its value came from; what is not here has its default."""


def load_settings(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    files: list[Path] | None = None,
) -> LoadedSettings[Settings]:
    """The broker's settings from all layers. `flags` with value None were not given."""
    return load_layers(Settings, flags, environ, files)


def load_layers(
    kind: type[T],
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    files: list[Path] | None = None,
    *,
    table: str | None = None,
) -> LoadedSettings[T]:
    """Merge all layers into one `kind`. In files its keys are in `table`, or at the top when that is None."""
    return merge_layers(
        kind,
        [
            *(file_layer(path, table) for path in files or []),
            *environment_layers(kind, environ or {}),
            flag_layer(flags or {}),
        ],
    )


class Layer(NamedTuple):
    """One source of settings; what is wrong with it as a whole is told beside what is wrong in the others."""

    values: Mapping[str, Any]
    origin: str
    problem: str = ""


def file_layer(path: Path, table: str | None = None) -> Layer:
    if not path.is_file():
        return Layer({}, str(path))
    try:
        content = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        return Layer({}, str(path), f"{path}: {problem}")
    if table is None:
        content.pop(CLIENT_TABLE, None)
    return Layer(content if table is None else content.get(table, {}), str(path))


def environment_layers(kind: type[msgspec.Struct], environ: Mapping[str, str]) -> list[Layer]:
    """One for each variable, because each is a place of its own."""
    variables = {name: environment_name(name) for name in kind.__struct_fields__}
    return [
        Layer({name: environ[variable]}, variable)
        for name, variable in variables.items()
        if variable in environ
    ]


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    return Layer({name: value for name, value in flags.items() if value is not None}, "command line")


def merge_layers(kind: type[T], layers: list[Layer]) -> LoadedSettings[T]:
    """Weakest first. All problems are reported at once."""
    merge = _Merge(kind)
    for layer in layers:
        if layer.problem:
            merge.problems.append(layer.problem)
        merge.layer(layer.values, layer.origin)
    if merge.problems:
        raise SettingsError(merge.problems)
    return LoadedSettings(msgspec.convert(merge.values, kind), merge.origins)


class _Merge:
    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._fields = {field.name: field for field in msgspec.structs.fields(kind)}
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[str] = []

    def layer(self, source: Mapping[str, Any], origin: str) -> None:
        for name, value in source.items():
            if name not in self._fields:
                self.problems.append(f"{origin}: there is no setting called {name!r}{self._similar(name)}")
                continue
            try:
                self.values[name] = self._read(name, value)
                self.origins[name] = origin
            except ValueError as problem:
                self.problems.append(f"{origin}: {name}: {problem}")

    def _read(self, name: str, value: Any) -> Any:
        """One value from text or TOML, checked against its own field."""
        if isinstance(value, str):
            if is_duration(name):
                value = parse_duration_ms(value)
            elif is_size(name):
                value = parse_size(value)
        try:
            return msgspec.convert(value, self._fields[name].type, strict=False)
        except msgspec.ValidationError as problem:
            if bound := _BOUND.match(str(problem)):
                raise ValueError(f'"{value}" is {_BEYOND[bound[1]]} {bound[2]}') from None
            if str(problem).startswith("Expected `int`"):
                raise ValueError(f'"{value}" is not a whole number') from None
            raise ValueError(str(problem)) from None

    def _similar(self, name: str) -> str:
        import difflib

        found = difflib.get_close_matches(name.replace("-", "_"), self._fields, 1)
        return f"; did you mean {found[0]!r}?" if found else ""


def is_duration(name: str) -> bool:
    return name.endswith("_ms")


def is_size(name: str) -> bool:
    return name.endswith("_bytes")


def environment_name(name: str) -> str:
    """The variable of a setting: kafka_port is HEADRACE_KAFKA_PORT."""
    return f"HEADRACE_{name.upper()}"


def field_documentation(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring under each field. Reads the source, so only help texts and generated pages ask for it."""
    import ast
    import inspect
    import textwrap

    found: dict[str, str] = {}
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found


def default_files() -> list[Path]:
    """Weakest first."""
    return [Path(platformdirs.user_config_dir("headrace")) / "config.toml", Path("headrace.toml")]
