"""Every pipeline end to end on real Spark (S5, S6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.core.ids import TopicPartition
from headrace.spark.connection import ClusterAccess
from headrace.spark.pipelines import archive as archive_module
from headrace.spark.pipelines.archive_log import ArchiveLog
from headrace.spark.pipelines.board import PipelineBoard
from headrace.spark.pipelines.definition import DefinitionError, Kinds, parse
from headrace.spark.pipelines.examples import example
from headrace.spark.pipelines.replay import rate_of_a_task
from headrace.spark.pipelines.run import run
from headrace.spark.pipelines.tables import archive_frame, history_and_now
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess


@pytest.fixture
def define(broker: BrokerProcess, tmp_path: Path) -> Any:
    def make(text: str, **extra: Any) -> Kinds:
        return parse(
            text, overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / "state"), **extra}
        )

    return make


def _numbers(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def _topic(spark: Any, bootstrap: str, topic: str) -> Any:
    return spark.read.format("headrace").option("bootstrap", bootstrap).option("subscribe", topic).load()


def test_archive_then_sql_replay_and_audit(
    spark: Any,
    broker: BrokerProcess,
    client: SyncClient,
    topic: str,
    publish: Any,
    define: Any,
    tmp_path: Path,
) -> None:
    """History and now is one table (S6), an archive goes back into a topic, and the audit finds what is wrong."""
    path = tmp_path / "archive"
    archive = define(
        f'kind="archive"\nname="a-{topic}"\ntopics=["{topic}"]\npath="{path}"\nmax_records_per_round=1500'
    )
    publish(topic, range(4000))
    assert run(archive, once=True, spark=spark)["records"] == 4000
    assert run(archive, once=True, spark=spark)["records"] == 0
    publish(topic, range(4000, 5000))
    whole = history_and_now(spark, broker.bootstrap, topic, path)
    assert sorted(int(row.value) for row in whole.select("value").collect()) == list(range(5000))
    assert run(archive, once=True, spark=spark)["lag"] == 0
    assert _numbers(archive_frame(spark, path)) == list(range(5000))
    # Plain Parquet for everybody else, with date and hour as columns.
    plain = spark.read.parquet(str(path))
    assert plain.count() == 5000 and {"date", "hour"} <= set(plain.columns)
    done = client.committed_offsets(f"headrace-archive-a-{topic}")
    assert sum(entry.offset for entry in done.values()) == 5000

    again = f"{topic}-again"
    client.create_topic(again, 4)
    replay = define(
        f'kind="replay"\nname="r-{topic}"\npath="{path}"\ntopic="{again}"\nkeep_partitions=true\n'
        'where="cast(value as int) >= 1000"'
    )
    assert run(replay, spark=spark)["records"] == 4000
    run(replay, spark=spark)
    rows = _topic(spark, broker.bootstrap, again).collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(1000, 5000))
    for number in range(4):
        own = [
            int(bytes(row.value))
            for row in sorted(rows, key=lambda row: row.offset)
            if row.partition == number
        ]
        assert own == sorted(own)

    audit = define(
        f'kind="audit"\nname="u-{topic}"\ntopic="{topic}"\npath="{path}"\nreport="{tmp_path}/report"'
    )
    assert run(audit, spark=spark)["verdict"] == "complete"
    compare = define(f'kind="audit"\nname="v-{topic}"\ntopic="{topic}"\nother_topic="{again}"')
    assert run(compare, spark=spark)["verdict"] == "missing"
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["left"]["records"] == report["right"]["records"] == 5000
    assert "<svg" in (tmp_path / "report" / "report.html").read_text()


def test_a_replay_of_few_partitions_has_the_rate_that_was_asked_for() -> None:
    """A sixteenth of it went to each of sixteen tasks, of which one partition keeps one busy."""
    assert [rate_of_a_task(8_000, partitions) for partitions in (0, 1, 4, 16, 500)] == [
        8_000,
        8_000,
        2_000,
        500,
        500,
    ]
    assert rate_of_a_task(5, 16) == 1


def test_small_files_become_one(spark: Any, topic: str, publish: Any, define: Any, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    archive = define(f'kind="archive"\nname="c-{topic}"\ntopics=["{topic}"]\npath="{path}"\ncompact_files=6')
    for start in range(0, 300, 100):
        publish(topic, range(start, start + 100), timestamp=1_700_000_000_000)
        run(archive, once=True, spark=spark)
    state = ArchiveLog(path).read()
    assert len(state.files) < 6 and state.rows() == 300
    assert len(list(path.glob("date=*/hour=*/*.parquet"))) == len(state.files)
    assert _numbers(archive_frame(spark, path)) == list(range(300))


def test_an_archive_round_that_dies_is_done_again(
    spark: Any, topic: str, publish: Any, define: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after the tasks have written and before the log knows: every row once in the end."""
    path = tmp_path / "archive"
    archive = define(f'kind="archive"\nname="d-{topic}"\ntopics=["{topic}"]\npath="{path}"')
    publish(topic, range(500))
    with monkeypatch.context() as patch:
        patch.setattr(
            archive_module.ArchiveLog, "commit", lambda *a, **k: (_ for _ in ()).throw(OSError("dead"))
        )
        with pytest.raises(OSError, match="dead"):
            run(archive, once=True, spark=spark)
    run(archive, once=True, spark=spark)
    assert _numbers(archive_frame(spark, path)) == list(range(500))


