"""Kafka's own programs from Maven Central: Streams, tools, Connect; downloaded once, kept in .interop."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

HERE = Path(__file__).parents[1] / "interop"
KEPT = HERE.parents[1] / ".interop"
VERSION = "4.3.1"
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


def class_path() -> str:
    jars = KEPT / f"kafka-{VERSION}"
    if not jars.exists():
        fresh = KEPT / f"kafka-{VERSION}.{os.getpid()}"
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*copy, f"-DoutputDirectory={fresh}"], cwd=HERE / "streams", check=True)
        fresh.rename(jars)
    return f"{jars}/*"


def java(*arguments: str, log_level: str = "error") -> list[str]:
    return [
        "java",
        *QUICK,
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}",
        "-cp",
        class_path(),
        *arguments,
    ]
