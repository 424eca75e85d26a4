"""What is written once stays written once (decision 0129): `scripts/house --repeats` shows what is not."""

from __future__ import annotations

from pathlib import Path

import house_figures
import pytest
from house_figures import repeated_too_much, repeats

SAID = "\n".join(f"    said[{number}] = tell({number})" for number in range(6))


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(house_figures, "SOURCE", tmp_path)
    monkeypatch.setattr(house_figures, "MAX_REPEATED", 0)
    (tmp_path / "first.py").write_text(f"import one\n\n\ndef first():\n{SAID}\n    return said\n")
    return tmp_path


def test_no_more_is_written_twice_than_was() -> None:
    assert repeated_too_much() == []


def test_what_is_written_twice_is_found(tree: Path) -> None:
    """Whatever is said around it, and however it is spaced."""
    (tree / "second.py").write_text(
        f"def second():\n    if one:\n{SAID.replace('    ', '        ')}\n\n# said\n    pass\n"
    )
    assert repeats() == [("second.py:3", "first.py:5", 6)]
    assert "6 lines stand in two places" in repeated_too_much()[0]


def test_five_lines_and_imports_are_no_repeat(tree: Path) -> None:
    short = SAID.rpartition("\n")[0]
    names = "from all import (\n" + "".join(f"    name_{number},\n" for number in range(9)) + ")\n"
    for name in ("second.py", "third.py"):
        (tree / name).write_text(f"{names}\n\ndef {name[:-3]}():\n    {name[0]} = 1\n")
    (tree / "fourth.py").write_text(f"def fourth():\n{short}\n    other()\n")
    assert repeats() == []


def test_kafkas_own_forms_may_look_alike(tree: Path) -> None:
    (tree / "wire" / "messages").mkdir(parents=True)
    (tree / "wire" / "messages" / "second.py").write_text(f"def second():\n{SAID}\n")
    assert repeats() == []
