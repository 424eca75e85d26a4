"""F46: the programs of docs/spark.md, followed to the letter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from manual_reader import Reader

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_f46_the_programs_of_the_spark_page_work(spark: Any, tmp_path: Path) -> None:
    """In one session, one after the other; what streams is ended when it has done its first batches."""
    reader = Reader(tmp_path)
    try:
        reader.serve()
        reader.type("headrace topic produce orders first second")
        reader.type("headrace topic create orders-out")
        reader.type("headrace queue create jobs-dead")
        reader.type("headrace queue create jobs --dlq jobs-dead")
        names: dict[str, Any] = {}
        programs = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
        assert len(programs) >= 4
        for program in programs:
            # Without a url it is the default port of the host, which a test can't have.
            there = program.replace('"jobs-dead")', '"jobs-dead", url="http://localhost:9324")')
            there = there.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')  # the JVM is somewhere else
            exec(compile(reader.here(there), "docs/spark.md", "exec"), names)
        assert names["orders"].count() == 2
        assert names["jobs"].isStreaming
        assert names["jobs"].schema["value"].dataType.fieldNames() == ["id", "amount"]
        for query in spark.streams.active:
            query.processAllAvailable()
        reader.type("headrace topic consume orders-out -n 2")
    finally:
        for query in spark.streams.active:
            query.stop()
        reader.leave()
