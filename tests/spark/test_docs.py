"""F46: docs/spark.md, followed to the letter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_reader import SparkReader, steps

from headrace.spark.session import SETTINGS, STATELESS_SETTINGS
from headrace.spark.versions import checkpoint_files_class

pytestmark = pytest.mark.timeout(900)
README = (Path(__file__).parents[2] / "README.md").read_text()
TESTING = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
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


@pytest.mark.usefixtures("spark")
def test_f46_the_lines_for_spark_in_the_readme_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (program,) = [text for language, text in steps(README) if language == "python" and "pyspark" in text]
    reader = SparkReader(tmp_path, {}, monkeypatch)
    try:
        reader.serve()
        reader.type("headrace topic produce hello first second")
        reader.execute(program)
    finally:
        reader.leave()
    assert len(re.findall(r"^\|.*\| *hello\|", capfd.readouterr().out, re.M)) == 2


def test_f46_the_recipe_for_spark_on_the_testing_page_works(tmp_path: Path) -> None:
    """In a pytest and a JVM of its own, as the page has it."""
    (recipe,) = [text for language, text in steps(TESTING) if language == "python" and "pyspark" in text]
    (tmp_path / "test_recipe.py").write_text(recipe)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-rA"]
    # As in an environment that was activated: Spark starts its workers with the python3 that it finds.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


def test_f46_the_settings_of_the_page_are_those_of_pipelines() -> None:
    ours = {
        **SETTINGS,
        **STATELESS_SETTINGS,
        "spark.sql.streaming.checkpointFileManagerClass": checkpoint_files_class(),
    }
    shown = re.findall(r"(?:^    |`)(spark\.[\w.]+)=([^\s`]+)", PAGE, re.M)
    assert len(shown) == 6
    assert {name: ours.get(name) for name, _ in shown} == dict(shown)
