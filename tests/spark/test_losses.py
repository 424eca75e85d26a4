"""Nothing lost, nothing claimed: topics that were deleted, created again, or overtaken by retention (F58, F59, F60, F63, F67)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from headrace.core.ids import TopicPartition
from headrace.spark.pipelines.archive_log import ArchiveLog
from headrace.spark.pipelines.definition import Kinds, parse
from headrace.spark.pipelines.run import run
from headrace.spark.pipelines.tables import archive_frame
from headrace.spark.sync_client import SyncClient, pause
from headrace.testing.broker_process import BrokerProcess


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        pause()


class Topics:
    """What befalls topics."""

    def __init__(self, client: SyncClient) -> None:
        self._client = client
        self._admin = AdminClient({"bootstrap.servers": client.access.bootstrap})

    def delete(self, topic: str) -> None:
        for done in self._admin.delete_topics([topic]).values():
            done.result(60)
        until(lambda: topic not in self._client.topics([topic]))

    def make_again(self, topic: str) -> None:
        self.delete(topic)
        self._client.create_topic(topic, 4)

    def cut(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        for done in self._admin.delete_records([KafkaPartition(topic, partition, offset)]).values():
            done.result(60)


@pytest.fixture(scope="module")
def topics(client: SyncClient) -> Topics:
    return Topics(client)


@pytest.fixture
def define(broker: BrokerProcess, tmp_path: Path) -> Any:
    def make(text: str, **extra: Any) -> Kinds:
        return parse(
            text, overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / "state"), **extra}
        )

    return make


def _stream(
    spark: Any, broker: BrokerProcess, subscribe: str, checkpoint: Path, on_loss: str
) -> tuple[list[int], dict[str, Any]]:
    """What one availableNow run reads, and where its checkpoint is then."""
    seen: list[int] = []

    def keep(frame: Any, batch: int) -> None:
        seen.extend(int(bytes(row.value)) for row in frame.select("value").collect())

    query = (
        spark.readStream.format("headrace").option("bootstrap", broker.bootstrap)
        .option("subscribe", subscribe).option("onLoss", on_loss).load()
        .writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()
    offsets = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return sorted(seen), json.loads(offsets[-1].read_text().splitlines()[-1])


def test_a_stream_of_a_topic_that_was_made_again(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, topics: Topics, tmp_path: Path
) -> None:
    """F60: it read 500 of 1,500 without an error, or skipped up to the old offset."""
    checkpoint = tmp_path / "checkpoint"
    assert _stream(spark, broker, topic, checkpoint, "fail")[0] == []
    publish(topic, range(100))
    assert _stream(spark, broker, topic, checkpoint, "fail")[0] == list(range(100))
    topics.make_again(topic)
    publish(topic, range(1000, 1300))
    for rule in ("fail", "skip"):
        with pytest.raises(Exception, match=f"{topic} was deleted and created again"):
            _stream(spark, broker, topic, checkpoint, rule)
    assert _stream(spark, broker, topic, checkpoint, "reset")[0] == list(range(1000, 1300))
    publish(topic, range(1300, 1310))
    assert _stream(spark, broker, topic, checkpoint, "fail")[0] == list(range(1300, 1310))


def test_a_stream_that_retention_overtook_and_a_topic_that_is_gone(
    spark: Any,
    broker: BrokerProcess,
    client: SyncClient,
    topic: str,
    publish: Any,
    topics: Topics,
    tmp_path: Path,
) -> None:
    """F60: `subscribe=a,b` with a deleted died even when losses were allowed; what is skipped is in the checkpoint."""
    other, checkpoint = f"{topic}-b", tmp_path / "checkpoint"
    client.create_topic(other, 4)
    publish(topic, range(40))
    publish(other, range(100, 140))
    both = f"{topic},{other}"
    assert len(_stream(spark, broker, both, checkpoint, "fail")[0]) == 80
    publish(topic, range(40, 80))
    topics.cut(topic, 0, 15)
    topics.delete(other)
    with pytest.raises(Exception, match=r"does not exist|no longer exist"):
        _stream(spark, broker, both, checkpoint, "fail")
    seen, offset = _stream(spark, broker, both, checkpoint, "skip")
    assert seen == sorted(set(range(40, 80)) - {40, 44, 48, 52, 56})
    assert offset["#headrace"]["skipped"] == {topic: {"0": 5}}


def test_a_checkpoint_of_sparks_kafka_source_goes_on(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, tmp_path: Path
) -> None:
    """Migration by one word: its offsets have no id, and are taken as they are."""
    checkpoint = tmp_path / "checkpoint"
    publish(topic, range(100))
    _stream(spark, broker, topic, checkpoint, "fail")
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    lines = last.read_text().splitlines()
    lines[-1] = json.dumps({topic: {str(number): 25 for number in range(4)}})
    last.write_text("\n".join(lines))
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    publish(topic, range(100, 120))
    assert _stream(spark, broker, topic, checkpoint, "fail")[0] == list(range(100, 120))


def test_an_archive_of_a_topic_that_was_made_again(
    spark: Any, topic: str, publish: Any, topics: Topics, define: Any, tmp_path: Path
) -> None:
    """F59: it missed 1,000 of 1,200 rows, said `finished`, and mixed two topics under one line of offsets. F63: the audit of it."""
    path = tmp_path / "archive"
    text = f'kind="archive"\nname="a-{topic}"\ntopics=["{topic}"]\npath="{path}"\n'
    publish(topic, range(200))
    run(define(text), once=True, spark=spark)
    topics.make_again(topic)
    publish(topic, range(1000, 1300))
    audit = define(f'kind="audit"\nname="u-{topic}"\ntopic="{topic}"\npath="{path}"')
    assert "another topic" in run(audit, spark=spark)["verdict"]
    with pytest.raises(Exception, match="created again"):
        run(define(text), once=True, spark=spark)
    assert run(define(text + 'on_loss="reset"'), once=True, spark=spark)["records"] == 300
    kept = archive_frame(spark, path, topic)
    assert sorted(int(bytes(row.value)) for row in kept.collect()) == list(range(1000, 1300))
    assert spark.read.parquet(str(path)).count() == 500, "what the old topic had is still there"
    assert run(audit, spark=spark)["verdict"] == "complete"


def test_an_archive_that_retention_overtook(
    spark: Any, topic: str, publish: Any, topics: Topics, define: Any, tmp_path: Path
) -> None:
    """F64: it was stuck for ever; with on_loss = skip it goes on, counts, and the audit says so."""
    path = tmp_path / "archive"
    text = f'kind="archive"\nname="a-{topic}"\ntopics=["{topic}"]\npath="{path}"\n'
    publish(topic, range(40))
    run(define(text), once=True, spark=spark)
    publish(topic, range(40, 80))
    topics.cut(topic, 1, 16)
    with pytest.raises(Exception, match=f"6 records of {topic}-1 are gone"):
        run(define(text), once=True, spark=spark)
    entry = run(define(text + 'on_loss="skip"'), once=True, spark=spark)
    assert (entry["records"], entry["skipped"], entry["state"]) == (34, 6, "finished")
    assert ArchiveLog(path).read().skipped == {TopicPartition(topic, 1): 6}
    audit = define(f'kind="audit"\nname="u-{topic}"\ntopic="{topic}"\npath="{path}"')
    assert run(audit, spark=spark)["verdict"] == "skipped"


def test_an_audit_says_what_was_never_archived(
    spark: Any, topic: str, publish: Any, define: Any, tmp_path: Path
) -> None:
    """F63: `complete` for a topic that was never archived, and for a partition that is missing."""
    path = tmp_path / "archive"
    empty = ArchiveLog(path)
    empty.open_for_writing()
    publish(topic, range(400))
    audit = define(f'kind="audit"\nname="u-{topic}"\ntopic="{topic}"\npath="{path}"\nreport="{tmp_path}/r"')
    assert run(audit, spark=spark)["verdict"] == "never archived"
    archive = define(f'kind="archive"\nname="a-{topic}"\ntopics=["{topic}"]\npath="{path}"')
    run(archive, once=True, spark=spark)
    assert run(audit, spark=spark)["verdict"] == "complete"
    state = ArchiveLog(path).read()
    gone = [name for name, file in state.files.items() if file["partition"] == 2]
    ArchiveLog(path).commit(state, start={}, end={}, files=[], removed=gone)
    assert run(audit, spark=spark)["verdict"] == "missing"
    assert json.loads((tmp_path / "r" / "report.json").read_text())["missing"] == 100


def test_a_mirror_keeps_its_place_without_a_group_and_tells_topics_apart(
    spark: Any, broker: BrokerProcess, topic: str, publish: Any, topics: Topics, define: Any
) -> None:
    """F58: its position was the offset of an empty group, which expires. F59: of a topic made again it copied 0 of 500."""
    with BrokerProcess() as other, SyncClient(_access(other)) as target:
        text = f'kind="mirror"\nname="m-{topic}"\ntopics=["{topic}"]\ntarget_bootstrap="{other.bootstrap}"\n'
        publish(topic, range(100))
        assert run(define(text), once=True, spark=spark)["records"] == 100
        # What expiry leaves: nothing.
        admin = AdminClient({"bootstrap.servers": other.bootstrap})
        groups = [one.group_id for one in admin.list_consumer_groups().result(60).valid]
        for group in groups:
            admin.delete_consumer_groups([group])[group].result(60)
        assert not target.committed_offsets(f"headrace-mirror-m-{topic}")
        publish(topic, range(100, 110))
        assert run(define(text), once=True, spark=spark)["records"] == 10
        publish(topic, range(110, 130))
        topics.cut(topic, 3, 30)
        with pytest.raises(Exception, match=f"3 records of {topic}-3 are gone"):
            run(define(text), once=True, spark=spark)
        entry = run(define(text + 'on_loss="skip"'), once=True, spark=spark)
        assert (entry["records"], entry["skipped"]) == (17, 3)
        topics.make_again(topic)
        publish(topic, range(500, 600))
        with pytest.raises(Exception, match="created again"):
            run(define(text + 'on_loss="skip"'), once=True, spark=spark)
        assert run(define(text + 'on_loss="reset"'), once=True, spark=spark)["records"] == 100
        assert run(define(text), once=True, spark=spark)["records"] == 0


def _access(broker: BrokerProcess) -> Any:
    from headrace.spark.connection import ClusterAccess

    return ClusterAccess(broker.bootstrap)
