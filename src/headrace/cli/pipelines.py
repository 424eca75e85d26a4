"""Command: what the pipeline commands share: definitions, the board, and words for what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from headrace.cli.failure import Exit, Failure, did_you_mean, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.profile import Profile
    from headrace.core.pipelines import Hold, Submitted
    from headrace.spark.connection import ClusterAccess
    from headrace.spark.pipelines.definition import Kinds
    from headrace.spark.sync_client import SyncClient


class PipelineRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline/v1"
    name: str
    kind: str
    state: str
    """submitted, waiting, starting, running, backing-off, failing, stopping, stopped, finished, failed, or lost when nothing is heard of it."""
    records: int = 0
    bytes: int = 0
    rate: int = 0
    lag: int = 0
    host: str = ""
    pid: int = 0
    master: str = ""
    run: str = ""
    updated: str = ""
    topics: list[str] = msgspec.field(default_factory=list)
    path: str = ""
    table: str = ""
    skipped: int = 0
    """Records that were gone before they were read."""
    dead_rows: int = 0
    """Rows of this run that were not what the schema says."""
    restarts: int = 0
    """How often this run was started again after a failure."""
    error: str = ""
    submitted: bool = False
    """Its definition is kept in the cluster, and a supervisor runs it."""
    version: int = 0
    by: str = ""
    """Who submitted this version."""
    cron: str = ""
    since: str = ""
    """Of the state."""
    run_number: int = 0
    attempts: int = 0
    """Failures in a row."""
    next_try: str = ""
    log: str = ""
    """On `host`."""
    state_dir: str = ""
    ui: str = ""
    """Spark's own pages."""
    newest: str = ""
    """When the newest record that is committed was made: tables."""


def definition_of(
    file: Path, run: Invocation | None = None, *, master: str | None = None, confs: tuple[str, ...] = ()
) -> Kinds:
    """The pipeline in a file; flags win over what it says, and with `run` a file that names no cluster means the context's."""
    from headrace.spark.pipelines.definition import DefinitionError
    from headrace.spark.pipelines.loading import load

    try:
        flagged = run.flags.get("bootstrap") if run is not None else None
        found = load(
            file,
            overrides={"bootstrap": flagged} if flagged else None,
            here=None if run is None else _cluster_of(run.profile),
        )
    except DefinitionError as problem:
        said = str(problem)
        what = said if said.startswith(f"{file}:") else f"{file}: {said}"
        raise Failure(
            Exit.USAGE, what, "docs/pipelines.md has every key", code="INVALID_DEFINITION"
        ) from None
    settings = dict(found.spark.settings)
    for text in confs:
        key, equals, value = text.partition("=")
        if not equals:
            raise Failure(Exit.USAGE, f'"{text}" is not a Spark setting', "write --conf key=value")
        settings[key.strip()] = value.strip()
    spark = msgspec.structs.replace(found.spark, master=master or found.spark.master, settings=settings)
    return msgspec.structs.replace(found, spark=spark)


def definition_at(run: Invocation, text: str) -> Kinds:
    """The pipeline in a file, or the submitted one of that name."""
    file = Path(text)
    if file.suffix == ".toml" or file.exists():
        return definition_of(file, run)
    from headrace.spark.pipelines.definition import checked

    with pipelines_of(run) as pipelines:
        pipelines.need_submitted(text)
        kept = pipelines.store.definition(text)
    assert kept is not None
    return checked(dict(kept.definition))


def _cluster_of(profile: Profile) -> dict[str, Any]:
    """Where the commands of this context go, and as whom, in the words of a definition."""
    files = {"tls_ca": profile.tls_ca, "token_file": profile.token_file}
    if profile.user and profile.password_file and not profile.token_file:
        files["password_file"] = profile.password_file
    login = {name: str(Path(text).expanduser().absolute()) for name, text in files.items() if text}
    if "password_file" in login:
        login["user"] = profile.user
    return {"bootstrap": profile.bootstrap, "login": login}


def need_spark(master: str | None = None) -> None:
    from headrace.spark.session import SparkMissing, require_spark

    try:
        require_spark(master)
    except SparkMissing as problem:
        raise Failure(Exit.FAILED, str(problem), code="SPARK_MISSING") from None


