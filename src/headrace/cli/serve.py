"""Command: `headrace serve`: start one broker and keep it running until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec

from headrace import __version__
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.local_context import keep_local
from headrace.cli.output import Row, Shape, short_path
from headrace.cli.parameters import Number
from headrace.cli.processes import age_ms
from headrace.cli.profile import settings_failure
from headrace.cli.setting_options import setting_options
from headrace.cli.start_checks import need_free_ports, need_safe_bind, start_failure
from headrace.node.settings import Settings, SettingsError, default_files, load_settings

if TYPE_CHECKING:
    from headrace.node.node import Node

_LOADED = time.perf_counter()


class ServeRow(Row):
    """What `serve` says once clients can use it."""

    SCHEMA: ClassVar[str] = "headrace.serve/v1"
    NAME: ClassVar[str] = "kafka"
    version: str
    kafka: str
    http: str
    kafka_port: int
    http_port: int
    node_id: int
    cluster_id: str
    data_dir: str | None
    durable: bool
    pid: int
    ready_ms: int
    console: str | None = None
    """Where a browser finds the console; null with --no-console."""
    sqs_signed: bool = False
    """SQS requests need a key of --sqs-credentials."""
    mode: str = "open"
    security_dir: str | None = None
    """With --secure: where the authority's certificate and the administrator's password are."""


@leaf(ServeRow, Shape.ONE)
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="One more settings file."
)
@click.option(
    "--brokers", type=Number(1), default=1, help="Start a cluster of so many brokers on this host.  [1]"
)
@click.option(
    "--pipelines", is_flag=True, help="Run submitted pipelines too: a supervisor beside this broker."
)
@setting_options
def command(run: Invocation, config_file: str | None, brokers: int, pipelines: bool, **flags: Any) -> Exit:
    """Start a broker.

    Data lives in the platform's data directory and survives restarts; --ephemeral keeps everything in memory. Every
    setting is a flag, a variable such as HEADRACE_KAFKA_PORT, and a key in headrace.toml.
    """
    files = default_files() + ([Path(config_file)] if config_file else [])
    try:
        settings = load_settings(flags, os.environ, files).settings
    except SettingsError as error:
        raise settings_failure(error) from None
    _log_to_stderr(settings, run.verbosity)
    settings = _with_collector(settings)
    need_safe_bind(settings)
    if settings.secure:
        settings, flags = _secured(settings, flags, brokers)
    if brokers != 1:
        if pipelines:
            raise Failure(
                Exit.USAGE,
                "--pipelines goes with one broker",
                "run headrace pipeline supervise beside a cluster",
            )
        from headrace.cli.dev_cluster import serve_cluster

        with asyncio.Runner() as runner:
            return runner.run(serve_cluster(run, settings, flags, brokers))
    need_free_ports(settings)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(settings, run, pipelines))


def _with_collector(settings: Settings) -> Settings:
    """A variable of OpenTelemetry's counts where no setting of ours does. Brokers in somebody's tests do not look at it."""
    if settings.otlp_endpoint or not any(name.startswith("OTEL_EXPORTER_OTLP_") for name in os.environ):
        return settings
    from headrace.node.tracing import collector_of

    return msgspec.structs.replace(settings, otlp_endpoint=collector_of(os.environ))


def _secured(settings: Settings, flags: dict[str, Any], brokers: int) -> tuple[Settings, dict[str, Any]]:
    """A56: with whatever was missing; brokers that are started for us find it where we put it."""
    from headrace.cli.secure_start import secure_files, secured

    if settings.ephemeral:
        raise Failure(Exit.USAGE, "--secure needs a data directory", "leave --ephemeral out")
    node_ids = [settings.node_id] if brokers == 1 else list(range(1, brokers + 1))
    settings, _ = secured(settings, node_ids, [])
    return settings, {**flags, "security_dir": str(secure_files(settings).directory)}


def _log_to_stderr(settings: Settings, verbosity: int) -> None:
    level = settings.log_level.upper() if not verbosity else ("INFO" if verbosity == 1 else "DEBUG")
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)-8s %(name)s: %(message)s"
    )


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, run: Invocation, pipelines: bool) -> Exit:
    from headrace.broker.os_files import OsFileSystem
    from headrace.broker.runtime import SystemRuntime
    from headrace.log.memory_fs import MemoryFileSystem
    from headrace.node.core_dumps import keep_memory_private
    from headrace.node.data_directory import DirectoryLock
    from headrace.node.node import Node

    stop = _stop_on_signals()
    keep_memory_private(settings)
    lock = DirectoryLock(settings.directory())
    # An ephemeral broker touches no disk at all, so nothing is left behind, however it ends.
    runtime = SystemRuntime(
        MemoryFileSystem() if settings.ephemeral else OsFileSystem(str(settings.directory()))
    )
    try:
        if not settings.ephemeral:
            lock.take()
        node = Node(settings, runtime)
        if await _start(node, stop):
            _calm_garbage_collection()
            _announce(run, settings, node)
            if settings.tls_cert or settings.secrets_key_file:
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, node.look_at_files)
            if pipelines:
                from headrace.cli.serve_pipelines import supervising

                async with supervising(f"localhost:{node.kafka_port}", settings):
                    await _first_of(stop, node.broken)
            else:
                await _first_of(stop, node.broken)
            await node.stop()
            if node.broken_by is not None:
                raise Failure(
                    Exit.FAILED,
                    f"the broker ended: {node.broken_by}",
                    "start it again; the log above has the traceback, which is worth a bug report",
                    code="VITAL_TASK_FAILED",
                )
    except Exception as problem:
        failure = start_failure(problem, settings)
        if failure is None:
            raise
        raise failure from problem
    finally:
        await runtime.close()
        lock.release()
    return Exit.OK


def _calm_garbage_collection() -> None:
    """A request makes some twenty objects and no cycles, so the default (a look every 700 objects, and ever so often at
    everything there is) was a fifth of the CPU of a small produce. What the start has made lives as long as we do: looking through it
    once more for the little that does not would take longer than all the rest of this."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            os._exit(Exit.INTERRUPTED)  # asked twice: now means now
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked)
    return stop


