"""RabbitMQ from Debian, with a quorum queue; a few methods of AMQP 0-9-1 over a bare socket."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from headrace.testing.etcd_server import free_ports
from peers.debian import libraries, unpack
from peers.servers import HERE, Line, ProcessPeer, Receiver, Unobtainable, connect, end

QUEUE = "tasks"
METHOD, HEADER, BODY = 1, 2, 3
END = b"\xce"
PREFETCH = 1000


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + END


def method(channel: int, kind: int, number: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", kind, number) + arguments)


def short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def cut(received: bytearray) -> Iterator[tuple[int, bytes]]:
    """The whole frames, which are taken out."""
    while len(received) >= 8 and len(received) >= (size := 8 + struct.unpack_from(">I", received, 3)[0]):
        yield received[0], bytes(received[7 : size - 1])
        del received[:size]


class RabbitMq(ProcessPeer):
    name = "rabbitmq"
    synced = True
    title = "RabbitMQ, quorum queue"
    durability = "fsync before the confirm (quorum queue)"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._ports: list[int] = []
        self._root = Path("/")
        self._epmd: subprocess.Popen[bytes] | None = None

    def obtain(self) -> None:
        self._root = unpack("rabbitmq-server")
        # Debian's erl looks in /usr/lib/erlang whatever one says.
        own = self._root / "own"
        own.mkdir(exist_ok=True)
        lines = f'export ROOTDIR={self._erlang} BINDIR={self._erts} EMU=beam PROGNAME=erl\nexec "$BINDIR/erlexec" "$@"\n'
        (own / "erl").write_text(f"#!/bin/sh\n{lines}")
        (own / "erl").chmod(0o755)

    @property
    def _erlang(self) -> Path:
        return self._root / "usr/lib/erlang"

    @property
    def _erts(self) -> Path:
        return next(self._erlang.glob("erts-*/bin"))

    @property
    def _server(self) -> Path:
        return next(self._root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))

    @property
    def port(self) -> int:
        return self._ports[0]

    def version(self) -> str:
        return self._server.name.rpartition("-")[2]

    def command(self) -> list[str]:
        if not self._ports:
            self._ports = free_ports(3)
            (self.directory / "rabbitmq.conf").touch()
            (self.directory / "env.conf").touch()
            (self.directory / "plugins").write_text("[].\n")
        return [str(self._server / "sbin/rabbitmq-server"), "-noinput"]

    def environment(self) -> dict[str, str]:
        home = self.directory
        return {
            **libraries(self._root), "HOME": str(home), "PATH": f"{self._root}/own:{self._erts}:{os.environ['PATH']}",
            "ERL_EPMD_PORT": str(self._ports[2]), "ERL_EPMD_ADDRESS": HERE, "ERL_CRASH_DUMP": str(home / "crash.dump"),
            "RABBITMQ_ALLOW_INPUT": "1",  # the shell becomes the server instead of watching it
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"), "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_NODE_IP_ADDRESS": HERE, "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": str(self._ports[1]),
            "RABBITMQ_NODENAME": "bench@localhost", "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"), "RABBITMQ_CONF_ENV_FILE": str(home / "env.conf"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }  # fmt: skip

    def launch(self) -> None:
        self.command()
        if self._epmd is None:
            port = str(self._ports[2])
            self._epmd = subprocess.Popen(
                [str(self._erts / "epmd"), "-port", port, "-address", HERE], env=libraries(self._root)
            )
        super().launch()

    def ready(self) -> bool:
        line = self.line()
        line.socket.close()
        return True

    def stop(self) -> None:
        super().stop()
        self._stop_names()

    def kill(self) -> None:
        super().kill()
        self._stop_names()

    def _stop_names(self) -> None:
        names, self._epmd = self._epmd, None
        if names is not None:
            end(names, signal.SIGKILL)

    def _open(self) -> tuple[Receiver, Line]:
        """A channel with the queue, and confirms."""
        made = connect(self.port)
        made.settimeout(60)
        receiver = Receiver(made)

        def expect(kind: int, number: int) -> None:
            found, _, size = struct.unpack(">BHI", receiver.take(7))
            payload = receiver.take(size + 1)
            if found != METHOD or struct.unpack_from(">HH", payload) != (kind, number):
                raise ConnectionError(f"RabbitMQ says {payload[:100]!r}")

        made.sendall(b"AMQP\x00\x00\x09\x01")
        expect(10, 10)
        made.sendall(method(0, 10, 11, long(b"") + short("PLAIN") + long(b"\0guest\0guest") + short("en_US")))
        expect(10, 30)
        made.sendall(method(0, 10, 31, struct.pack(">HIH", 2047, 131_072, 0)) + method(0, 10, 40, short("/") + b"\0\0"))  # fmt: skip
        expect(10, 41)
        made.sendall(method(1, 20, 10, b"\0"))
        expect(20, 11)
        arguments = long(short("x-queue-type") + b"S" + long(b"quorum"))
        made.sendall(method(1, 50, 10, b"\0\0" + short(QUEUE) + b"\x02" + arguments))
        expect(50, 11)
        made.sendall(method(1, 85, 10, b"\0"))
        expect(85, 11)
        return receiver, Line(made, b"", lambda _: 0)

    def line(self, size: int = 100) -> Line:
        _, line = self._open()
        publish = method(1, 60, 40, b"\0\0" + short("") + short(QUEUE) + b"\0")
        head = frame(HEADER, 1, struct.pack(">HHQHB", 60, 0, size, 0x1000, 2))
        received, alone, upto = bytearray(), set[int](), 0

        def tally(data: bytes) -> int:
            nonlocal upto
            received.extend(data)
            for kind, payload in cut(received):
                if kind != METHOD or payload[:4] != b"\x00\x3c\x00\x50":
                    raise RuntimeError(f"RabbitMQ says {payload[:100]!r}")
                tag, several = struct.unpack_from(">QB", payload, 4)
                if several:
                    upto = max(upto, tag)
                    alone.difference_update([one for one in alone if one <= upto])
                elif tag > upto:
                    alone.add(tag)
            return upto + len(alone)

        return Line(line.socket, publish + head + frame(BODY, 1, b"x" * size), tally)

    def take_tasks(self, count: int) -> int:
        receiver, line = self._open()
        made = line.socket
        made.sendall(
            method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0))
            + method(1, 60, 20, b"\0\0" + short(QUEUE) + short("one") + b"\0" + long(b""))
        )
        received = bytearray(receiver.data)
        taken = acknowledged = 0
        with made:
            while taken < count:
                for kind, payload in cut(received):
                    if kind == METHOD and payload[:4] == b"\x00\x3c\x00\x3c":
                        at = 5 + payload[4]
                        (tag,) = struct.unpack_from(">Q", payload, at)
                        taken += 1
                        if taken - acknowledged >= 100 or taken == count:
                            made.sendall(method(1, 60, 80, struct.pack(">QB", tag, 1)))
                            acknowledged = taken
                if taken < count:
                    piece = made.recv(1 << 18)
                    if not piece:
                        raise Unobtainable("RabbitMQ closed the connection")
                    received += piece
            made.sendall(method(1, 20, 40, struct.pack(">H", 0) + short("") + b"\0\0\0\0"))
            made.recv(1 << 18)  # its answer: the acknowledgements before it were taken
        return taken
