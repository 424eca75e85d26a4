"""Build hook of the wheel: HEADRACE_COMPILE=1 compiles the hot modules with mypyc (decision 0073). Without it the wheel is pure Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEEDED = ["mypy>=2", "setuptools>=77", "msgspec>=0.19"]
"""Where mypyc is, what calls the compiler, and what types are read of."""


class CompileHotModules(BuildHookInterface):  # type: ignore[type-arg]
    def _is_wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("HEADRACE_COMPILE", "") not in ("", "0")

    def dependencies(self) -> list[str]:
        return NEEDED if self._is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._is_wanted() or version == "editable":
            return
        root = Path(self.root)
        self._tree = Path(tempfile.mkdtemp(prefix="headrace-compile-"))
        shutil.copytree(
            root / "src", self._tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.so")
        )
        command = [sys.executable, str(root / "scripts" / "compile"), str(self._tree)]
        subprocess.run(command, check=True)
        for library in sorted((self._tree / "src").rglob("*.so")):
            build_data["force_include"][str(library)] = str(library.relative_to(self._tree / "src"))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._is_wanted() and version != "editable":
            shutil.rmtree(self._tree, ignore_errors=True)
