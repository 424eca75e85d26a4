"""Adapter: a Spark session with the settings that spark.md section 8 found, and clear words when Java is missing."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_AT_LEAST = 17
CONNECT = "sc://"

SETTINGS = {
    # Loopback TCP costs 50 ms a micro-batch (delayed acknowledgements); a unix socket does not.
    "spark.python.unix.domain.socket.enabled": "true",
    # A second checksum beside Hadoop's own .crc, for two more files and four more processes a batch.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    # Exactly-once leans on one attempt of a task at a time.
    "spark.speculation": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.log.level": "ERROR",
}
STATELESS_SETTINGS = {
    # Lowest latency; breaks the RocksDB state store, so only for pipelines without state.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Every micro-batch broadcasts its task in a buffer of this size. The default, 4 MB, is more than half a region of the heap,
    # and each such object may start a collection: 40 of 62 in a run were for them.
    "spark.broadcast.blockSize": "256k",
}
"""On top of SETTINGS, for transform and redrive."""


class SparkMissing(RuntimeError):
    """Java or PySpark is not here; the text says how to get it."""


def require_spark(master: str | None = None) -> None:
    """Fails with what to install. PySpark itself would print a shell script's error about JAVA_HOME."""
    is_remote = master is not None and master.startswith(CONNECT)
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as problem:
        extra = "spark-connect" if is_remote else "spark"
        beside = "" if is_remote else f", and Java {JAVA_AT_LEAST} beside it"
        raise SparkMissing(
            f"this needs Spark, which is not installed here (no {problem.name}); get it with:  "
            f"pip install 'headrace[{extra}]'   (some 0.9 GB, a few minutes{beside})"
        ) from None
    if is_remote:
        return  # the JVM is at the other end
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH"
        raise SparkMissing(
            f"Spark needs Java {JAVA_AT_LEAST} or newer, and {where}; "
            "on Debian or Ubuntu:  apt-get install openjdk-17-jre-headless"
        )
    version = java_version(java)
    if version is not None and version < JAVA_AT_LEAST:
        raise SparkMissing(f"Spark needs Java {JAVA_AT_LEAST} or newer, and {java} is Java {version}")


def need_iceberg() -> None:
    """Tables are written with pyiceberg, which not everybody needs."""
    try:
        import pyiceberg.catalog.sql  # noqa: F401
    except ImportError as problem:
        raise SparkMissing(
            f"tables need pyiceberg, which is not installed here (no {problem.name}); get it with:  "
            "pip install 'headrace[tables]'"
        ) from None


def java_version(java: str) -> int | None:
    """17 for `openjdk version "17.0.15"`; None when it does not say."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found else None


def local_session(
    name: str, *, master: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = False
) -> SparkSession:
    """A session with our settings under the caller's. `master` may be local[…] or spark://… or sc://… (Connect).

    `quiet`: what the JVM and its workers print is thrown away; failures still come as exceptions."""
    require_spark(master)
    from pyspark.sql import SparkSession

    # Tasks run our code, so they have to run in this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if (master or "local").startswith("local") else "")
    if not os.environ["SPARK_LOCAL_IP"]:
        del os.environ["SPARK_LOCAL_IP"]
    from headrace.spark.versions import checkpoint_files_class, forget_dead_session

    forget_dead_session()
    builder = SparkSession.builder.appName(name)
    # The default forks dozens of processes a batch to set file modes; for checkpoints on a local disk.
    files = {"spark.sql.streaming.checkpointFileManagerClass": checkpoint_files_class()}
    chosen = {**files, **SETTINGS, **(settings or {})}
    if master is not None and master.startswith(CONNECT):
        builder = builder.remote(master)
        # Whoever started the server has settled everything else.
        chosen = {key: value for key, value in chosen.items() if key.startswith("spark.sql.")}
    elif master is not None:
        builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _stderr_closed() if quiet else contextlib.nullcontext():
        session: SparkSession = builder.getOrCreate()
    return session


@contextlib.contextmanager
def _stderr_closed() -> Iterator[None]:
    """The JVM inherits the stderr it is born with, and tells of its own start at length."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
