"""F46: docs/spark.md, followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from spark_reader import SparkReader, steps

from headrace.spark.session import SETTINGS, STATELESS_SETTINGS
from headrace.spark.versions import checkpoint_files_class

pytestmark = pytest.mark.timeout(900)
PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_f46_the_commands_and_programs_of_the_spark_page_work(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one session, one after the other."""
    # Without a url it is the default port of the host, which a test can't have; the JVM's own directory is not ours.
    elsewhere = {
        '"jobs-dead")': '"jobs-dead", url="http://localhost:9324")',
        '"checkpoints/': f'"{tmp_path}/checkpoints/',
    }
    reader = SparkReader(tmp_path, elsewhere, monkeypatch)
    try:
        reader.serve()
        for language, text in steps(PAGE):
            reader.execute(text) if language == "python" else reader.type(text)
        assert reader.names["orders"].count() == 3
        assert reader.names["jobs"].isStreaming
        assert reader.names["jobs"].schema["value"].dataType.fieldNames() == ["id", "amount"]
    finally:
        for query in spark.streams.active:
            query.stop()
        reader.leave()


def test_f46_the_settings_of_the_page_are_those_of_pipelines() -> None:
    ours = {
        **SETTINGS,
        **STATELESS_SETTINGS,
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_files_class(),
    }
    shown = re.findall(r"(?:^    |`)(spark\.[\w.]+)=([^\s`]+)", PAGE, re.M)
    assert len(shown) == 6
    assert {name: ours.get(name) for name, _ in shown} == dict(shown)