def test_transform_with_sql_and_with_python(
    spark: Any,
    broker: BrokerProcess,
    client: SyncClient,
    topic: str,
    publish: Any,
    define: Any,
    tmp_path: Path,
) -> None:
    publish(topic, range(1000))
    target, other = f"{topic}-even", f"{topic}-odd"
    client.create_topic(target, 2)
    client.create_topic(other, 2)
    sql = define(
        f'kind="transform"\nname="t-{topic}"\ntopics=["{topic}"]\ntarget="{target}"\n'
        'sql="select key, value from source where cast(value as int) % 2 = 0"'
    )
    entry = run(sql, once=True, spark=spark)
    assert (entry["records"], entry["state"]) == (1000, "finished")
    assert _numbers(_topic(spark, broker.bootstrap, target)) == list(range(0, 1000, 2))
    (tmp_path / f"keep_{topic}.py").write_text(
        "def odd(frame):\n    return frame.where('cast(value as int) % 2 = 1')"
    )
    python = define(
        f'kind="transform"\nname="p-{topic}"\ntopics=["{topic}"]\ntarget="{other}"\npython="keep_{topic}:odd"',
        state=str(tmp_path / "state-2"),
    )
    # The columns of the source are those of the sink, save the partition, which the target has fewer of.
    with pytest.raises(Exception, match="drop the column"):
        run(python, once=True, spark=spark)
    (tmp_path / f"keep2_{topic}.py").write_text(
        "def odd(frame):\n    return frame.where('cast(value as int) % 2 = 1').select('key', 'value')"
    )
    python = define(
        f'kind="transform"\nname="p-{topic}"\ntopics=["{topic}"]\ntarget="{other}"\npython="keep2_{topic}:odd"',
        state=str(tmp_path / "state-3"),
    )
    run(python, once=True, spark=spark)
    assert _numbers(_topic(spark, broker.bootstrap, other)) == list(range(1, 1000, 2))


def test_aggregate_in_windows(
    spark: Any, broker: BrokerProcess, client: SyncClient, topic: str, define: Any, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for minute in range(6):
        for shop in ("north", "south"):
            for _ in range(minute + 1):
                value = json.dumps({"shop": shop, "amount": 2.5})
                producer.produce(topic, value, timestamp=1_700_000_040_000 + minute * 60_000)
    producer.flush(120)
    target = f"{topic}-minutes"
    client.create_topic(target, 1)
    aggregate = define(
        f'kind="aggregate"\nname="g-{topic}"\ntopics=["{topic}"]\ntarget="{target}"\nwindow="1 minute"\n'
        'watermark="1 second"\nby=["value.shop"]\nvalue_schema="shop string, amount double"\n'
        '[aggregates]\norders="count(*)"\ntotal="sum(value.amount)"'
    )
    run(aggregate, once=True, spark=spark)
    rows = [json.loads(bytes(row.value)) for row in _topic(spark, broker.bootstrap, target).collect()]
    # The last two minutes are still open: the watermark is a second behind the latest record.
    assert {(row["shop"], row["orders"], row["total"]) for row in rows} == {
        (shop, minute + 1, 2.5 * (minute + 1)) for shop in ("north", "south") for minute in range(4)
    }


def test_mirror_to_another_cluster(
    spark: Any, broker: BrokerProcess, client: SyncClient, topic: str, publish: Any, define: Any
) -> None:
    publish(topic, range(3000))
    with BrokerProcess() as other:
        mirror = define(
            f'kind="mirror"\nname="m-{topic}"\ntopics=["{topic}"]\ntarget_bootstrap="{other.bootstrap}"'
        )
        assert run(mirror, once=True, spark=spark)["records"] == 3000
        publish(topic, range(3000, 3500))
        entry = run(mirror, once=True, spark=spark)
        assert (entry["records"], entry["lag"]) == (500, 0)
        copied = _topic(spark, other.bootstrap, topic)
        assert _numbers(copied) == list(range(3500))
        done = client.committed_offsets(f"headrace-mirror-m-{topic}")
        assert done[TopicPartition(topic, 0)].offset == 875
    with SyncClient(ClusterAccess(broker.bootstrap)) as look:
        entry = PipelineBoard(look).pipelines(0)[f"m-{topic}"]
        assert (entry["state"], entry["kind"]) == ("finished", "mirror")


def test_definitions_are_checked_before_anything_runs() -> None:
    for kind in ("archive", "replay", "transform", "aggregate", "mirror", "audit"):
        assert parse(example(kind, "mine", "localhost:9092")).name == "mine"
    with pytest.raises(DefinitionError, match='kind = "": one of archive'):
        parse('name="x"')
    with pytest.raises(DefinitionError, match="compresion"):
        parse('kind="archive"\nname="x"\ntopics=["a"]\npath="p"\ncompresion="zstd"')
    with pytest.raises(DefinitionError, match="one of sql and python"):
        parse('kind="transform"\nname="x"\ntopics=["a"]\ntarget="b"')
