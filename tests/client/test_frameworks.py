"""Frameworks that ride on our doors, unmodified: docs/frameworks.md typed section by section, and what it prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from framework_page import SECTIONS, follow_section

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.slow]

HERE = ["Celery", "Dramatiq", "taskiq", "FastStream", "FastAPI", "Django"]
ELSEWHERE = dict.fromkeys(("Airflow", "taskiq on SQS"), "make interop: tests/interop/test_framework_page.py")


@pytest.mark.parametrize("name", HERE)
def test_a_framework_works_as_its_section_says(name: str, broker: BrokerProcess, tmp_path: Path) -> None:
    commands = SECTIONS[name].commands
    if any(command.startswith("curl") for command in commands) and shutil.which("curl") is None:
        pytest.skip("curl is missing")
    follow_section(name, tmp_path, broker)


def test_every_section_of_the_page_is_run() -> None:
    assert set(SECTIONS) == {*HERE, *ELSEWHERE}
    for section in SECTIONS.values():
        assert section.files and section.commands and section.shown
