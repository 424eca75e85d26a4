"""Dead rows of a table, tried once more after a new schema (T6), by the command, through every crash, and beside a pipeline that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from headrace.cli.main import main
from headrace.spark.iceberg.tables import CommitTaken, open_catalog, open_table
from headrace.spark.pipelines import redrive_rows as module
from headrace.spark.pipelines.definition import Table, parse
from headrace.spark.pipelines.redrive_rows import redrive_rows
from headrace.spark.pipelines.run import run
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)


class Shop:
    """A topic of orders whose `id` is a number for the first schema, and a text for the second."""

    def __init__(self, broker: BrokerProcess, topic: str, home: Path, spark: Any) -> None:
        self._broker, self._topic, self.home, self._spark = broker, topic, home, spark
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})

    def definition(self, kind: str, extra: str = "") -> Table:
        self.write(kind, extra)
        found = parse(
            (self.home / "orders.toml").read_text(),
            overrides={"bootstrap": self._broker.bootstrap, "state": str(self.home / "state")},
        )
        assert isinstance(found, Table)
        return found

    def write(self, kind: str, extra: str = "") -> Path:
        schema = json.dumps({"properties": {"id": {"type": "integer"}, "note": {"type": kind}}})
        file = self.home / "orders.toml"
        file.write_text(
            f'kind="table"\nname="t-{self._topic}"\ntopic="{self._topic}"\nwarehouse="{self.home}/warehouse"\n'
            f'json_schema=\'{schema}\'\non_error="dead_letter"\non_schema="new_column"\n{extra}'
        )
        return file

    def publish(self, *values: dict[str, Any] | str) -> None:
        for number, value in enumerate(values):
            text = value if isinstance(value, str) else json.dumps(value)
            self._producer.produce(self._topic, text, str(number), partition=number % 4, headers={"h": "x"})
        assert self._producer.flush(120) == 0

    def run(self, definition: Table) -> Any:
        return run(definition, once=True, spark=self._spark)

    def rows(self, definition: Table, suffix: str = "") -> list[dict[str, Any]]:
        catalog = open_catalog(definition.warehouse, {})
        found: list[dict[str, Any]] = (
            catalog.load_table(definition.table_name + suffix).scan().to_arrow().to_pylist()
        )
        return found


@pytest.fixture
def shop(broker: BrokerProcess, topic: str, tmp_path: Path, spark: Any) -> Shop:
    return Shop(broker, topic, tmp_path, spark)


def test_t6_what_fits_the_new_schema_comes_into_the_table_by_command(
    shop: Shop, broker: BrokerProcess
) -> None:
    shop.publish({"id": 1, "note": 5}, {"id": 2, "note": "five"}, {"id": 3, "note": "six"}, "no JSON")
    first = shop.definition("integer", 'partition_by="day"')
    assert shop.run(first)["dead_rows"] == 3
    (dead, *_) = shop.rows(first, "__dead")
    assert dead["_timestamp_type"] == 0, "kept, so that the row can be what it would have been"
    file = shop.write("string", 'partition_by="day"')
    ran = CliRunner().invoke(
        main, ["pipeline", "redrive-rows", str(file), "--json", "-b", broker.bootstrap], prog_name="headrace"
    )
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["rows"] == 2 and json.loads(ran.stdout)["still_dead"] == 1
    rows = {row["id"]: row for row in shop.rows(first)}
    assert {number: row["note_2"] for number, row in rows.items()} == {1: None, 2: "five", 3: "six"}
    assert rows[1]["note"] == 5 and rows[2]["_headers"] and rows[2]["_timestamp_type"] == 0
    assert [row["_value"] for row in shop.rows(first, "__dead")] == [b"no JSON"]
    again = redrive_rows(shop.definition("string", 'partition_by="day"'))
    assert (again.rows, again.still_dead) == (0, 1)
    shop.publish({"id": 4, "note": "seven"})
    assert shop.run(shop.definition("string", 'partition_by="day"'))["records"] == 1, (
        "the offsets are as they were"
    )
    assert len(shop.rows(first)) == 4


def test_t6_a_crash_between_the_two_commits_doubles_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish({"id": 1, "note": 5}, *({"id": number, "note": "x"} for number in range(2, 30)))
    shop.run(shop.definition("integer"))
    second = shop.definition("string")

    def dies(*_: Any) -> None:
        raise OSError("dead")

    with monkeypatch.context() as patch:
        patch.setattr(module, "swap_files", dies)
        with pytest.raises(OSError, match="dead"):
            redrive_rows(second)
    assert len(shop.rows(second)) == 29 and len(shop.rows(second, "__dead")) == 28, "in both, for now"
    assert redrive_rows(second) == (0, 0)
    assert sorted(row["id"] for row in shop.rows(second)) == list(range(1, 30))
    assert shop.rows(second, "__dead") == []


def test_t6_a_pipeline_that_commits_meanwhile_loses_no_race_for_good(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.publish({"id": 1, "note": 5}, {"id": 2, "note": "x"}, {"id": 3, "note": "y"})
    shop.run(shop.definition("integer"))
    second = shop.definition("string")
    real = module.commit
    raced: list[int] = []

    def late(table: Any, *rest: Any) -> None:
        if not raced:
            raced.append(1)
            shop.publish({"id": 9, "note": "z"})
            assert shop.run(second)["records"] == 1
        real(table, *rest)

    monkeypatch.setattr(module, "commit", late)
    assert redrive_rows(second).rows == 2 and raced
    assert sorted(row["id"] for row in shop.rows(second)) == [1, 2, 3, 9]

    def always(*_: Any) -> None:
        raise CommitTaken("somebody was faster")

    shop.publish("no JSON", {"id": "text", "note": "x"})
    shop.run(second)
    monkeypatch.setattr(module, "swap_files", always)
    assert redrive_rows(second).still_dead == 2, "nothing fits, so nothing is committed"


def test_t6_a_row_of_a_round_that_is_not_committed_yet_is_left_to_that_round(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round commits its dead first. If its rows were redriven then, the round that follows would bring them once more."""
    from headrace.spark.pipelines import table as rounds

    shop.publish({"id": 1, "note": 5})
    first = shop.definition("integer")
    shop.run(first)
    shop.publish({"id": 2, "note": "x"})
    real = rounds.commit

    def dies_second(table: Any, *rest: Any) -> None:
        if not table.name()[-1].endswith("__dead"):
            raise OSError("dead")
        real(table, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(rounds, "commit", dies_second)
        with pytest.raises(OSError, match="dead"):
            shop.run(first)
    second = shop.definition("string")
    assert redrive_rows(second) == (0, 1)
    shop.run(second)
    assert redrive_rows(second) == (0, 0), "the round had it: it only leaves the dead"
    assert sorted(row["id"] for row in shop.rows(second)) == [1, 2]


def test_t6_a_table_of_the_dead_of_an_older_version_gets_its_column(shop: Shop) -> None:
    import pyarrow as pa

    from headrace.spark.iceberg.columns import DEAD

    first = shop.definition("integer")
    older = pa.schema([field for field in DEAD if field.name != "_timestamp_type"])
    open_table(open_catalog(first.warehouse, {}), f"{first.table_name}__dead", older)
    shop.publish({"id": 1, "note": "x"})
    assert shop.run(first)["dead_rows"] == 1
    assert [row["_timestamp_type"] for row in shop.rows(first, "__dead")] == [0]
