"""A28: Spark and the SDK at a secured broker; what proves who they are stands in files and never in options, plans or what is sent to executors."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.main import main
from headrace.client.login import login
from headrace.core.errors import HeadraceError
from headrace.security.founding import ADMIN, SecureFiles
from headrace.spark.options import OptionError, access_from
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.run import run
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecureFiles, str]]:
    data_dir = tmp_path_factory.mktemp("secure") / "data"
    with BrokerProcess(data_dir, arguments=("--secure",)) as running:
        yield SecureFiles(data_dir / "security"), f"localhost:{running.kafka_port}"


def test_a28_spark_and_the_sdk_log_in_with_files(
    spark: Any, secure: tuple[SecureFiles, str], topic: str
) -> None:
    files, bootstrap = secure
    ca, password = str(files.authority.certificate), str(files.password)
    options = {"bootstrap": bootstrap, "user": ADMIN, "passwordFile": password, "tls.ca": ca}
    with headrace.Client(bootstrap, user=ADMIN, password_file=password, tls_ca=ca) as client:
        client.publish_many(topic, [b"%d" % number for number in range(50)])
    rows = spark.read.format("headrace").options(**options).option("subscribe", topic).load()
    assert rows.count() == 50
    secret = files.password.read_text().strip()
    assert secret not in rows._jdf.queryExecution().toString()
    values = rows.select("value")
    values.write.format("headrace").options(**options).option("topic", topic).mode("append").save()
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", **login(ADMIN, password, ca)}
    )
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=60)[1] == 100
    consumer.close()


def test_a28_f70_a_pipeline_logs_in_with_files(
    spark: Any, secure: tuple[SecureFiles, str], tmp_path: Path
) -> None:
    """`[login]` of a definition; and the commands about pipelines log in like all others."""
    files, bootstrap = secure
    ca, password = str(files.authority.certificate), str(files.password)
    topic = f"piped-{uuid.uuid4().hex[:8]}"  # a test that is tried again finds the broker as it left it
    with headrace.Client(bootstrap, user=ADMIN, password_file=password, tls_ca=ca) as client:
        client.publish_many(topic, [b"%d" % number for number in range(50)])
    for kind, more in (
        ("archive", f'topics=["{topic}"]\npath="{tmp_path}/archive"\n'),
        ("transform", f'topics=["{topic}"]\ntarget="{topic}-again"\nsql="select key, value from source"\n'),
    ):
        login = f'[login]\nuser="{ADMIN}"\npassword_file="{password}"\ntls_ca="{ca}"\n'
        text = f'kind="{kind}"\nname="p-{kind}"\nbootstrap="{bootstrap}"\nstate="{tmp_path}/{kind}"\n{more}{login}'
        definition = parse(text)
        with SyncClient(definition.access()) as reached:
            reached.create_topic(f"{topic}-again", 1)
        assert run(definition, once=True, spark=spark)["records"] == 50
    environment = {"HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD_FILE": password, "HEADRACE_TLS_CA": ca}
    listed = CliRunner().invoke(main, ["pipeline", "list", "--json", "-b", bootstrap], env=environment)
    assert {row["name"] for row in json.loads(listed.stdout)["items"]} == {"p-archive", "p-transform"}


def test_a28_nothing_secret_travels_and_nothing_secret_is_an_option(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the secret\n")
    file.chmod(0o600)
    access = access_from({"bootstrap": "b:1", "user": "alice", "passwordFile": str(file)})
    assert access.credential() == ("PLAIN", b"\0alice\0the secret")
    assert b"the secret" not in pickle.dumps(access) and "the secret" not in repr(access)
    token = access_from({"bootstrap": "b:1", "tokenFile": str(file)})
    assert token.credential() == ("OAUTHBEARER", b"n,,\x01auth=Bearer the secret\x01\x01")
    assert b"the secret" not in pickle.dumps(token)
    file.chmod(0o644)
    with pytest.raises(HeadraceError, match="can be read by others"):
        access.credential()
    for wrong in (
        {"password": "x", "user": "alice"},
        {"passwordFile": str(file)},
        {"tokenFile": str(file), "user": "alice"},
    ):
        with pytest.raises(OptionError):
            access_from({"bootstrap": "b:1", **wrong})
    with pytest.raises(HeadraceError, match="go together"):
        headrace.Client(user="alice")
