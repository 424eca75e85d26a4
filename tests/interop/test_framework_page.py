"""Airflow with its providers for SQS and Kafka, and what else wants an environment of its own, against a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework_page import follow_section

from headrace.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / ".interop"
PACKAGES = [
    "apache-airflow==3.3.2",
    "apache-airflow-providers-amazon==9.39.0",
    "apache-airflow-providers-apache-kafka==2.1.0",
    "taskiq-aio-sqs==2.1.1",  # its botocore is an older one than ours
]


@pytest.fixture(scope="module")
def environment() -> Path:
    """Where programs of an environment are that has them and nothing of Headrace."""
    made = KEPT / "airflow"
    wanted = "\n".join(PACKAGES)
    stamp = made / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        uv = Path(sys.executable).parent / "uv"
        subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", sys.executable, made], check=True)
        subprocess.run(
            [uv, "pip", "install", "-q", "--python", made / "bin" / "python", *PACKAGES], check=True
        )
        stamp.write_text(wanted)
    return made / "bin"


@pytest.fixture
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["Airflow", "taskiq on SQS"])
def test_a_framework_works_as_its_section_says(
    name: str, environment: Path, broker: BrokerProcess, tmp_path: Path
) -> None:
    follow_section(name, tmp_path, broker, environment)
