"""What of the source can be reached from where people come in: a reading of the syntax trees, by names.

Scopes are read from the entry points on. A bare name is followed through the imports to what it means. An attribute of an
imported module likewise; of anything else it is the name of a method, and every method of that name counts as reached, if
its class is. So what is found unreached is unreached; not everything that is unreached is found.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Definable = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign


class Definition(NamedTuple):
    module: str
    name: str
    """`function`, `Class`, `Class.method` or `CONSTANT`."""
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


class Module:
    def __init__(self, name: str, tree: ast.Module, *, is_package: bool) -> None:
        self.name = name
        self.package = name if is_package else name.rpartition(".")[0]
        self.imports: dict[str, tuple[str, str]] = {}
        """What a name was imported as: the module, and the name in it ("" when it is the module itself)."""
        self.imported: set[str] = set()
        self.bodies: dict[str, list[ast.AST]] = {}
        """What belongs to a definition; a class without its methods."""
        self.lines: dict[str, int] = {}
        self.top: list[ast.AST] = []
        self.declared: set[str] = set()
        """Methods that their class mounts because of how they are decorated (http/declared.py)."""
        for node in ast.walk(tree):
            self._note_import(node)
        for statement in _statements(tree.body):
            self._note(statement)

    def _note_import(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                self.imported.add(alias.name)
                target = alias.name if alias.asname else alias.name.partition(".")[0]
                self.imports[alias.asname or target] = (target, "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            self.imported.add(node.module)
            for alias in node.names:
                self.imported.add(f"{node.module}.{alias.name}")
                self.imports[alias.asname or alias.name] = (node.module, alias.name)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._define(node.name, node, [node])
        elif isinstance(node, ast.ClassDef):
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)]
            rest = [part for part in node.body if part not in methods]
            self._define(node.name, node, [*node.bases, *node.keywords, *node.decorator_list, *rest])
            for method in methods:
                self._define(f"{node.name}.{method.name}", method, [method])
                if any(_is_route(decorator) for decorator in method.decorator_list):
                    self.declared.add(f"{node.name}.{method.name}")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in _bound(target)]
            for name in names:
                self._define(
                    name, node, [part for part in (node.value, getattr(node, "annotation", None)) if part]
                )
            if not names:
                self.top.append(node)
        elif not isinstance(node, ast.Import | ast.ImportFrom):
            self.top.append(node)

    def _define(self, name: str, node: Definable, body: list[ast.AST]) -> None:
        self.bodies.setdefault(name, []).extend(body)
        self.lines.setdefault(name, node.lineno)


def _is_route(decorator: ast.expr) -> bool:
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "route"
    )


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Those at the top of a module, also inside of `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            if isinstance(node, ast.If):
                yield ast.Expr(node.test)
            for part in (
                node.body,
                node.orelse,
                *(handler.body for handler in getattr(node, "handlers", ())),
            ):
                yield from _statements(part)
        else:
            yield node


def _bound(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _bound(part)


class Reach:
    def __init__(self, source: Path, expected: Callable[[str, str, str], bool] | None = None) -> None:
        self.modules = dict(self._read(source))
        self._is_expected = expected or _is_expected
        self.reached: set[tuple[str, str]] = set()
        self._loaded: set[str] = set()
        self._attributes: set[str] = set()
        self._waiting: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """Methods of classes that were reached, under their own name, until somebody says that name."""
        self._open: list[tuple[Module, list[ast.AST]]] = []

    @staticmethod
    def _read(source: Path) -> Iterator[tuple[str, Module]]:
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            yield name, Module(name, ast.parse(path.read_text()), is_package=is_package)

    def enter(self, module: str, *names: str) -> None:
        """Come in by a module, and by these definitions of it: `name`, or `Class.*` for a class with all that is public."""
        self._load(module)
        for name in names:
            plain = name.removesuffix(".*")
            assert plain in self.modules[module].bodies, (
                f"{module}:{plain} is not there: mend the entry points"
            )
            self._reach(module, plain)
            if name.endswith(".*"):
                for method in self.modules[module].bodies:
                    if method.startswith(f"{plain}.") and not method.partition(".")[2].startswith("_"):
                        self._reach(module, method)
        while self._open:
            home, nodes = self._open.pop()
            for node in nodes:
                self._follow(home, node)

    def unreached(self) -> list[Definition]:
        return [
            Definition(module.name, name, module.lines[name])
            for module in self.modules.values()
            for name in module.bodies
            if (module.name, name) not in self.reached and not name.rpartition(".")[2].startswith("__")
        ]

    def _load(self, name: str) -> None:
        while name:
            module = self.modules.get(name)
            if module is not None and name not in self._loaded:
                self._loaded.add(name)
                self._open.append((module, module.top))
                for other in module.imported:
                    self._load(other)
            name = name.rpartition(".")[0]

    def _reach(self, module: str, name: str) -> None:
        """By the name it has in that module, which may have it from another one."""
        home = self.modules.get(module)
        if home is None:
            return
        if name not in home.bodies:
            target = home.imports.get(name)
            if target is not None and target != (module, name) and ".".join(target) not in self.modules:
                self._reach(*target)
            return
        if (module, name) in self.reached:
            return
        self._load(module)
        self.reached.add((module, name))
        self._open.append((home, home.bodies[name]))
        for method in home.bodies:
            owner, _, said = method.partition(".")
            if owner == name and said:
                if (
                    said in self._attributes
                    or said.startswith("__")
                    or method in home.declared
                    or self._is_expected(module, owner, said)
                ):
                    self._reach(module, method)
                else:
                    self._waiting[said].add((module, method))

    def _follow(self, home: Module, node: ast.AST) -> None:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                self._reach(home.name, part.id)
            elif isinstance(part, ast.Attribute):
                self._follow_attribute(home, part)

    def _follow_attribute(self, home: Module, node: ast.Attribute) -> None:
        module = self._module_of(home, node.value)
        if module is not None:
            self._reach(module, node.attr)
        else:
            self._say(node.attr)

    def _module_of(self, home: Module, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name) and node.id in home.imports:
            module, name = home.imports[node.id]
            full = f"{module}.{name}" if name else module
            return full if full in self.modules else None
        if isinstance(node, ast.Attribute):
            outer = self._module_of(home, node.value)
            if outer is not None and f"{outer}.{node.attr}" in self.modules:
                return f"{outer}.{node.attr}"
        return None

    def _say(self, name: str) -> None:
        if name not in self._attributes:
            self._attributes.add(name)
            for module, method in self._waiting.pop(name, ()):
                self._reach(module, method)


def _is_expected(module: str, owner: str, method: str) -> bool:
    """Whether a base class from outside calls it, as a framework does."""
    kind = getattr(importlib.import_module(module), owner)
    return any(
        method in vars(base)
        for base in inspect.getmro(kind)[1:]
        if not base.__module__.startswith("headrace")
    )
