"""T1, T9: a table that Headrace keeps in an S3 store, read by Spark's own Iceberg runtime, which knows nothing of us. The store is a server of its own,
built from the Go proxy; the catalog is the SQLite file, which Iceberg's JDBC catalog reads as it stands."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / ".interop"
STORE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
JARS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "org.apache.iceberg:iceberg-aws-bundle:1.11.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
FIRST, SECOND = 3_000, 2_000
SHOPS = ("north", "south", "west")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = KEPT / "go" / "versitygw"
    if not program.exists():
        subprocess.run(["go", "install", STORE], env={**os.environ, "GOBIN": str(program.parent)}, check=True)
    (port,) = free_ports(1)
    home = tmp_path_factory.mktemp("store")
    (home / "buckets" / "lake").mkdir(parents=True)
    (home / "told").mkdir()
    command: list[Any] = [
        program,
        "-p",
        f"127.0.0.1:{port}",
        "-a",
        "k",
        "-s",
        "s",
        "posix",
        "--sidecar",
        str(home / "told"),
        str(home / "buckets"),
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    ends_at = time.monotonic() + 60
    while socket.socket().connect_ex(("127.0.0.1", port)):
        assert process.poll() is None and time.monotonic() < ends_at, (home / "log").read_text()
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}"
    process.terminate()
    process.wait()


@pytest.fixture(scope="module")
def iceberg_jars() -> list[Path]:
    jars = KEPT / "iceberg"
    if not jars.exists():
        fresh = KEPT / "iceberg.part"
        for artifact in JARS:
            copy = [f"-Dartifact={artifact}", f"-DoutputDirectory={fresh}", "-Dmdep.useBaseVersion=true"]
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", *copy], cwd=HERE, check=True)
        fresh.rename(jars)
    found = list(jars.glob("*.jar"))
    assert len(found) == len(JARS), found
    return found


def publish(broker: BrokerProcess, numbers: range, **more: object) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        order = {"id": number, "shop": SHOPS[number % 3], "amount": number / 4, **more}
        producer.produce("orders", json.dumps(order), partition=number % 2)
    assert producer.flush(120) == 0


@pytest.mark.timeout(1200)
def test_t1_a_table_in_a_store_is_read_by_sparks_own_iceberg(
    connector_python: Path, iceberg_jars: list[Path], store: str, tmp_path: Path
) -> None:
    catalog = tmp_path / "catalog.db"
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}

    def round_with(broker: BrokerProcess, properties: dict[str, str]) -> None:
        """As a person runs it: a definition, one command."""
        schema = json.dumps({"properties": {name: {"type": kind} for name, kind in properties.items()}})
        (tmp_path / "orders.toml").write_text(
            f'''kind = "table"
name = "orders-in-the-lake"
topic = "orders"
warehouse = "s3://lake/warehouse"
table = "sales.orders"
json_schema = \'{schema}\'
partition_by = "identity(shop)"
[catalog]
type = "sql"
uri = "sqlite:///{catalog}"
"s3.endpoint" = "{store}"
"s3.region" = "us-east-1"
'''
        )
        run = ["headrace", "pipeline", "run", "orders.toml", "--once", "--bootstrap", broker.bootstrap]
        environment = {**os.environ, **keys, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        subprocess.run(run, cwd=tmp_path, env=environment, check=True)

    with BrokerProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result()
        columns = {"id": "integer", "shop": "string", "amount": "number"}
        publish(broker, range(FIRST))
        round_with(broker, columns)
        # A column more, in the middle of the table's life.
        publish(broker, range(FIRST, FIRST + SECOND), note="late")
        round_with(broker, {**columns, "note": "string"})

    job: list[Any] = [
        str(connector_python),
        str(HERE / "iceberg_job.py"),
        catalog,
        store,
        ",".join(map(str, iceberg_jars)),
    ]
    environment = {
        **os.environ, **keys, "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(connector_python), "PYSPARK_DRIVER_PYTHON": str(connector_python),
    }  # fmt: skip
    done = subprocess.run(job, cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    seen = json.loads(done.stdout.splitlines()[-1])
    total = FIRST + SECOND
    assert (seen["rows"], seen["ids"], seen["sum"]) == (total, total, sum(range(total)))
    assert seen["amount"] == sum(number / 4 for number in range(total))
    assert seen["notes"] == {"late": SECOND, "null": FIRST}
    assert seen["north"] == len(range(0, total, 3)) and seen["partitions"] == sorted(SHOPS)
    # What the first round left is still there to be asked.
    assert seen["first"] == FIRST
    assert seen["offsets"] and seen["lost"] == 0
