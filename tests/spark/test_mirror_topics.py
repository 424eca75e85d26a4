"""F67: mirrors of whatever matches a pattern, with the settings of the source. Real brokers; tasks run in this process, so no JVM is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines import mirror as mirror_module
from headrace.spark.pipelines.definition import DefinitionError, Mirror, parse
from headrace.spark.pipelines.mirror import MirrorPipeline
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess


@pytest.fixture
def other() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        yield broker


def test_f67_a_pattern_and_the_settings_of_topics(
    broker: BrokerProcess,
    other: BrokerProcess,
    client: SyncClient,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mirror_module, "run_fused", lambda spark, tasks: [task.run() for task in tasks])
    client.create_topic(f"{topic}.a", 2, {"retention.ms": "123456", "cleanup.policy": "compact"})
    client.create_topic(f"{topic}.b", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for name, partition in ((f"{topic}.a", 0), (f"{topic}.a", 1), (f"{topic}.b", 0)):
        for number in range(10):
            producer.produce(name, str(number), str(number), partition)
    assert producer.flush(120) == 0
    definition = parse(
        f'kind="mirror"\nname="m-{topic}"\npattern="{topic}[.].*|_headrace.*"\ntarget_bootstrap="{other.bootstrap}"',
        overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path)},
    )
    assert isinstance(definition, Mirror)
    session: Any = None
    pipeline = MirrorPipeline(definition, session)
    assert pipeline.round().records == 30
    with SyncClient(ClusterAccess(other.bootstrap)) as target:
        assert {name for name in target.topics() if not name.startswith("_")} == {f"{topic}.a", f"{topic}.b"}
        configs = target.topic_configs(f"{topic}.a")
        assert (configs["retention.ms"], configs["cleanup.policy"]) == ("123456", "compact")
        assert "retention.ms" not in target.topic_configs(f"{topic}.b")
        # One that comes later, and the run after: nothing twice.
        client.create_topic(f"{topic}.c", 1)
        producer.produce(f"{topic}.c", "x")
        assert producer.flush(120) == 0
        assert pipeline.round().records == 1 and pipeline.round().records == 0
        pipeline.close()
        assert MirrorPipeline(definition, session).round().records == 0
        assert f"{topic}.c" in target.topics()


def test_f67_definitions_of_mirrors() -> None:
    text = 'kind="mirror"\nname="m"\ntarget_bootstrap="b:1"\n'
    for extra, told in (
        ("", "topics is empty"),
        ('pattern="("', "regular"),
        ('pattern="a"\ntopics=["a"]', "one of topics"),
    ):
        with pytest.raises(DefinitionError, match=told):
            parse(text + extra)
