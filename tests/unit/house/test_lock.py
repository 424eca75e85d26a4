"""What is installed for a test is what requirements.lock says: every direct dependency is in it, in a version that we allow."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]


def test_every_direct_dependency_is_locked_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [one for many in project["project"]["optional-dependencies"].values() for one in many]
    wanted = project["project"]["dependencies"] + extras + project["dependency-groups"]["dev"]
    lock = (ROOT / "requirements.lock").read_text()
    locked: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]++)(?:\[[^]]*])?==([^ ;\\]++)", lock, re.MULTILINE):
        locked.setdefault(name, []).append(version)
    for requirement in map(Requirement, wanted):
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        assert name in locked, f"{name} is in pyproject.toml and not in requirements.lock; run: make lock"
        assert all(version in requirement.specifier for version in locked[name]), f"{requirement}: make lock"
    entries = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
