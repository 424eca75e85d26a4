"""Servers that speak SQS: ElasticMQ from Maven Central, moto from PyPI."""

from __future__ import annotations

import sys
from pathlib import Path

import sqs_load

from headrace.testing.etcd_server import free_ports
from peers.servers import HERE, KEPT, ProcessPeer, Unobtainable, has_program, obtained

ELASTICMQ = "1.7.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>headrace</groupId><artifactId>elasticmq</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.elasticmq</groupId><artifactId>elasticmq-server_2.13</artifactId><version>{ELASTICMQ}</version>
  </dependency></dependencies>
</project>
"""


class SqsPeer(ProcessPeer):
    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._port = 0

    @property
    def http_ports(self) -> list[int]:
        if not self._port:
            (self._port,) = free_ports(1)
        return [self._port]

    def ready(self) -> bool:
        try:
            sqs_load.ask(self._port, "ListQueues")
        except RuntimeError:
            return False
        return True


class ElasticMq(SqsPeer):
    name = "elasticmq"
    title = f"ElasticMQ {ELASTICMQ}"
    durability = "memory only"

    def obtain(self) -> None:
        has_program("java")
        jars = KEPT / "elasticmq"
        if jars.exists():
            return
        has_program("mvn")
        KEPT.mkdir(exist_ok=True)
        project = KEPT / "elasticmq.xml"
        project.write_text(POM)
        copy = [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(project),
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
        ]
        fresh = KEPT / "elasticmq.part"
        obtained([*copy, f"-DoutputDirectory={fresh}"], KEPT)
        fresh.rename(jars)

    def version(self) -> str:
        return ELASTICMQ

    def command(self) -> list[str]:
        (port,) = self.http_ports
        options = [
            f"-Drest-sqs.bind-hostname={HERE}",
            f"-Drest-sqs.bind-port={port}",
            "-Drest-stats.enabled=false",
        ]
        return ["java", "-Xmx512m", *options, "-cp", f"{KEPT}/elasticmq/*", "org.elasticmq.server.Main"]


class Moto(SqsPeer):
    name = "moto"
    title = "moto"
    durability = "memory only"

    def obtain(self) -> None:
        try:
            import moto.server  # noqa: F401
        except ImportError as failed:
            raise Unobtainable(f"moto is not installed: {failed}") from failed

    def version(self) -> str:
        from importlib.metadata import version

        return version("moto")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", HERE, "-p", str(self.http_ports[0])]
