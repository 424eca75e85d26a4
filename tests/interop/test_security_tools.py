"""P1: Kafka's own tools about rights, passwords and delegation tokens, as an administrator and as somebody who may little; a Java client with a token."""

from __future__ import annotations

import base64
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from kafka_jars import HERE, java
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.broker_process import BrokerProcess

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-configs": "kafka.admin.ConfigCommand",
}
ON_TOPIC = ("Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
KINDS = {
    "topic": ON_TOPIC,
    "group": ("Read", "Delete", "Describe", "DescribeConfigs", "AlterConfigs"),
    "cluster": ("Create", "Alter", "Describe", "ClusterAction", "IdempotentWrite", "DescribeConfigs", "AlterConfigs"),
    "transactional-id": ("Write", "Describe"),
    "delegation-token": ("Describe",),
    "user-principal": ("CreateTokens", "DescribeTokens"),
}  # fmt: skip


class Shell:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            java(str(HERE / "java" / "ToolShell.java"), log_level="off"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.steps = 0

    def type(self, config: Path, line: str, says: str = "", *, fails: bool = False) -> str:
        name, *words = shlex.split(line)
        to = ["--bootstrap-server", self._bootstrap, "--command-config", str(config)]
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write("\t".join((TOOLS[name], *to, *words)) + "\n")
        self._process.stdin.flush()
        code, _, encoded = self._process.stdout.readline().partition(" ")
        printed = base64.b64decode(encoded).decode()
        assert (int(code) != 0) == fails, f"{line}: {printed}"
        assert re.search(says, printed), f"{line}: {says!r} not in {printed}"
        self.steps += 1
        return printed

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    key = tmp_path_factory.mktemp("keys") / "secrets.key"
    key.write_text("ab" * 32 + "\n")
    key.chmod(0o600)
    with BrokerProcess(arguments=("--secrets-key-file", str(key))) as running:
        yield Secured(running)


@pytest.fixture(scope="module")
def shell(secured: Secured) -> Iterator[Shell]:
    made = Shell(secured.broker.bootstrap)
    yield made
    made.close()


def config_of(directory: Path, user: str, password: str, extra: str = "") -> Path:
    path = directory / f"{user}.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={module} required username="{user}" password="{password}"{extra};\n'
    )
    return path


@pytest.mark.timeout(1_800)
def test_p1_rights_of_every_kind_are_added_listed_and_removed(
    secured: Secured, shell: Shell, tmp_path: Path
) -> None:
    admin = config_of(tmp_path, ADMIN, PASSWORD)
    who = "--allow-principal User:alice"
    for kind, operations in KINDS.items():
        patterns = ("literal",) if kind == "cluster" else ("literal", "prefixed")
        for pattern in patterns:
            name = "User:x" if kind == "user-principal" else "x"
            thing = "--cluster" if kind == "cluster" else f"--{kind} {name}"
            of = f"{thing} --resource-pattern-type {pattern}"
            for place, operation in enumerate(operations):
                host = ("", "--allow-host 10.0.0.7")[place % 2]
                upper = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
                address = "10.0.0.7" if host else "[*]"
                shown = f"principal=User:alice, host={address}, operation={upper}, permissionType=ALLOW"
                shell.type(admin, f"kafka-acls --add {who} {host} --operation {operation} {of}", shown)
            listed = shell.type(admin, f"kafka-acls --list {of}")
            assert listed.count("permissionType=ALLOW") == len(operations), listed
            shell.type(admin, f"kafka-acls --remove --force {of}")
            assert "permissionType" not in shell.type(admin, f"kafka-acls --list {of}")
    shell.type(
        admin, "kafka-acls --add --deny-principal User:bob --operation All --topic t", "permissionType=DENY"
    )
    shell.type(admin, "kafka-acls --add --allow-principal User:bob --consumer --topic t --group g")
    shell.type(admin, "kafka-acls --add --allow-principal User:bob --producer --topic t --transactional-id x")
    listed = shell.type(admin, "kafka-acls --list --principal User:bob")
    assert listed.count("permissionType=DENY") == 1 and listed.count("permissionType=ALLOW") >= 6
    shell.type(admin, "kafka-acls --list --topic t --resource-pattern-type match", "operation=ALL")
    assert shell.steps >= 70, shell.steps


@pytest.mark.timeout(1_800)
def test_p1_passwords_quotas_and_somebody_who_may_little(
    secured: Secured, shell: Shell, tmp_path: Path
) -> None:
    admin = config_of(tmp_path, ADMIN, PASSWORD)
    users = "--entity-type users --entity-name carol"
    added = "--add-config 'SCRAM-SHA-256=[iterations=8192,password=first],SCRAM-SHA-512=[password=first]'"
    shell.type(admin, f"kafka-configs --alter {users} {added}", "Completed")
    shell.type(admin, f"kafka-configs --describe {users}", "SCRAM-SHA-256=iterations=8192")
    shell.type(
        admin,
        f"kafka-configs --alter {users} --add-config 'SCRAM-SHA-256=[iterations=100,password=x]'",
        "4096",
        fails=True,
    )
    shell.type(admin, f"kafka-configs --alter {users} --add-config producer_byte_rate=1000000", "Completed")
    shell.type(admin, f"kafka-configs --describe {users}", "producer_byte_rate=1000000")
    shell.type(admin, f"kafka-configs --alter {users} --delete-config producer_byte_rate", "Completed")
    carol = config_of(tmp_path, "carol", "first")
    for topic in ("seen", "unseen"):
        shell.type(admin, f"kafka-topics --create --topic {topic}", f"Created topic {topic}")
    assert shell.type(carol, "kafka-topics --list").strip() == ""
    shell.type(admin, "kafka-acls --add --allow-principal User:carol --operation Describe --topic seen")
    assert shell.type(carol, "kafka-topics --list").split() == ["seen"]
    shell.type(carol, "kafka-topics --describe --topic seen", "Topic authorization failed", fails=True)
    shell.type(
        admin, "kafka-acls --add --allow-principal User:carol --operation DescribeConfigs --topic seen"
    )
    shell.type(carol, "kafka-topics --describe --topic seen", "PartitionCount: 1")
    shell.type(carol, "kafka-topics --describe --topic unseen", "does not exist", fails=True)
    shell.type(carol, "kafka-topics --describe --topic nowhere", "does not exist", fails=True)
    shell.type(carol, "kafka-topics --delete --topic seen", "uthoriz", fails=True)
    shell.type(carol, "kafka-topics --create --topic mine", "uthoriz", fails=True)
    shell.type(carol, "kafka-acls --list", "uthoriz", fails=True)
    assert shell.type(carol, "kafka-groups --list").count("\n") <= 1
    shell.type(carol, "kafka-consumer-groups --describe --group g", "uthoriz")
    shell.type(
        carol, f"kafka-configs --alter {users} --add-config producer_byte_rate=1", "uthoriz", fails=True
    )
    shell.type(admin, f"kafka-configs --alter {users} --delete-config SCRAM-SHA-256", "Completed")
    shell.type(carol, "kafka-topics --list", "the user name or the password is wrong", fails=True)
    shell.type(admin, f"kafka-configs --alter {users} --delete-config SCRAM-SHA-512", "Completed")


@pytest.mark.timeout(1_800)
def test_p1_delegation_tokens_and_a_java_client_that_logs_in_with_one(
    secured: Secured, shell: Shell, tmp_path: Path
) -> None:
    user = secured.user()
    secured.topic("delegated")
    secured.allow(user, AclOperation.WRITE, ResourceType.TOPIC, "delegated")
    own = config_of(tmp_path, user, "a word")
    made = shell.type(
        own,
        f"kafka-delegation-tokens --create --max-life-time-period -1 --renewer-principal User:{ADMIN}",
        "Created delegation token",
    )
    row = made.strip().splitlines()[-1].split()
    token_id, hmac = row[0], row[1]
    shell.type(own, "kafka-delegation-tokens --describe", re.escape(token_id))
    shell.type(
        own, f"kafka-delegation-tokens --renew --renew-time-period -1 --hmac {hmac}", "Completed renew"
    )
    job = config_of(tmp_path, token_id, hmac, ' tokenauth="true"')
    shell.type(
        job,
        "kafka-producer-perf-test --topic delegated --num-records 5 --record-size 10 --throughput -1",
        "5 records sent",
    )
    shell.type(
        job,
        "kafka-delegation-tokens --describe",
        "not allowed|not permitted|REQUEST_NOT_ALLOWED|Delegation Token",
        fails=True,
    )
    shell.type(
        own, f"kafka-delegation-tokens --expire --expiry-time-period -1 --hmac {hmac}", "Completed expire"
    )
    assert token_id not in shell.type(own, "kafka-delegation-tokens --describe")
    shell.type(job, "kafka-topics --list", "the user name or the password is wrong", fails=True)
