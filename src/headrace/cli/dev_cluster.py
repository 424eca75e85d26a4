"""Command: `headrace serve --brokers N`: a whole cluster on one host, one child process per broker.

They share one SQLite coordinator in the data directory. A broker that dies is reported and the others go on, as they
would on N hosts; Ctrl-C stops all of them, leaderships handed over first.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from headrace import __version__
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.local_context import keep_local
from headrace.cli.output import Row, short_path
from headrace.cli.processes import age_ms
from headrace.cli.setting_options import flag_words
from headrace.node.settings import Settings

START_S = 60.0
STOP_S = 30.0
MAX_BROKERS = 16


class BrokerPlace(msgspec.Struct):
    node_id: int
    kafka: str
    http: str
    pid: int


class ClusterRow(Row):
    """What `serve --brokers` says once clients can use it."""

    SCHEMA: ClassVar[str] = "headrace.serve.cluster/v1"
    NAME: ClassVar[str] = "bootstrap"
    version: str
    bootstrap: str
    brokers: list[BrokerPlace]
    data_dir: str
    ready_ms: int
    security_dir: str | None = None
    """With --secure: where the authority's certificate and the administrator's password are."""


async def serve_cluster(run: Invocation, settings: Settings, flags: Mapping[str, Any], brokers: int) -> Exit:
    if settings.ephemeral:
        raise Failure(Exit.USAGE, "--brokers needs a data directory", "leave --ephemeral out")
    if not 2 <= brokers <= MAX_BROKERS:
        raise Failure(Exit.USAGE, f"--brokers takes 2 to {MAX_BROKERS}, not {brokers}")
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    cluster = DevCluster(settings, flags, brokers)
    try:
        started = asyncio.ensure_future(cluster.start())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({started, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if started.done():
            places = await started
            _announce(run, settings, places)
            await cluster.watch(stop, run)
        else:
            started.cancel()
    finally:
        await cluster.stop()
    return Exit.OK


class DevCluster:
    def __init__(self, settings: Settings, flags: Mapping[str, Any], brokers: int) -> None:
        self._settings = settings
        self._flags = {name: value for name, value in flags.items() if value is not None}
        self._brokers = brokers
        self._children: dict[int, Process] = {}

    async def start(self) -> list[BrokerPlace]:
        self._settings.directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        # All at once: they sort out among themselves who is the controller.
        return list(await asyncio.gather(*(self._start(number) for number in range(1, self._brokers + 1))))

    async def _start(self, number: int) -> BrokerPlace:
        child = await asyncio.create_subprocess_exec(
            *self._command(number),
            stdout=PIPE,
            env={**os.environ, **self._environment(number)},
            start_new_session=True,  # Ctrl-C is for us: we stop them in good order
        )
        self._children[number] = child
        assert child.stdout is not None
        try:
            async with asyncio.timeout(START_S):
                line = await child.stdout.readline()
        except TimeoutError:
            line = b""
        if not line:
            raise Failure(
                Exit.FAILED, f"broker {number} did not start", "run again with -v to see what it says"
            )
        ready = json.loads(line)
        return BrokerPlace(number, ready["kafka"], ready["http"], ready["pid"])

    def _command(self, number: int) -> list[str]:
        settings = self._settings
        own: dict[str, Any] = {
            **self._flags,
            "kafka_port": settings.kafka_port and settings.kafka_port + number - 1,
            "http_port": settings.http_port and settings.http_port + number - 1,
            "data_dir": str(settings.directory() / f"broker-{number}"),
        }
        if settings.schema_registry_port:
            own["schema_registry_port"] = settings.schema_registry_port + number - 1
        return [sys.executable, "-m", "headrace", "serve", "--json", *flag_words(own)]

    def _environment(self, number: int) -> dict[str, str]:
        settings = self._settings
        factor = settings.default_replication_factor
        return {
            "HEADRACE_NODE_ID": str(number),
            "HEADRACE_COORDINATOR": settings.coordinator
            or f"sqlite://{settings.directory().absolute()}/coordinator.db",
            "HEADRACE_DEFAULT_REPLICATION_FACTOR": str(factor if factor > 1 else min(3, self._brokers)),
        }

    def start_command(self, number: int) -> str:
        """What a person types to get one broker back while the others run."""
        words = [word for word in self._command(number)[4:] if word != "--json"]
        settings = {
            name: value
            for name, value in self._environment(number).items()
            if name != "HEADRACE_DEFAULT_REPLICATION_FACTOR"
        }
        flags = [
            word
            for name, value in settings.items()
            for word in ("--" + name.removeprefix("HEADRACE_").lower().replace("_", "-"), value)
        ]
        return shlex.join(["headrace", "serve", *flags, *words])

    async def watch(self, stop: asyncio.Event, run: Invocation) -> None:
        """Until we are told to stop, or nobody is left."""
        asked = asyncio.ensure_future(stop.wait())
        ends = {asyncio.ensure_future(child.wait()): number for number, child in self._children.items()}
        while ends and not asked.done():
            done, _ = await asyncio.wait({asked, *ends}, return_when=asyncio.FIRST_COMPLETED)
            for end in done - {asked}:
                number = ends.pop(end)
                run.warn(
                    f"broker {number} ended with exit code {end.result()}; the others go on. To start it again:"
                )
                run.note(f"  {self.start_command(number)}")
        asked.cancel()
        if not ends:
            raise Failure(Exit.FAILED, "every broker has ended")

    async def stop(self) -> None:
        running = [child for child in self._children.values() if child.returncode is None]
        for child in running:
            child.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(child.wait() for child in running))
        except TimeoutError:
            for child in running:
                if child.returncode is None:
                    child.kill()
                    await child.wait()


def _announce(run: Invocation, settings: Settings, places: list[BrokerPlace]) -> None:
    row = ClusterRow(
        version=__version__,
        bootstrap=",".join(place.kafka for place in places),
        brokers=places,
        data_dir=str(Path(settings.directory()).absolute()),
        ready_ms=age_ms() or 0,
        security_dir=settings.security_dir if settings.secure else None,
    )
    keep_local(settings, row.bootstrap, ",".join(place.http for place in places))
    run.output.one(row, lambda: banner(row))
    sys.stdout.flush()


def banner(row: ClusterRow) -> str:
    first = row.brokers[0]
    lines = [f"headrace {row.version}  {len(row.brokers)} brokers, ready in {row.ready_ms / 1000:.2f}s"]
    lines += [
        f"  Broker {place.node_id}  {place.kafka}   {place.http}   pid {place.pid}" for place in row.brokers
    ]
    lines += [
        f"  Data      {short_path(row.data_dir)}   (durable; one coordinator for all)",
        f"Try:  headrace cluster status -b {first.kafka}     Stop: Ctrl+C",
    ]
    if row.security_dir is not None:
        from headrace.cli.secure_start import client_lines, shown_lines
        from headrace.security.founding import SecureFiles

        files = SecureFiles(Path(row.security_dir))
        lines += [
            "Clients, as the administrator (make others with: headrace user create NAME):",
            shown_lines(client_lines(files, row.bootstrap, first.http)),
        ]
    return "\n".join(lines)
