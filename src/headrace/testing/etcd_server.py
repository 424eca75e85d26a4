"""Driver: real etcd processes for tests: start, kill -9, pause, restart on the same data, one node or several.

They listen on free loopback ports and keep their data in a directory of the caller's. Everything blocks: call it from a
fixture, or around the moments a test is about.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
FAST_FLAGS = ("--heartbeat-interval", "50", "--election-timeout", "500")
"""Elections in half a second and leases from one second on; the defaults are 1 s and 2 s."""


def etcd_binary() -> str | None:
    """Where etcd is, or None: then tests skip."""
    return shutil.which("etcd")


_RANGE = range(20_000, 32_000)
"""Below what the kernel gives to whoever asks for any port (32768 and up, on Linux): else a client's connection or another server
may have a port between the moment at which it was found free and the one at which it is bound."""


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all held at once, so they differ. Chosen by chance, so that processes do not meet."""
    sockets: list[socket.socket] = []
    try:
        for port in random.sample(_RANGE, 500):
            if len(sockets) == count:
                break
            with contextlib.suppress(OSError):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        else:
            raise OSError(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop}")
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Files; with `client_ca` clients must show a certificate."""

    cert: str
    key: str
    client_ca: str | None = None
    probe: ssl.SSLContext | None = None
    """What this module's own requests use to trust the server."""


class EtcdServer:
    def __init__(
        self,
        directory: Path | str,
        *,
        name: str = "n1",
        client_port: int | None = None,
        peer_port: int | None = None,
        initial_cluster: str | None = None,
        flags: tuple[str, ...] = FAST_FLAGS,
        tls: ServerTls | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """`host` is where clients are served; peers always talk over loopback."""
        ports = free_ports(2)
        self.name = name
        self.host = host
        self.port = client_port or ports[0]
        self.peer_port = peer_port or ports[1]
        self.directory = Path(directory)
        self._initial_cluster = initial_cluster or f"{name}=http://127.0.0.1:{self.peer_port}"
        self._flags = flags
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def start(self, *, wait: bool = True) -> EtcdServer:
        """On the same data as before, if there was any."""
        assert self._process is None, "already running"
        binary = etcd_binary()
        if binary is None:
            raise FileNotFoundError("etcd is not installed")
        self.directory.mkdir(parents=True, exist_ok=True)
        client_url = f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"
        peer_url = f"http://127.0.0.1:{self.peer_port}"
        command = [
            binary,
            "--name", self.name, "--data-dir", str(self.directory / "data"),
            "--listen-client-urls", client_url, "--advertise-client-urls", client_url,
            "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
            "--initial-cluster", self._initial_cluster, "--logger", "zap", *self._flags, *self._tls_flags(),
        ]  # fmt: skip
        with open(self.directory / "etcd.log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until it has a leader and answers a linearizable read."""
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            assert self._process is not None and self._process.poll() is None, self._last_words()
            try:
                self.call("/v3/maintenance/status", {}, timeout_s=1.0)
                if self._request("GET", "/health", None, 1.0).get("health") in ("true", True):
                    return
            except (OSError, ValueError, http.client.HTTPException):
                pass
            time.sleep(0.02)
        raise TimeoutError(f"etcd was not ready in {timeout_s} s: {self._last_words()}")

    def stop(self) -> None:
        """Orderly; kills it when that takes too long. Fine to call twice."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9: no goodbye to anyone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # On a busy machine its threads answer for a while yet: this returns when the last of them has stopped.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def call(self, path: str, body: dict[str, Any], *, timeout_s: float = 5.0) -> dict[str, Any]:
        """A request to the JSON gateway, for what the coordinator does not do: compaction, users, status."""
        return self._request("POST", path, body, timeout_s)

    def is_leader(self) -> bool:
        status = self.call("/v3/maintenance/status", {})
        return bool(status.get("leader") == status["header"]["member_id"])

    def enable_auth(self, user: str, password: str) -> None:
        """A root user of that name. From then on `call` is refused."""
        self.call("/v3/auth/user/add", {"name": "root", "password": password})
        self.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        if user != "root":
            self.call("/v3/auth/user/add", {"name": user, "password": password})
            self.call("/v3/auth/user/grant", {"user": user, "role": "root"})
        self.call("/v3/auth/enable", {})

    def compact(self, revision: int) -> None:
        self.call("/v3/kv/compaction", {"revision": str(revision), "physical": True})

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float
    ) -> dict[str, Any]:
        connection: http.client.HTTPConnection
        if self._tls is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(
                self.host, self.port, timeout=timeout_s, context=self._tls.probe
            )
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            content = response.read()
            if response.status != 200:
                raise ValueError(f"etcd answered {response.status}: {content!r}")
            parsed: dict[str, Any] = json.loads(content)
            return parsed
        finally:
            connection.close()

    def _tls_flags(self) -> list[str]:
        if self._tls is None:
            return []
        flags = ["--cert-file", self._tls.cert, "--key-file", self._tls.key]
        if self._tls.client_ca is not None:
            flags += ["--client-cert-auth", "--trusted-ca-file", self._tls.client_ca]
        return flags

    def _last_words(self) -> str:
        log = self.directory / "etcd.log"
        return log.read_bytes()[-2000:].decode("utf-8", "replace") if os.path.exists(log) else "no log"


class EtcdCluster:
    """Several members of one cluster."""

    def __init__(self, directory: Path | str, size: int = 3, *, flags: tuple[str, ...] = FAST_FLAGS) -> None:
        ports = free_ports(2 * size)
        names = [f"n{index + 1}" for index in range(size)]
        initial = ",".join(
            f"{name}=http://127.0.0.1:{port}" for name, port in zip(names, ports[size:], strict=True)
        )
        self.members = [
            EtcdServer(
                Path(directory) / name,
                name=name,
                client_port=ports[index],
                peer_port=ports[size + index],
                initial_cluster=initial,
                flags=flags,
            )
            for index, name in enumerate(names)
        ]

    @property
    def address(self) -> str:
        """As in a coordinator URL: host:port,host:port."""
        return ",".join(member.address for member in self.members)

    def start(self) -> EtcdCluster:
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            member.wait_ready()
        return self

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def leader(self) -> EtcdServer:
        return next(member for member in self.members if member.is_leader())
