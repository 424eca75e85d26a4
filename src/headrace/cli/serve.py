"""Command: `headrace serve`: start one broker and keep it running until it is told to stop."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from typing import Any

import click

from headrace.broker.os_files import OsFileSystem
from headrace.broker.runtime import SystemRuntime
from headrace.node.data_directory import DirectoryLock
from headrace.node.node import Node
from headrace.node.settings import Settings, default_files, load_settings

STARTED = time.perf_counter()


@click.command()
@click.option("--host")
@click.option("--kafka-port", type=int)
@click.option("--http-port", type=int)
@click.option("--data-dir")
@click.option("--ephemeral", is_flag=True, default=None)
@click.option("--json", "as_json", is_flag=True)
def command(as_json: bool, **flags: Any) -> None:
    """Start a broker."""
    settings = load_settings(flags, os.environ, default_files()).settings
    logging.basicConfig(level=settings.log_level.upper(), stream=sys.stderr)
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, as_json))


async def _serve(settings: Settings, as_json: bool) -> None:
    runtime = SystemRuntime(OsFileSystem(str(settings.directory())))
    lock = DirectoryLock(settings.directory())
    if not settings.ephemeral:
        lock.take()
    node = Node(settings, runtime)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await node.start()
    click.echo(json.dumps({"kafka_port": node.kafka_port, "http_port": node.http_port}))
    await stop.wait()
    await node.stop()
    await runtime.close()