async def _first_of(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


async def _start(node: Node, stop: asyncio.Event) -> bool:
    """False when we were told to stop before it was up, as when a coordinator does not answer."""
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        return False
    await starting
    return True


def _announce(run: Invocation, settings: Settings, node: Node) -> None:
    host = "localhost" if settings.is_loopback else (settings.advertised_host or settings.host)
    cluster = node.metadata.image.cluster
    url = f"{'http' if node.tls is None else 'https'}://{host}:{node.http_port}"
    row = ServeRow(
        version=__version__,
        kafka=f"{host}:{node.kafka_port}",
        http=url,
        kafka_port=node.kafka_port,
        http_port=node.http_port,
        node_id=settings.node_id,
        cluster_id=cluster.cluster_id if cluster is not None else "",
        data_dir=None if settings.ephemeral else str(settings.directory().absolute()),
        durable=not settings.ephemeral,
        pid=os.getpid(),
        ready_ms=age_ms() or int((time.perf_counter() - _LOADED) * 1000),
        console=f"{url}/" if settings.console else None,
        sqs_signed=bool(settings.sqs_credentials),
        mode=node.doors.security.image.mode.mode,
        security_dir=settings.security_dir if settings.secure else None,
    )
    is_local = keep_local(settings, row.kafka, row.http)
    run.output.one(row, lambda: banner(row, is_local))
    sys.stdout.flush()
    if not settings.is_loopback and row.mode == "open":
        run.warn(f"anyone who can reach {row.kafka} can read and write everything (--insecure)")
    if row.sqs_signed:
        run.warn(open_doors(row.kafka, row.http))


def open_doors(kafka: str, http: str) -> str:
    """A8: what --sqs-credentials does not protect."""
    return (
        f"--sqs-credentials guards SQS alone: the same queues can be read, written and deleted without a key by REST ({http}) "
        f"and Kafka ({kafka}), by everybody who can reach them"
    )


def banner(row: ServeRow, is_local: bool = False) -> str:
    """At most eight lines: what runs, where, where the data is, and what to type next; without an address where commands find it."""
    data = "in memory only, gone when it stops (--ephemeral)"
    if row.data_dir is not None:
        data = f"{short_path(row.data_dir)}   (durable; --ephemeral to discard)"
    elsewhere = "" if is_local or row.kafka_port == 9092 else f" -b {row.kafka}"
    if row.security_dir is not None:
        return _secure_banner(row, data)
    return "\n".join(
        [
            f"headrace {row.version}  ready in {row.ready_ms / 1000:.2f}s{'' if row.mode == 'open' else f'   (mode {row.mode})'}",
            f"  Kafka     {row.kafka}",
            f"  HTTP      {row.http}   ({_doors(row)}, /metrics)",
            *([f"  Console   {row.console}"] if row.console else []),
            f"  Data      {data}",
            f"Try:  headrace {'login' if row.mode == 'enforced' else 'topic produce hello'}{elsewhere}     Stop: Ctrl+C",
        ]
    )


def _secure_banner(row: ServeRow, data: str) -> str:
    from headrace.cli.secure_start import client_lines, shown_lines
    from headrace.security.founding import SecureFiles

    assert row.security_dir is not None
    return "\n".join(
        [
            f"headrace {row.version}  ready in {row.ready_ms / 1000:.2f}s   (mode {row.mode}, TLS)",
            f"  Kafka     {row.kafka}",
            f"  HTTP      {row.http}",
            *([f"  Console   {row.console}"] if row.console else []),
            f"  Data      {data}",
            f"  Security  {short_path(row.security_dir)}   (keep ca.key to yourself)",
            "Clients, as the administrator (make others with: headrace user create NAME):",
            shown_lines(client_lines(SecureFiles(Path(row.security_dir)), row.kafka, row.http)),
        ]
    )


def _doors(row: ServeRow) -> str:
    if row.mode == "enforced":
        return "SQS and REST for who proves to be somebody"
    return (
        "SQS signed with a key of yours; REST without any"
        if row.sqs_signed
        else "SQS with any access key, REST"
    )
