"""What is wrong with a definition is said before anything runs (F66): `pipeline validate` found 0 of 10 broken ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.spark.pipelines.definition import KINDS, DefinitionError, parse
from headrace.spark.pipelines.examples import example
from headrace.spark.pipelines.loading import load

TRANSFORM = 'kind="transform"\nname="x"\ntopics=["a"]\ntarget="b"\n'
AGGREGATE = 'kind="aggregate"\nname="x"\ntopics=["a"]\ntarget="b"\n'
COUNT = '[aggregates]\nn="count(*)"\n'
QUERY = 'sql="select key, value from source"\n'

BROKEN = [
    (TRANSFORM.replace('"b"', '"a"') + QUERY, "a is read and written"),
    (TRANSFORM + QUERY + 'value_format="json"\nvalue_schema="i int"\non_error="dead_letter"\ndead_letter="a"', "a is read and written"),
    (TRANSFORM + 'sql="drop everything"', "is no query"),
    (TRANSFORM + 'sql="select (key, value from source"', "do not close"),
    (TRANSFORM + 'sql="select 1 from elsewhere"', "the view source"),
    (TRANSFORM + QUERY + 'value_format="yaml"', "value_format"),
    (TRANSFORM + QUERY + 'value_format="json"', "needs value_schema"),
    (TRANSFORM + QUERY + 'value_format="json"\nvalue_schema="amount"', "name type"),
    (TRANSFORM + QUERY + "max_records_per_trigger=-5", "1 at least"),
    (TRANSFORM + QUERY + 'starting="yesterday"', "starting"),
    (TRANSFORM + QUERY + 'on_loss="ignore"', "on_loss"),
    (TRANSFORM + QUERY + 'bootstrap="nowhere"', "host:port"),
    (TRANSFORM + QUERY + '[spark]\nmaster="lokal"', "spark.master"),
    (TRANSFORM.replace('["a"]', '["a b"]') + QUERY, "no name of a topic"),
    (TRANSFORM + 'python="module.function"', "module:function"),
    (AGGREGATE + 'window="banana"\n' + COUNT, "window"),
    (AGGREGATE + 'watermark="5"\n' + COUNT, "watermark"),
    (AGGREGATE + "[aggregates]\n", "aggregates is empty"),
    (AGGREGATE + '[aggregates]\nn="sum(amount"\n', "do not close"),
    (AGGREGATE + 'on_error="dead_letter"\n' + COUNT, "value_schema"),
    ('kind="archive"\nname="x"\ntopics=["a"]\npath="s3a://bucket/a"', "another kind of store"),
    ('kind="archive"\nname="x"\ntopics=["a"]\npath="p"\nsmall_file_mb=-1', "small_file_mb"),
    ('kind="archive"\nname="x"\ntopics=["a"]\npath="p"\non_error="null"', "parses none"),
    ('kind="replay"\nname="x"\npath="p"\ntopic="b"\nsince="gestern"', "since"),
    ('kind="replay"\nname="x"\npath="p"\ntopic="b"\ndelivery="often"', "delivery"),
    ('kind="audit"\nname="x"\ntopic="a"\nother_topic="a"', "with itself"),
    ('kind="mirror"\nname="x"\ntopics=["a"]\ntarget_bootstrap="other"', "host:port"),
    ('kind="redrive"\nname="x"\nqueue="q"\nfilter="value.a >"', "filter"),
    ('kind="redrive"\nname="x"\nqueue="q"\nto="q"', "read and written"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), BROKEN)
def test_f66_a_broken_definition_is_refused(text: str, told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        parse(text)


@pytest.mark.parametrize("kind", sorted(map(str, KINDS)))
def test_every_example_is_sound(kind: str) -> None:
    assert parse(example(kind, "mine", "localhost:9092")).kind == kind


@pytest.mark.parametrize(
    "query",
    [
        "select key, concat('(', value) as value from source where value like '%it''s%' -- a comment (",
        "with good as (select * from source) select key, value from good",
        "select key, value from source where get_json_object(value, \"$.a[0]\") = 'x'",
    ],
)
def test_sound_queries_are_not_refused(query: str) -> None:
    parse(TRANSFORM + f"sql='''{query}'''")


def test_paths_are_relative_to_the_definition(tmp_path: Path) -> None:
    """F64: they were relative to the shell."""
    file = tmp_path / "a.toml"
    file.write_text('kind="archive"\nname="x"\ntopics=["a"]\npath="archive/a"')
    found = load(file)
    assert (found.path, found.state) == (str(tmp_path / "archive/a"), str(tmp_path / ".x"))  # type: ignore[union-attr]


def test_f66_through_the_command(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(BROKEN[0][0])
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "pipeline", "validate", str(file)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "a is read and written" in done.stderr
