"""Peers that PyPI, Debian and npm do not have. They need Maven Central, so `make test` leaves them alone: `make interop` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / ".interop"
"""What was downloaded, for the next run."""
SPARK = "4.0.0"
"""As in pom.xml: the connector and Spark must be of one version."""

if not os.environ.get("HEADRACE_INTEROP"):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def connector_jars() -> list[Path]:
    """Spark's own Kafka connector, with the Java client that it brings along."""
    jars = KEPT / "jars"
    if not jars.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*copy, f"-DoutputDirectory={jars}"], cwd=HERE, check=True)
    found = [*jars.glob("*kafka*.jar"), *jars.glob("commons-pool2*.jar")]
    assert len(found) == 4, found
    return found


@pytest.fixture(scope="session")
def connector_python() -> Path:
    """An environment with PySpark of the connector's version and nothing of Headrace."""
    python = KEPT / "spark" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", KEPT / "spark"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"pyspark=={SPARK}"], check=True)
    return python
