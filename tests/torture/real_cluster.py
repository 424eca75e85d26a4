"""Real brokers and a real coordinator as child processes, with everything that can be done to them.

With `namespaces=True` (root on Linux) every broker and etcd live in network namespaces of their own behind one bridge, so
that links can be cut one way or both; nothing of it touches the machine's own network. The caller must then talk to the
brokers from inside the bridge's namespace: `enter_bridge_namespace` moves the whole process there.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from real_disk import RealDisk

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import EtcdServer, free_ports

CLONE_NEWNET = 0x40000000
BRIDGE_ADDRESS = "10.99.0.100"
NOBODY = "10.99.0.254"
"""A gateway with a made-up address: what is sent to it is lost without a word, as on a cut cable."""
NOWHERE = "77"
"""The routing table that sends everything there."""


class RealBroker(BrokerProcess):
    """A broker with a place on the network and a fixed port, so that clients and peers find it again."""

    def __init__(
        self,
        number: int,
        directory: Path,
        coordinator: str,
        host: str,
        prefix: Sequence[str],
        disk: RealDisk | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            directory / f"b{number}" if disk is None else disk.mount / "data",
            arguments=("--host", host, *(("--insecure",) if prefix else ())),
            environment={
                "HEADRACE_NODE_ID": str(number),
                "HEADRACE_COORDINATOR": coordinator,
                "HEADRACE_LOG_LEVEL": "info",
                "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
                "HEADRACE_RACK": f"rack{number}",
                **(settings or {}),
            },
            start_seconds=240.0,
            prefix=tuple(prefix),
        )
        self._log = directory / f"b{number}.log"
        self.disk = disk
        self.number = number
        self.host = host
        self.is_paused = False
        self.is_up = False

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.kafka_port}"

    def start(self) -> RealBroker:
        if not self.kafka_port:
            self.kafka_port, self.http_port = free_ports(2)
        super().start()
        self.is_up = True
        return self

    def kill(self) -> None:
        self.is_up = self.is_paused = False
        super().kill()

    def stop(self, seconds: float = 30.0) -> int:
        self.is_up = False
        return super().stop(seconds)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self.signal(signal.SIGCONT)
        self.is_paused = False


class Namespaces:
    """One bridge, one namespace per machine; the names carry our pid, so that nobody else's are touched."""

    def __init__(self, machines: Sequence[str]) -> None:
        self._tag = f"hr{os.getpid()}"
        self.bridge = f"{self._tag}sw"
        self.names = {machine: f"{self._tag}{machine}" for machine in machines}
        self.addresses = {machine: f"10.99.0.{index}" for index, machine in enumerate(machines, 1)}

    @staticmethod
    def are_possible() -> bool:
        if os.geteuid() != 0 or sys.platform != "linux":
            return False
        if not all(shutil.which(program) for program in ("ip", "nsenter")):
            return False
        name = f"hrprobe{os.getpid()}"
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        return made.returncode == 0

    def build(self) -> None:
        self._ip("netns", "add", self.bridge)
        self._ip("-n", self.bridge, "link", "set", "lo", "up")
        self._ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        self._ip("-n", self.bridge, "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", "br0")
        self._ip("-n", self.bridge, "link", "set", "br0", "up")
        for index, (machine, name) in enumerate(self.names.items(), 1):
            self._ip("netns", "add", name)
            self._ip(
                "link",
                "add",
                f"v{index}",
                "netns",
                name,
                "type",
                "veth",
                "peer",
                "name",
                f"p{index}",
                "netns",
                self.bridge,
            )
            self._ip("-n", self.bridge, "link", "set", f"p{index}", "master", "br0", "up")
            self._ip("-n", name, "addr", "add", f"{self.addresses[machine]}/24", "dev", f"v{index}")
            self._ip("-n", name, "link", "set", f"v{index}", "up")
            self._ip("-n", name, "link", "set", "lo", "up")
            self._ip("-n", name, "neigh", "add", NOBODY, "lladdr", "02:00:00:00:00:fe", "dev", f"v{index}", "nud", "permanent")  # fmt: skip
            self._ip("-n", name, "route", "add", "default", "via", NOBODY, "dev", f"v{index}", "table", NOWHERE)  # fmt: skip

    def remove(self) -> None:
        for name in (*self.names.values(), self.bridge):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def prefix(self, machine: str) -> tuple[str, ...]:
        # Not `ip netns exec`: it copies all mounts into a namespace of its own, and a disk that lost its power could then
        # never be unmounted while another broker lives.
        return ("nsenter", f"--net=/var/run/netns/{self.names[machine]}")

    def deafen(self, machine: str, towards: str) -> None:
        """One way: `machine` no longer hears `towards`, whose packets to it go nowhere."""
        self._ip("-n", self.names[towards], "rule", "add", "to", self.addresses[machine], "table", NOWHERE)

    def mute_to_bridge(self, machine: str, port: int) -> None:
        """What `machine` sends to this port of the bridge goes nowhere: its coordinator, not its clients."""
        self._ip("-n", self.names[machine], "rule", "add", "to", BRIDGE_ADDRESS, "ipproto", "tcp", "dport", str(port), "table", NOWHERE)  # fmt: skip

    def heal(self) -> None:
        for name in self.names.values():
            while f"lookup {NOWHERE}" in self._ip("-n", name, "rule", "list"):
                self._ip("-n", name, "rule", "del", "table", NOWHERE)

    @staticmethod
    def _ip(*arguments: str) -> str:
        return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout

    def enter_bridge_namespace(self) -> None:
        """This process, its threads to come and its children live on the bridge from now on."""
        descriptor = os.open(f"/var/run/netns/{self.bridge}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)


class RealCluster:
    def __init__(
        self,
        directory: Path,
        *,
        coordinator: str = "etcd",
        size: int = 3,
        namespaces: Namespaces | None = None,
        disks: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`disks`: every broker gets a real file system of its own, which can fail. `settings`: environment of each broker."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.namespaces = namespaces
        self.etcd: EtcdServer | None = None
        if coordinator == "etcd":
            host = "127.0.0.1" if namespaces is None else BRIDGE_ADDRESS
            self.etcd = EtcdServer(directory / "etcd", host=host)
            url = f"etcd://{self.etcd.address}"
        else:
            url = f"sqlite://{directory}/coordinator.db"
        self.brokers: dict[int, RealBroker] = {}
        for number in range(1, size + 1):
            host = "127.0.0.1"
            prefix: tuple[str, ...] = ()
            if namespaces is not None:
                host, prefix = namespaces.addresses[f"n{number}"], namespaces.prefix(f"n{number}")
            disk = RealDisk(directory, f"disk{number}") if disks else None
            self.brokers[number] = RealBroker(number, directory, url, host, prefix, disk, settings)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> RealCluster:
        if self.etcd is not None:
            self.etcd.start()
        for broker in self.brokers.values():
            if broker.disk is not None:
                broker.disk.make()
            broker.start()
        return self

    def stop(self) -> None:
        for broker in self.brokers.values():
            if broker.is_paused:
                broker.resume()
            if broker.is_up:
                broker.kill()
            if broker.disk is not None:
                broker.disk.remove()
        if self.etcd is not None:
            self.etcd.stop()

    def __enter__(self) -> RealCluster:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    def log(self) -> str:
        return "\n".join(
            f"--- broker {number}\n{broker.log()[-4000:]}" for number, broker in self.brokers.items()
        )


def wait_for(what: str, condition: object, seconds: float = 60.0) -> None:
    """Poll until `condition()` is true; real processes have no virtual clock to wait on."""
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.1)
