"""F37: Kafka's command-line tools 4.3, as a person types them, and Connect standalone with its file connectors."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hanging import PRODUCER, hang
from kafka_jars import HERE, class_path, java

from headrace.testing.broker_process import BrokerProcess

TOOLS = {
    name: f"org.apache.kafka.tools.{kind}"
    for name, kind in {
        "kafka-topics": "TopicCommand",
        "kafka-console-producer": "ConsoleProducer",
        "kafka-console-consumer": "consumer.ConsoleConsumer",
        "kafka-console-share-consumer": "consumer.ConsoleShareConsumer",
        "kafka-producer-perf-test": "ProducerPerformance",
        "kafka-consumer-perf-test": "ConsumerPerformance",
        "kafka-share-consumer-perf-test": "ShareConsumerPerformance",
        "kafka-verifiable-producer": "VerifiableProducer",
        "kafka-verifiable-consumer": "VerifiableConsumer",
        "kafka-verifiable-share-consumer": "VerifiableShareConsumer",
        "kafka-replica-verification": "ReplicaVerificationTool",
        "kafka-dump-log": "DumpLogSegments",
        "kafka-e2e-latency": "EndToEndLatency",
        "kafka-get-offsets": "GetOffsetShell",
        "kafka-delete-records": "DeleteRecordsCommand",
        "kafka-log-dirs": "LogDirsCommand",
        "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
        "kafka-share-groups": "consumer.group.ShareGroupCommand",
        "kafka-streams-groups": "streams.StreamsGroupCommand",
        "kafka-streams-application-reset": "StreamsResetter",
        "kafka-groups": "GroupsCommand",
        "kafka-leader-election": "LeaderElectionCommand",
        "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
        "kafka-features": "FeatureCommand",
        "kafka-transactions": "TransactionsCommand",
        "kafka-broker-api-versions": "BrokerApiVersionsCommand",
        "kafka-cluster": "ClusterTool",
        "kafka-metadata-quorum": "MetadataQuorumCommand",
        "kafka-client-metrics": "ClientMetricsCommand",
        "kafka-acls": "AclCommand",
        "kafka-delegation-tokens": "DelegationTokenCommand",
    }.items()
} | {"kafka-configs": "kafka.admin.ConfigCommand"}
NOT_TYPED = {
    "JmxTool": "there is no JVM to be asked",
    "OAuthCompatibilityTool": "it talks to an issuer, not to a broker",
}
Type = Callable[..., str]


def test_f37_every_tool_of_kafka_is_typed() -> None:
    (jar,) = Path(class_path()).parent.glob("kafka-tools-[0-9]*.jar")
    with zipfile.ZipFile(jar) as archive:
        classes = [name.removesuffix(".class") for name in archive.namelist() if "$" not in name]
    ends = (
        "Command",
        "Tool",
        "Shell",
        "Consumer",
        "Producer",
        "Performance",
        "Resetter",
        "Latency",
        "Segments",
    )
    tools = {
        name.removeprefix("org/apache/kafka/tools/").replace("/", ".")
        for name in classes
        if name.endswith(ends)
    }
    typed = {kind.removeprefix("org.apache.kafka.tools.") for kind in TOOLS.values()}
    assert tools - typed == set(NOT_TYPED)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as started:
        yield started


@pytest.fixture
def type_(broker: BrokerProcess) -> Type:
    def typed(line: str, says: str = "", *, text: str | None = None, fails: bool = False) -> str:
        """One command; `says` must be found in what it prints."""
        name, *arguments = shlex.split(line)
        to = ["--bootstrap-server", broker.bootstrap]
        if name == "kafka-cluster":
            arguments, to = [*arguments, *to], []
        elif name == "kafka-dump-log":
            to = []
        command = java(TOOLS[name], *to, *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240)
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, f"{line}: {printed}"
        assert re.search(says, printed), f"{line}: {says!r} not in {printed}"
        return printed

    return typed


@pytest.mark.timeout(1_200)
def test_f37_topics_and_records(type_: Type, broker: BrokerProcess, tmp_path: Path) -> None:
    type_("kafka-topics --create --topic t --partitions 3 --config retention.ms=86400000", "Created topic t")
    described = r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: retention.ms=86400000"
    type_("kafka-topics --describe --topic t", described)
    type_("kafka-topics --alter --topic t --partitions 4")
    type_("kafka-topics --list", r"(?m)^t$")
    keyed = "--reader-property parse.key=true --reader-property key.separator=:"
    type_(f"kafka-console-producer --topic t {keyed}", text="k:one\nk:two\nk:three\n")
    read = "kafka-console-consumer --topic t --from-beginning --max-messages 3 --group console"
    type_(read, "one\ntwo\nthree")
    sized = "--num-records 500 --record-size 100 --throughput -1"
    type_(f"kafka-producer-perf-test --topic t {sized}", "500 records sent")
    type_("kafka-consumer-perf-test --topic t --num-records 400 --group perf", r"start\.time")
    type_("kafka-verifiable-producer --topic t --max-messages 10", r'"acked":10|"sent":10')
    type_("kafka-verifiable-consumer --topic t --group-id verify --max-messages 10", '"count":')
    share = "--group-id verify-share --max-messages 10 --offset-reset-strategy earliest"
    type_(f"kafka-verifiable-share-consumer --topic t {share}", "offsets_acknowledged")
    type_("kafka-e2e-latency --topic t --num-records 20 --producer-acks 1 --record-size 20", "Avg latency")
    type_("kafka-get-offsets --topic t", r"(?m)^t:3:\d+$")
    segment = max(broker.data_dir.glob("topics/t@*/*/*.log"), key=lambda file: file.stat().st_size)
    type_(f"kafka-dump-log --files {segment} --deep-iteration", r"baseOffset: 0 .*isvalid: true")
    offsets = tmp_path / "delete.json"
    offsets.write_text('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 0}]}')
    type_(f"kafka-delete-records --offset-json-file {offsets}", r"partition: t-0\s+low_watermark: 0")
    type_("kafka-log-dirs --describe --topic-list t", '"partition":"t-0"')
    type_("kafka-topics --delete --topic t")


@pytest.mark.timeout(1_200)
def test_f37_configs(type_: Type) -> None:
    type_("kafka-topics --create --topic k", "Created topic k")
    for kind, name, config in (
        ("topics", "k", "max.message.bytes=2000000"),
        ("groups", "g", "streams.num.standby.replicas=1"),
        ("clients", "c", "producer_byte_rate=1000000"),
        ("brokers", "", "log.retention.ms=86400000"),
    ):
        whom = f"--entity-type {kind} " + (f"--entity-name {name}" if name else "--entity-default")
        type_(f"kafka-configs --alter {whom} --add-config {config}", "Completed")
        type_(f"kafka-configs --describe {whom}", re.escape(config))
        type_(f"kafka-configs --alter {whom} --delete-config {config.split('=')[0]}", "Completed")


@pytest.mark.timeout(1_200)
def test_f37_groups(type_: Type) -> None:
    type_("kafka-topics --create --topic g", "Created")
    type_("kafka-console-producer --topic g", text="one\ntwo\n")
    type_("kafka-console-consumer --topic g --from-beginning --max-messages 2 --group readers", "one\ntwo")
    type_("kafka-consumer-groups --list", "(?m)^readers$")
    type_("kafka-consumer-groups --describe --group readers", r"readers\s+g\s+0\s+2\s+2\s+0")
    reset = "--reset-offsets --topic g --to-earliest --execute"
    type_(f"kafka-consumer-groups --group readers {reset}", r"readers\s+g\s+0\s+0")
    type_("kafka-consumer-groups --delete-offsets --group readers --topic g", "Successful")
    type_("kafka-consumer-groups --delete --group readers", "successful")
    whom = "--entity-type groups --entity-name sharers"
    type_(f"kafka-configs --alter {whom} --add-config share.auto.offset.reset=earliest", "Completed")
    type_("kafka-console-share-consumer --topic g --max-messages 2 --group sharers", "one\ntwo")
    type_(
        "kafka-share-consumer-perf-test --topic g --num-records 0 --group sharers --timeout 1000",
        r"start\.time",
    )
    type_("kafka-share-groups --list", "(?m)^sharers")
    type_("kafka-share-groups --describe --group sharers", r"sharers\s+g\s+0")
    type_(f"kafka-share-groups --group sharers {reset}", r"sharers\s+g\s+0\s+0")
    type_("kafka-share-groups --delete --group sharers", "successful")
    type_("kafka-groups --list", "GROUP")


@pytest.mark.timeout(1_200)
def test_f37_cluster(type_: Type, broker: BrokerProcess, tmp_path: Path) -> None:
    type_("kafka-topics --create --topic c --partitions 2", "Created")
    type_("kafka-leader-election --election-type preferred --all-topic-partitions")
    moves = tmp_path / "moves.json"
    moves.write_text('{"version": 1, "partitions": [{"topic": "c", "partition": 0, "replicas": [1]}]}')
    reassign = f"kafka-reassign-partitions --reassignment-json-file {moves}"
    type_(f"{reassign} --execute --disallow-replication-factor-change", "Successfully started")
    type_(f"{reassign} --verify", "complete")
    type_("kafka-reassign-partitions --list", "No partition reassignments found")
    type_("kafka-features describe", r"streams\.version")
    type_("kafka-transactions list", "TransactionalId")
    type_("kafka-transactions list --transactional-id-pattern .*-pay", "TransactionalId")
    type_("kafka-transactions find-hanging --broker-id 1", "Topic")
    assert "among 2 partitions" in verified(broker, "c")
    type_("kafka-broker-api-versions", "StreamsGroupHeartbeat")
    type_("kafka-cluster cluster-id", "Cluster ID: ")
    type_("kafka-metadata-quorum describe --status", "LeaderId")
    type_("kafka-client-metrics --list")
    type_("kafka-delegation-tokens --describe", "(?i)delegation|unsupported|disabled", fails=True)
    rule = "--allow-principal User:alice --operation Read --topic c"
    type_(f"kafka-acls --add {rule}", "Adding ACLs")
    type_("kafka-acls --list --topic c", "principal=User:alice")
    type_(f"kafka-acls --remove --force {rule}")


@pytest.mark.timeout(1_200)
def test_f37_a_hanging_transaction_is_found_and_ended() -> None:
    """As KIP-664 has it: the tool finds it by its age, and aborts it by where it began."""
    with BrokerProcess() as broker:

        def typed(line: str, text: str | None = None) -> str:
            name, *arguments = shlex.split(line)
            command = java(TOOLS[name], "--bootstrap-server", broker.bootstrap, *arguments)
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240)
            assert done.returncode == 0, done.stderr
            return done.stdout

        typed("kafka-topics --create --topic stuck")
        typed("kafka-console-producer --topic stuck", "before\n")
        hang(broker, "stuck", 1, age_ms=3_600_000)
        typed("kafka-console-producer --topic stuck", "behind\n")
        read = "kafka-console-consumer --topic stuck --from-beginning --isolation-level read_committed"
        assert typed(f"{read} --max-messages 1 --timeout-ms 120000").split() == ["before"]
        assert re.search(
            rf"stuck\s+0\s+{PRODUCER}\s+3", typed("kafka-transactions find-hanging --broker-id 1")
        )
        described = typed("kafka-transactions describe-producers --topic stuck --partition 0")
        assert re.search(rf"{PRODUCER}\s+3\s+.*\s1\s*$", described, re.M), described
        typed("kafka-transactions abort --topic stuck --partition 0 --start-offset 1")
        assert typed(f"{read} --max-messages 2 --timeout-ms 120000").split() == ["before", "behind"]
        assert str(PRODUCER) not in typed("kafka-transactions find-hanging --broker-id 1")


@pytest.mark.timeout(1_200)
def test_f37_streams_groups(type_: Type, broker: BrokerProcess, tmp_path: Path) -> None:
    """A real application's group, listed, described, reset and deleted by Kafka's tool."""
    for topic, count in (("words", 1), ("totals", 1)):
        type_(f"kafka-topics --create --topic {topic} --partitions {count}", "Created")
    type_("kafka-console-producer --topic words", text="a\nb\na\n")
    program = java(str(HERE / "streams" / "CountWords.java"), broker.bootstrap, "tooled", "streams")
    with (tmp_path / "app.log").open("wb") as log:
        app = subprocess.Popen([*program, str(tmp_path / "state"), "9100"], stdout=log, stderr=log)
    try:
        read = "kafka-console-consumer --topic totals --from-beginning --max-messages 3 --timeout-ms 200000"
        type_(f"{read} --isolation-level read_committed", "Processed a total of 3 messages")
        type_("kafka-streams-groups --list", "(?m)^tooled$")
        type_("kafka-streams-groups --describe --group tooled", "words")
        type_("kafka-streams-groups --describe --group tooled --state", "Stable")
        type_("kafka-streams-groups --describe --group tooled --members", "(?i)active")
        type_("kafka-streams-groups --delete --group tooled", "is not EMPTY")
    finally:
        app.terminate()
        app.wait(120)
    end = time.monotonic() + 120
    while "Empty" not in type_("kafka-streams-groups --describe --group tooled --state"):
        assert time.monotonic() < end
    reset = "--reset-offsets --group tooled --input-topic words --to-earliest --execute"
    type_(f"kafka-streams-groups {reset}", r"words\s+0\s+0")
    type_("kafka-streams-groups --delete --group tooled", "successful")
    type_("kafka-streams-application-reset --application-id tooled --input-topics words", "Done")


@pytest.mark.timeout(600)
def test_f37_connect_standalone(broker: BrokerProcess, type_: Type, tmp_path: Path) -> None:
    """Lines of a file become records, and records become lines of another file."""
    type_("kafka-topics --create --topic lines", "Created")
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("one\ntwo\nthree\n")
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": broker.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": tmp_path / "offsets",
        "offset.flush.interval.ms": 500,
        "listeners": "http://127.0.0.1:0",
    }
    streaming = "org.apache.kafka.connect.file.FileStream"
    reader = {"connector.class": f"{streaming}SourceConnector", "file": source, "topic": "lines"}
    writer = {"connector.class": f"{streaming}SinkConnector", "file": sink, "topics": "lines"}
    files = [
        write(tmp_path / "worker.properties", worker),
        write(tmp_path / "reader.properties", {"name": "reader", **reader}),
        write(tmp_path / "writer.properties", {"name": "writer", **writer}),
    ]
    command = java("org.apache.kafka.connect.cli.ConnectStandalone", *files, log_level="warn")
    with (tmp_path / "connect.log").open("wb") as log:
        connect = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 240
        while not sink.exists() or sink.read_text() != "one\ntwo\nthree\n":
            problem = (tmp_path / "connect.log").read_text(errors="replace")[-4_000:]
            assert connect.poll() is None and time.monotonic() < end, problem
            time.sleep(0.2)
    finally:
        connect.terminate()
        connect.wait(120)


def verified(broker: BrokerProcess, topic: str) -> str:
    """What the first report of kafka-replica-verification says, which goes on for ever."""
    of = ["--broker-list", broker.bootstrap, "--topics-include", topic, "--report-interval-ms", "500"]
    with subprocess.Popen(
        java(TOOLS["kafka-replica-verification"], *of), stdout=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        report = next((line for line in tool.stdout if "max lag is" in line), "")
        tool.kill()
    return report


def write(path: Path, settings: dict[str, Any]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
