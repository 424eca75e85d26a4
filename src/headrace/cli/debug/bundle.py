"""Command: `headrace debug bundle`."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import click
import msgspec

from headrace import __version__
from headrace.cli.background import ServerPlace
from headrace.cli.checks import all_checks
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_address import addressed
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.profile import settings_failure
from headrace.cli.progress import progress
from headrace.core.units import format_size
from headrace.node.settings import SettingsError, default_files, environment_name, load_settings

LOG_BYTES = 2_000_000
ASKED = {
    "metrics.txt": "/metrics",
    "ready.json": "/readyz?verbose",
    "cluster.json": "/api/v1/cluster",
    "topics.json": "/api/v1/topics",
    "groups.json": "/api/v1/groups",
    "queues.json": "/api/v1/queues",
    "health.json": "/api/v1/health",
    "version.json": "/api/v1/version",
}
_SECRET = re.compile(r"(?i)(password|secret|token|credential|api.?key|access.?key|authorization)")
_IN_TEXT = re.compile(
    r"(?i)(\b(?:password|passwd|secret|token|authorization|access_key|sasl\.password)\b[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|\S+)"
)
_IN_URL = re.compile(r"(\w+://)[^/\s:@]+:[^/\s@]+@")
_TOKENS = re.compile(r"\b(hr_[A-Za-z0-9_-]{8,}|whsec_[A-Za-z0-9+/=_-]{8,}|eyJ[\w-]+\.[\w-]+\.[\w-]*)")
HIDDEN = "(not shown)"


class BundleRow(Row):
    SCHEMA: ClassVar[str] = "headrace.debug.bundle/v1"
    NAME: ClassVar[str] = "file"
    file: str
    bytes: int
    parts: list[str]
    missing: list[str]
    """What could not be had, and why."""


@leaf(BundleRow, Shape.ONE, http=True)
@click.option(
    "--to",
    "file",
    default="",
    metavar="FILE",
    help="Where to; headrace-bundle-….tar.gz here when it is left out.",
)
@click.option("--data-dir", help="Of the broker; the platform's data directory when it is left out.")
def command(run: Invocation, file: str, data_dir: str | None) -> None:
    """Collect what helps to find a fault: versions, settings, checks, numbers and the end of the log.

    No message and no secret is in it: passwords, tokens and keys are left out. Look through it before you send it to anybody.
    """
    file = file or time.strftime("headrace-bundle-%Y%m%d-%H%M%S.tar.gz")
    parts: dict[str, bytes] = {}
    missing: list[str] = []
    sources = list(_sources(run, data_dir))
    with progress(run, "Collecting", len(sources)) as advance:
        for name, make in sources:
            try:
                parts[name] = without_secrets(make()).encode()
            except Failure as failure:
                missing.append(f"{name}: {failure.what}")
            except OSError as problem:
                missing.append(f"{name}: {problem}")
            advance(1)
    parts["missing.txt"] = "\n".join(missing).encode()
    try:
        with tarfile.open(file, "w:gz") as archive:
            for name, content in parts.items():
                entry = tarfile.TarInfo(f"headrace-bundle/{name}")
                entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
                archive.addfile(entry, io.BytesIO(content))
        os.chmod(file, 0o600)
    except OSError as problem:
        raise Failure(Exit.USAGE, f"{file}: {problem.strerror}") from None
    row = BundleRow(file=file, bytes=Path(file).stat().st_size, parts=sorted(parts), missing=missing)
    run.output.one(row, lambda: row.file)
    run.done(
        f"Wrote {len(parts)} parts, {format_size(row.bytes)}. Look through it before you send it to anybody."
    )


def _sources(run: Invocation, data_dir: str | None) -> Iterator[tuple[str, Callable[[], str]]]:
    try:
        loaded = load_settings({"data_dir": data_dir}, os.environ, default_files())
    except SettingsError as error:
        raise settings_failure(error) from None
    place = ServerPlace.of(loaded.settings)
    yield "versions.json", _versions
    yield "settings.json", lambda: _settings(loaded)
    yield (
        "checks.json",
        lambda: _shown(
            [msgspec.to_builtins(row) for row in all_checks(loaded.settings, addressed(run.profile))]
        ),
    )
    for name, path in ASKED.items():
        yield name, lambda path=path: _asked(run, path)  # type: ignore[misc]
    yield "server.log", lambda: _end_of(place.log)


def _versions() -> str:
    names = (
        "click",
        "msgspec",
        "uvloop",
        "httptools",
        "cramjam",
        "cryptography",
        "confluent-kafka",
        "pyspark",
        "pyarrow",
    )
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    about = {
        "headrace": __version__,
        "python": sys.version,
        "machine": platform.platform(),
        "cores": os.cpu_count(),
    }
    return _shown({**about, "packages": found})


def _settings(loaded: Any) -> str:
    rows = {
        name: {
            "value": HIDDEN
            if value and _SECRET.search(name) and not name.endswith(("_file", "_dir"))
            else value,
            "origin": loaded.origins.get(name, "default"),
            "variable": environment_name(name),
        }
        for name, value in msgspec.structs.asdict(loaded.settings).items()
    }
    return _shown(rows)


def _asked(run: Invocation, path: str) -> str:
    return b"".join(run.http.download(path, {})).decode(errors="replace")


def _end_of(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - LOG_BYTES))
        return file.read().decode(errors="replace")


def _shown(value: Any) -> str:
    return json.dumps(value, indent=1, default=str)


def without_secrets(text: str) -> str:
    """Whatever looks like one: better a word too many is missing."""
    text = _IN_TEXT.sub(lambda match: match[1] + HIDDEN, text)
    text = _IN_URL.sub(r"\1…@", text)
    return _TOKENS.sub(HIDDEN, text)