class Pipelines:
    """What is known of pipelines: what they say themselves, and what was submitted."""

    def __init__(self, client: SyncClient) -> None:
        from headrace.spark.pipelines.board import PipelineBoard
        from headrace.spark.service.store import Store

        self.client = client
        self.board = PipelineBoard(client)
        self.store = Store(client)

    def rows(self) -> dict[str, PipelineRow]:
        wall_ms = int(time.time() * 1000)
        self.store.follow()
        rows = {name: _row(name, entry) for name, entry in self.board.pipelines(wall_ms).items()}
        for name in self.store.names():
            definition = self.store.definition(name)
            assert definition is not None
            rows[name] = _submitted_row(definition, self.store.hold(name), wall_ms)
        return dict(sorted(rows.items()))

    def need(self, name: str) -> PipelineRow:
        rows = self.rows()
        if name not in rows:
            raise Failure(
                Exit.NOT_FOUND,
                f'no pipeline "{name}" is known',
                did_you_mean(name, rows) or "headrace pipeline list",
            )
        return rows[name]

    def need_submitted(self, name: str) -> PipelineRow:
        row = self.need(name)
        if not row.submitted:
            raise Failure(
                Exit.CONFLICT,
                f'pipeline "{name}" was not submitted: somebody runs it by hand, on {row.host}',
                "give it to the supervisors with:  headrace pipeline submit FILE",
            )
        return row


def access_of(profile: Profile, client_id: str = "headrace-cli") -> ClusterAccess:
    from headrace.spark.connection import ClusterAccess

    return ClusterAccess(
        profile.bootstrap,
        client_id,
        profile.timeout_ms / 1000,
        tls=bool(profile.tls_ca),
        tls_ca=profile.tls_ca or None,
        **(
            {"token_file": profile.token_file}
            if profile.token_file
            else {
                "sasl_user": profile.user or None,
                "sasl_password": profile.password if profile.user else None,
            }
        ),
    )


@contextmanager
def pipelines_of(run: Invocation) -> Iterator[Pipelines]:
    from headrace.spark.sync_client import SyncClient

    run.link.reach()
    try:
        with SyncClient(access_of(run.profile)) as client:
            yield Pipelines(client)
    except HeadraceError as problem:
        raise failure_of(problem) from None


def names_on_the_board(profile: Profile) -> list[str]:
    from headrace.spark.sync_client import SyncClient

    with SyncClient(access_of(profile)) as client:
        return list(Pipelines(client).rows())


def author(run: Invocation) -> str:
    """Who asks, for the record: the user of the cluster, or of this machine."""
    import getpass
    import socket

    return run.profile.user or f"{getpass.getuser()}@{socket.gethostname()}"


def _submitted_row(definition: Submitted, hold: Hold | None, wall_ms: int) -> PipelineRow:
    from headrace.core.pipelines import Hold, shown_state

    told = hold or Hold()
    row = _row(definition.name, {**told.progress, "kind": definition.kind})
    for name, value in {
        "state": shown_state(definition, hold, wall_ms), "host": told.host, "pid": told.run_pid,
        "updated": when(told.at_ms or definition.changed_ms), "restarts": told.restarts, "error": told.error,
        "submitted": True, "version": definition.version, "by": definition.by, "cron": definition.cron,
        "since": when(told.since_ms), "run_number": told.run, "attempts": told.attempts,
        "next_try": when(told.next_try_ms), "log": told.log, "state_dir": definition.definition.get("state", ""),
        "newest": when(told.progress.get("newest_ms", 0)), "ui": str(told.progress.get("ui", "")),
    }.items():  # fmt: skip
        setattr(row, name, value)
    return row


def when(wall_ms: object) -> str:
    if not isinstance(wall_ms, int) or wall_ms <= 0:
        return ""
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _row(name: str, entry: dict[str, Any]) -> PipelineRow:
    """What is on the board was written by a client, so nothing in it is taken for granted."""
    kinds: dict[str, type] = {field: type(value) for field, value in _EMPTY.items()}
    known = {
        field: entry[field]
        for field, kind in kinds.items()
        if field in entry and isinstance(entry[field], kind)
    }
    known["updated"] = when(entry.get("updated_ms"))
    known["newest"] = when(entry.get("newest_ms"))
    return PipelineRow(**{**_EMPTY, **known, "name": name})


_EMPTY: dict[str, Any] = {
    "kind": "", "state": "", "records": 0, "bytes": 0, "rate": 0, "lag": 0, "host": "", "pid": 0,
    "master": "", "run": "", "topics": [], "path": "", "table": "", "skipped": 0, "dead_rows": 0, "restarts": 0, "error": "", "ui": "",
}  # fmt: skip
