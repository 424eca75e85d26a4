"""Adapter: a broker that runs in the background: what `start` writes down about it, and whether that is still true.

local.server.json    beside the data directory: the process, its addresses
local.log            what it says

A process is known by its number and by when it began: numbers are given again. The data directory's own lock tells of brokers that
nobody wrote down.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from headrace.cli.processes import born
from headrace.node.data_directory import holder
from headrace.node.settings import Settings

READY_S = 5.0


class Server(msgspec.Struct, kw_only=True):
    pid: int
    born: str
    version: str
    kafka: str
    http: str
    console: str | None = None
    data_dir: str | None = None
    log: str = ""
    tls_ca: str = ""

    @property
    def is_running(self) -> bool:
        return born(self.pid) == self.born

    def trouble(self) -> str | None:
        """Why it is not ready; None when it is."""
        address = urlsplit(self.http.split(",")[0])
        host, port = address.hostname or "localhost", address.port
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            import ssl

            trust = ssl.create_default_context(cafile=self.tls_ca or None)
            connection = http.client.HTTPSConnection(host, port, timeout=READY_S, context=trust)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=READY_S)
        try:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            body = response.read(10_000)
        except (OSError, http.client.HTTPException) as problem:
            return f"{self.http} does not answer: {problem}"
        finally:
            connection.close()
        return None if response.status == http.client.OK else _detail(body)


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return "not ready"


class ServerPlace(NamedTuple):
    """Where a server is written down; by its data directory, also when that is not used (--ephemeral)."""

    directory: Path

    @classmethod
    def of(cls, settings: Settings) -> ServerPlace:
        return cls(settings.directory().absolute())

    @property
    def record(self) -> Path:
        return self.directory.parent / f"{self.directory.name}.server.json"

    @property
    def log(self) -> Path:
        return self.directory.parent / f"{self.directory.name}.log"

    def server(self) -> Server | None:
        """As it was written down, whether it still runs or not."""
        try:
            return msgspec.json.decode(self.record.read_bytes(), type=Server)
        except (OSError, msgspec.DecodeError):
            return None

    def other(self) -> str | None:
        """The process of a broker in this directory that was not started in the background."""
        try:
            return holder(self.directory)
        except OSError:
            return None

    def write(self, server: Server) -> None:
        draft = self.record.with_name(f".{self.record.name}.{os.getpid()}")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(server)) + b"\n")
        draft.chmod(0o600)
        draft.replace(self.record)

    def forget(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.record.unlink()
