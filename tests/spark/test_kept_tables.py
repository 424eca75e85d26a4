"""What reads tables besides other engines: SQL over history and now, replay, audit, and the archive that becomes one (T11, T12)."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli.main import main
from headrace.core.errors import HeadraceError
from headrace.spark.iceberg.tables import commit, held, open_catalog
from headrace.spark.iceberg.view import TableView, arrow_table
from headrace.spark.pipelines.definition import Kinds, parse
from headrace.spark.pipelines.kept_tables import readable_table
from headrace.spark.pipelines.run import run
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)
SCHEMA = '{"properties": {"id": {"type": "integer"}, "shop": {"type": "string"}}}'


@pytest.fixture
def define(broker: BrokerProcess, topic: str, tmp_path: Path) -> Any:
    def make(kind: str, extra: str = "", name: str = "") -> Kinds:
        text = f'kind="{kind}"\nname="{name or kind}-{topic}"\n{extra}'
        return parse(
            text, overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / f"state-{name or kind}")}
        )

    return make


def _publish(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, str(number), partition=number % 4, headers={"h": str(number)})
    assert producer.flush(240) == 0


def test_t11_t12_a_table_is_asked_replayed_and_audited(
    spark: Any, broker: BrokerProcess, topic: str, define: Any, tmp_path: Path
) -> None:
    """One snapshot of 60 records and 20 that came since: 80 for SQL with Spark and with DuckDB, 60 for a replay, and an audit that knows both."""
    where = f'warehouse="{tmp_path}/w"\ntable="topics.orders"\n'
    keeps = define("table", f'topic="{topic}"\n{where}value_format="string"')
    _publish(broker, topic, [f"v{number}" for number in range(60)])
    assert run(keeps, once=True, spark=spark)["records"] == 60
    _publish(broker, topic, [f"v{number}" for number in range(60, 80)])
    live = TableView(f"{tmp_path}/w", "topics.orders", live={"bootstrap": broker.bootstrap})
    assert Counter(arrow_table(live)["value"].to_pylist()) == Counter(f"v{number}" for number in range(80))
    frame = readable_table(spark, live, topic)
    assert frame.count() == 80 and set(frame.columns) == {
        "key",
        "value",
        "partition",
        "offset",
        "timestamp",
        "topic",
    }
    assert frame.where("offset >= 15").count() + frame.where("offset < 15").count() == 80, (
        "each query reads for itself"
    )
    asked = CliRunner().invoke(
        main,
        ["sql", f"select count(*) as n, count(distinct value) as d from {topic}", "--engine", "duckdb", "--json", "-b", broker.bootstrap],
        prog_name="headrace",
    )  # fmt: skip
    assert asked.exit_code == 0, asked.output
    assert json.loads(asked.stdout)["items"][0]["columns"] == {"n": 80, "d": 80}
    # Back into a topic: what the snapshot has, with partitions, headers and order, and only once.
    replays = define("replay", f'{where}topic="{topic}-again"\nkeep_partitions=true\n')
    assert run(replays, spark=spark)["records"] == 60
    run(replays, spark=spark)
    again = (
        spark.read.format("headrace")
        .option("bootstrap", broker.bootstrap)
        .option("subscribe", f"{topic}-again")
    )
    rows = again.option("includeHeaders", "true").option("valueFormat", "string").load().collect()
    assert Counter(row.value for row in rows) == Counter(f"v{number}" for number in range(60))
    assert {row.partition for row in rows} == {0, 1, 2, 3} and all(row.headers[0].key == "h" for row in rows)
    audits = define("audit", f'topic="{topic}"\n{where}report="{tmp_path}/report"')
    entry = run(audits, spark=spark)
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (entry["verdict"], report["waiting"]) == ("complete", 20), report
    # A row is gone from the table: the audit says so.
    open_catalog(f"{tmp_path}/w", {}).load_table("topics.orders").delete("value == 'v7'")
    assert (
        run(define("audit", f'topic="{topic}"\n{where}report="{tmp_path}/r2"', "second"), spark=spark)[
            "verdict"
        ]
        != "complete"
    )


def test_an_archive_becomes_a_table_that_goes_on(
    spark: Any, broker: BrokerProcess, topic: str, define: Any, tmp_path: Path
) -> None:
    _publish(broker, topic, [json.dumps({"id": number, "shop": "n"}) for number in range(50)] + ["no JSON"])
    run(define("archive", f'topics=["{topic}"]\npath="{tmp_path}/a"'), once=True, spark=spark)
    file = tmp_path / "t.toml"
    text = f'topic="{topic}"\nwarehouse="{tmp_path}/w"\ntable="topics.orders"\njson_schema=\'{SCHEMA}\'\non_error="dead_letter"\npartition_by="identity(shop)"\n'
    file.write_text(f'kind="table"\nname="t"\nbootstrap="{broker.bootstrap}"\n{text}')
    command = ["pipeline", "convert", str(file), "--archive", f"{tmp_path}/a", "--json"]
    ran = CliRunner().invoke(main, command, prog_name="headrace")
    assert ran.exit_code == 0, ran.output
    assert (json.loads(ran.stdout)["rows"], json.loads(ran.stdout)["dead_rows"]) == (50, 1)
    assert CliRunner().invoke(main, command, prog_name="headrace").exit_code != 0, "a table has one beginning"
    _publish(broker, topic, [json.dumps({"id": number, "shop": "s"}) for number in range(50, 70)])
    keeps = define("table", text)
    assert run(keeps, once=True, spark=spark)["records"] == 20
    table = open_catalog(f"{tmp_path}/w", {}).load_table("topics.orders")
    assert Counter(table.scan().to_arrow()["id"].to_pylist()) == Counter(range(70))
    assert sum(held(table).offsets.values()) == 71
    with pytest.raises(HeadraceError, match="bytes of each value"):
        run(
            define("replay", f'warehouse="{tmp_path}/w"\ntable="topics.orders"\ntopic="{topic}-again"'),
            spark=spark,
        )


def test_t11_a_gap_between_table_and_topic_is_told(
    broker: BrokerProcess, client: Any, topic: str, tmp_path: Path
) -> None:
    """Without a JVM: the table of another topic of the name, and one that nobody has written."""
    sys.path.insert(0, str(Path(__file__).parent))
    from test_table_columns import Kept, json_columns

    with pytest.raises(HeadraceError, match="there is no table"):
        TableView(str(tmp_path / "w"), "n.t").units()
    kept = Kept(str(tmp_path / "w"))
    kept.add(json_columns(id="integer"), [b'{"id": 1}'])
    table = kept.table
    properties = dict(held(table).properties("p", "d"))
    properties["headrace.topic"] = topic
    properties["headrace.offsets"] = json.dumps({topic: {"0": 1}})
    commit(table, [], properties)
    with pytest.raises(HeadraceError, match="another topic"):
        TableView(str(tmp_path / "w"), "n.t", live={"bootstrap": broker.bootstrap}).units()
    assert arrow_table(TableView(str(tmp_path / "w"), "n.t")).num_rows == 1
