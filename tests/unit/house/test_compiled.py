"""Decision 0073: what may be compiled. A compiled class can't be the base of one that is not, and says so only when the first object is made."""

from __future__ import annotations

import ast
import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "headrace"


OPEN = {"NamedTuple", "TypedDict", "Protocol", "Enum", "IntEnum", "StrEnum", "IntFlag"}
"""Classes of these kinds stay ordinary ones."""


def compiled_files() -> set[Path]:
    loader = SourceFileLoader("compile_script", str(ROOT / "scripts" / "compile"))
    spec = importlib.util.spec_from_loader("compile_script", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    return {ROOT / "src" / name for name in script.modules(ROOT)}


def base_names(node: ast.ClassDef) -> set[str]:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return {
        base.id if isinstance(base, ast.Name) else base.attr
        for base in bases
        if isinstance(base, (ast.Name, ast.Attribute))
    }


def test_every_module_that_is_named_is_there() -> None:
    missing = [str(file) for file in compiled_files() if not file.exists()]
    assert not missing, "tool.headrace.compiled in pyproject.toml"


def test_no_compiled_class_is_the_base_of_one_that_is_not() -> None:
    compiled = compiled_files()
    native: set[tuple[str, str]] = set()
    others: list[tuple[str, set[tuple[str, str]]]] = []
    for file in PACKAGE.rglob("*.py"):
        module = "headrace." + ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        tree = ast.parse(file.read_text())
        imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            if file not in compiled:
                bases = {imported.get(name, (module, name)) for name in base_names(node)}
                others.append((f"{module}.{node.name}", bases))
            elif not base_names(node) & OPEN:
                native.add((module, node.name))
    assert native and others
    wrong = [name for name, bases in others if bases & native]
    assert not wrong, "compile the module of the derived class, too, or take that of its base off the list"
