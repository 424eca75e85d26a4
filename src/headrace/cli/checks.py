"""Command: what `doctor` looks at. Each check answers ok, warn or fail with what it saw and what to do about it.

A check never changes anything and never takes longer than its timeout.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import platform
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from headrace import __version__
from headrace.cli.addresses import split_address
from headrace.cli.broker_link import BrokerLink
from headrace.cli.cluster_view import ClusterLink
from headrace.cli.failure import Failure
from headrace.cli.output import Row
from headrace.cli.processes import command_line, listener
from headrace.cli.profile import Profile
from headrace.core.compiled import how_it_runs
from headrace.core.units import format_size
from headrace.node.data_directory import holder
from headrace.node.settings import Settings

ENOUGH_FILES = 4096
LOW_SPACE_BYTES = 1 << 30
NO_SPACE_BYTES = 100 << 20
CLOCK_SKEW_S = 5.0
REASONABLE_YEAR = 1_700_000_000
"""Late 2023: an earlier clock has never been set."""


class CheckRow(Row):
    SCHEMA: ClassVar[str] = "headrace.doctor/v1"
    name: str
    status: str
    """ok, warn or fail."""
    detail: str
    hint: str = ""


def ok(name: str, detail: str) -> CheckRow:
    return CheckRow(name=name, status="ok", detail=detail)


def warn(name: str, detail: str, hint: str) -> CheckRow:
    return CheckRow(name=name, status="warn", detail=detail, hint=hint)


def fail(name: str, detail: str, hint: str) -> CheckRow:
    return CheckRow(name=name, status="fail", detail=detail, hint=hint)


def all_checks(settings: Settings, profile: Profile) -> Iterator[CheckRow]:
    """Yields as it goes, so that a slow one does not hide the others."""
    yield from (check_python(), check_event_loop(), check_open_files())
    store = broker_store(profile) if not settings.data_dir else None
    directory = settings.directory()
    if store is not None and store.directory is not None:
        directory = store.directory
    yield from store_checks(store, directory)
    checks: list[Callable[[], CheckRow]] = [
        lambda: check_clock(directory),
        lambda: check_port("kafka port", settings.kafka_port),
        lambda: check_port("http port", settings.http_port),
        lambda: check_kafka(profile),
        lambda: check_ready(profile),
        lambda: check_doors(profile),
        lambda: check_coordinator(settings, directory, is_running=store is not None),
    ]
    for check in checks:
        yield check()


# -- where the broker keeps its data ------------------------------------------------------------------------------


class StoreReport(NamedTuple):
    """What the broker says of its data directory."""

    directory: Path | None
    """None: it is not on this machine."""
    name: str
    usable_bytes: int
    """-1: in memory."""
    has_failed: bool


def broker_store(profile: Profile) -> StoreReport | None:
    """The directory of the broker that runs, not the one that a broker would use by default (F47); None: nobody answers."""
    try:
        found = ClusterLink(BrokerLink(profile)).log_directory()
    except Failure:
        return None
    directory = Path(found.log_dir).parent
    is_here = any(_is_ours(split_address(one.strip())[0]) for one in profile.bootstrap.split(","))
    return StoreReport(
        directory if is_here and directory.exists() else None,
        str(directory),
        found.usable_bytes,
        bool(found.error_code),
    )


def _is_ours(host: str) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def store_checks(store: StoreReport | None, directory: Path) -> Iterator[CheckRow]:
    if store is not None and store.has_failed:
        yield fail(
            "data directory", f"{store.name} failed: the broker takes no writes", "see its log; restart it"
        )
    if store is not None and store.usable_bytes < 0:
        yield ok("data directory", "none: the broker keeps everything in memory")
    elif store is not None and store.directory is None:
        yield ok("data directory", f"{store.name}, not on this machine")
        yield judge_space(store.usable_bytes, f"under {store.name}, says the broker")
    else:
        yield check_directory(directory)
        yield check_space(directory)
        yield check_lock(directory)


# -- this machine ----------------------------------------------------------------------------------------------


def check_python() -> CheckRow:
    """Below 3.11 nothing of this could be imported, so there is only something to tell."""
    where = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return ok("python", f"{where}; headrace {__version__}, {how_it_runs()}")


def check_event_loop() -> CheckRow:
    try:
        return ok("event loop", f"uvloop {version('uvloop')}")
    except PackageNotFoundError:
        return warn("event loop", "asyncio's own; it is slower", "pip install uvloop")


def check_open_files() -> CheckRow:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH_FILES:
        wanted = ENOUGH_FILES * 4 if hard < 0 else min(hard, ENOUGH_FILES * 4)
        return warn("open files", f"{soft} allowed; each segment and client needs one", f"ulimit -n {wanted}")
    return ok("open files", f"{soft} allowed")


def check_directory(directory: Path) -> CheckRow:
    name = "data directory"
    if not directory.exists():
        parent = next(path for path in directory.parents if path.exists())
        if os.access(parent, os.W_OK):
            return ok(name, f"{directory} will be created")
        return fail(name, f"{parent} can't be written to", "choose another with --data-dir")
    if not directory.is_dir():
        return fail(name, f"{directory} is not a directory", "choose another with --data-dir")
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        return fail(name, f"{directory} can't be written to", f"it belongs to uid {directory.stat().st_uid}")
    if directory.stat().st_mode & 0o077:
        return warn(name, f"{directory} can be entered by others (S29)", f"chmod 700 {directory}")
    return ok(name, str(directory))


def check_space(directory: Path) -> CheckRow:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return judge_space(shutil.disk_usage(existing).free, f"under {existing}")


def judge_space(free: int, where: str) -> CheckRow:
    text = f"{format_size(free)} free {where}"
    if free < NO_SPACE_BYTES:
        return fail("disk space", text, "make room: a full disk stops every write")
    if free < LOW_SPACE_BYTES:
        return warn("disk space", text, "make room, or set retention.bytes on large topics")
    return ok("disk space", text)


def check_lock(directory: Path) -> CheckRow:
    try:
        found = holder(directory)
    except OSError as problem:
        return fail("lock", f"{directory / 'lock'}: {problem.strerror}", "check who owns the data directory")
    if found is None:
        return ok("lock", "nobody uses the data directory")
    return ok("lock", f"held by the broker with process id {found}")


def check_clock(directory: Path) -> CheckRow:
    now = time.time()
    if now < REASONABLE_YEAR:
        return fail(
            "clock", f"it says {time.ctime(now)}", "set the clock: retention and timestamps depend on it"
        )
    newest = (
        max((path.stat().st_mtime for path in (directory, *directory.glob("*"))), default=0.0)
        if directory.exists()
        else 0.0
    )
    if newest > now + CLOCK_SKEW_S:
        behind = f"{newest - now:.0f}s behind the newest file of the data directory"
        return warn("clock", f"the clock is {behind}", "was it set back? Check time synchronisation")
    return ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def check_port(name: str, port: int) -> CheckRow:
    pid = listener(port) if port else None
    if pid is None:
        return ok(name, f"{port} is free" if port else "any free one")
    what = command_line(pid) or ""
    if "headrace" in what:
        return ok(name, f"{port}: headrace, process {pid}")
    return warn(
        name,
        f"{port} is in use by process {pid} ({what[:60]})",
        f"--{name.replace(' ', '-')} 0 picks a free one",
    )


# -- the broker ------------------------------------------------------------------------------------------------


def check_kafka(profile: Profile) -> CheckRow:
    link = BrokerLink(profile)
    try:
        topics = link.topics()
    except Failure as failure:
        return fail(
            "broker", failure.what, failure.hint.splitlines()[0] if failure.hint else "headrace serve"
        )
    led = [entry for topic in topics.values() for entry in topic.partitions.values()]
    orphans = sum(entry.leader < 0 for entry in led)
    if orphans:
        return fail(
            "broker", f"{orphans} of {len(led)} partitions have no leader", "see the broker's log (serve -v)"
        )
    return ok("broker", f"{profile.bootstrap} answers: {len(topics)} topics, {len(led)} partitions")


def check_ready(profile: Profile) -> CheckRow:
    parts = urlsplit(profile.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(
        parts.hostname or "localhost", parts.port or 9324, timeout=min(profile.timeout_ms / 1000, 5)
    )
    try:
        connection.request("GET", "/readyz?verbose")
        response = connection.getresponse()
        body = response.read(10_000).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as problem:
        return fail(
            "readiness", f"{profile.url} does not answer: {problem}", "headrace serve; --url points elsewhere"
        )
    finally:
        connection.close()
    if response.status != 200:
        return fail("readiness", f"{profile.url}: {_detail(body)}", "see the broker's log")
    skew = _skew(response.headers.get("date"))
    if skew is not None and abs(skew) > CLOCK_SKEW_S:
        return warn("readiness", f"ready, but its clock is {skew:+.0f}s from ours", "synchronise the clocks")
    if troubles := [line[3:] for line in body.splitlines() if line.startswith("[!]")]:
        return warn("readiness", f"ready, but {'; '.join(troubles)}", "see the broker's log")
    return ok("readiness", f"{profile.url} is ready")


def _detail(body: str) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200]


def check_doors(profile: Profile) -> CheckRow:
    """A8: the broker is asked for its queues without any key, at each door: one that wants a key is no use beside one that
    does not."""
    listing = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    try:
        sqs = _status(profile, "POST", "/", b"{}", listing)
        rest = _status(profile, "GET", "/api/v1/queues?limit=1")
    except (OSError, http.client.HTTPException) as problem:
        return fail(
            "doors", f"{profile.url} does not answer: {problem}", "headrace serve; --url points elsewhere"
        )
    if sqs == http.client.FORBIDDEN and rest == http.client.OK:
        return warn(
            "doors",
            "SQS wants signed requests, REST and Kafka give the same messages to everybody",
            "--sqs-credentials guards SQS alone: keep both ports from whoever must not read",
        )
    return ok("doors", "no door wants a key" if rest == http.client.OK else "every door wants a key")


def _status(
    profile: Profile, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> int:
    parts = urlsplit(profile.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(
        parts.hostname or "localhost", parts.port or 9324, timeout=min(profile.timeout_ms / 1000, 5)
    )
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def _skew(date: str | None) -> float | None:
    if date is None:
        return None
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return None


def check_coordinator(settings: Settings, directory: Path, *, is_running: bool = False) -> CheckRow:
    if not settings.coordinator:
        path = directory / "coordinator.db"
        if is_running and not path.exists():
            return ok(
                "coordinator", "not a file of this machine; whether it answers the broker is in readiness"
            )
        return _check_embedded(path)
    try:
        asyncio.run(_ask_coordinator(settings.coordinator))
    except ValueError as problem:
        return fail("coordinator", str(problem), "check --coordinator")
    except Exception as problem:
        return fail("coordinator", f"{settings.coordinator} does not answer: {problem}", "is it running?")
    return ok("coordinator", f"{settings.coordinator} answers")


async def _ask_coordinator(url: str) -> None:
    from headrace.broker.runtime import SystemClock
    from headrace.coordinator.opening import open_coordinator

    async with asyncio.timeout(5):
        coordinator = await open_coordinator(url, clock=SystemClock(), run_blocking=asyncio.to_thread)
        try:
            await coordinator.get("doctor")
        finally:
            await coordinator.close()


def _check_embedded(path: Path) -> CheckRow:
    if not path.exists():
        return ok("coordinator", "embedded; made at the first start")
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=2)
        try:
            verdict = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        finally:
            database.close()
    except sqlite3.Error as problem:
        return fail("coordinator", f"{path}: {problem}", "restore it from a backup")
    if verdict != "ok":
        return fail("coordinator", f"{path} is damaged: {verdict}", "restore it from a backup")
    return ok("coordinator", f"embedded, {path.name} is sound")
