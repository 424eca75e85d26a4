"""Decision 0073: what may be compiled. A compiled class can't be the base of one that is not, and says so only when the first object is made."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import msgspec

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


DECODING = (
    "broker",
    "client",
    "cluster",
    "coordinator",
    "core",
    "groups",
    "http",
    "push",
    "queues",
    "schemas",
    "security",
)
"""Packages with types that msgspec reads."""


def known_types() -> Iterator[type]:
    for package in DECODING:
        for found in pkgutil.walk_packages([str(PACKAGE / package)], f"headrace.{package}."):
            for value in vars(importlib.import_module(found.name)).values():
                if (
                    isinstance(value, type)
                    and issubclass(value, msgspec.Struct)
                    and value is not msgspec.Struct
                ):
                    yield value


def is_plain(info: object) -> bool:
    """Only plain classes in it, which mypyc leaves as they are."""
    fields = getattr(info, "fields", ())
    return all(type(field.type) in (msgspec.inspect.IntType, msgspec.inspect.StrType) for field in fields)


def test_nothing_that_msgspec_reads_is_compiled() -> None:
    """mypyc leaves `type` for annotations that are no plain classes. Brokers of a compiled wheel did not understand each other's
    records, and nobody had run the simulations on it."""
    compiled = {".".join(file.relative_to(ROOT / "src").with_suffix("").parts) for file in compiled_files()}
    wrong: set[str] = set()
    seen: set[int] = set()

    def look(info: object) -> None:
        if id(info) in seen or isinstance(info, (str, bytes, int, type(None))):
            return
        seen.add(id(info))
        if isinstance(info, (list, tuple)):
            for one in info:
                look(one)
        elif isinstance(info, (msgspec.inspect.Type, msgspec.inspect.Field)):
            cls = getattr(info, "cls", None)
            if cls is not None and cls.__module__ in compiled and not is_plain(info):
                wrong.add(f"{cls.__module__}.{cls.__name__}")
            for name in info.__struct_fields__:
                if name not in ("cls", "default", "default_factory"):
                    look(getattr(info, name))

    kinds = list(dict.fromkeys(known_types()))
    infos = []  # kept: what is seen is known by its address
    for kind in kinds:
        try:
            infos.append(msgspec.inspect.type_info(kind))
        except TypeError:
            continue  # nothing that is read: msgspec could not
    assert len(infos) > 100
    look(infos)
    assert not wrong, "take its module off the list, or the class out of it"
