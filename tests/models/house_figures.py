"""How much of the code knows how much of the rest, read from the source (issue 14)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
LOCATORS = ("Broker", "Services")
"""Whoever takes one of these whole can reach everything."""


def look_at(source: Path) -> None:
    """At the sources of another state of the project, from here on."""
    global SOURCE
    SOURCE = source
    trees.cache_clear()


@cache
def trees() -> dict[str, ast.Module]:
    """Every module by its dotted name below `headrace`."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


def _module_level(tree: ast.AST) -> Iterator[ast.stmt]:
    """Statements outside of functions, those for types alone included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.stmt):
            yield node
        yield from _module_level(node)


def imports() -> dict[str, set[str]]:
    """Who imports whom at the level of modules, under TYPE_CHECKING too."""
    modules = trees()
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, tree in modules.items():
        for node in _module_level(tree):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                wanted = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for path in wanted:
                path = path.removeprefix("headrace.")
                while path and path not in modules:
                    path = path.rpartition(".")[0]
                if path and path != name:
                    graph[name].add(path)
    return graph


def knots() -> list[set[str]]:
    """The circles: strongly connected components of more than one module, the largest first."""
    graph = imports()
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in index:
            visit(name)
    return sorted((knot for knot in found if len(knot) > 1), key=len, reverse=True)


def attributes(module: str, name: str) -> set[str]:
    """What a class sets on itself or declares as a field."""
    (found,) = (
        node for node in ast.walk(trees()[module]) if isinstance(node, ast.ClassDef) and node.name == name
    )
    own = {
        node.attr
        for node in ast.walk(found)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    declared = {
        node.target.id
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return own | declared


def taking(locator: str) -> list[str]:
    """Constructors that are given the whole of it: `module.Class`."""
    found = []
    for module, tree in trees().items():
        for owner in ast.walk(tree):
            if not isinstance(owner, ast.ClassDef):
                continue
            for node in owner.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    annotations = [ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation]
                    if any(note.split(" |")[0] == locator for note in annotations):
                        found.append(f"{module}.{owner.name}")
    return found


def anys() -> Counter[str]:
    """Mentions of `Any` in annotations and aliases, per package."""
    found: Counter[str] = Counter()
    for module, tree in trees().items():
        found[module.partition(".")[0]] += sum(
            1 for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"
        )
    return found


def shared_names() -> dict[str, int]:
    """Names of classes that stand for several, and for how many. Kafka's and REST's names are not ours to choose."""
    homes = Counter(
        node.name
        for module, tree in trees().items()
        if not module.startswith(("wire.messages", "http.rest.forms", "http.schemas"))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in homes.items() if count > 1}


def waiter_lambdas() -> int:
    """Commands that are built when somebody is there to wait for them."""
    return sum(
        1
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda) and any(arg.arg == "waiter" for arg in node.args.args)
    )


def figures() -> dict[str, int]:
    cycles, names = knots(), shared_names()
    lines = {path: path.read_text().count("\n") for path in SOURCE.rglob("*.py")}
    figures = {
        "files": len(lines),
        "lines": sum(lines.values()),
        "files of more than 600 lines": sum(count > MAX_FILE_LINES for count in lines.values()),
        "lines that stand somewhere else already": sum(count for _, _, count in repeats()),
        "modules in the largest circle of imports": len(cycles[0]) if cycles else 1,
        "modules in circles": sum(map(len, cycles)),
        "attributes of Broker": len(attributes("broker.broker", "Broker")),
    }
    for locator in LOCATORS:
        figures[f"constructors that take {locator}"] = len(taking(locator))
    figures |= {
        "class names that stand for several classes": len(names),
        "classes under such a name": sum(names.values()),
        "lambdas that build a command for a waiter": waiter_lambdas(),
        "modules of records that import numpy": sum(
            any("numpy" in ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import))
            for module, tree in trees().items()
            if module.startswith("records")
        ),
    }
    figures |= {f"Any in {package}": count for package, count in sorted(anys().items()) if count}
    return figures


# -- limits ------------------------------------------------------------------------------------------------------------

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
LONG_FUNCTIONS = {
    "broker.partition.__init__",
    "kafka.handlers.k01_fetch.handle_frame",
}
"""What a partition has is a list, read from top to bottom; a fetch is one path that is hot."""


def too_long() -> list[str]:
    """Files and functions above the limits. What stands above a function (its route) does not count."""
    found = []
    for module, tree in trees().items():
        lines = max((node.end_lineno or 0 for node in tree.body), default=0)
        if lines > MAX_FILE_LINES:
            found.append(f"{module}: {lines} lines, {MAX_FILE_LINES} are allowed")
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                name = f"{module}.{node.name}"
                if length > MAX_FUNCTION_LINES and name not in LONG_FUNCTIONS:
                    found.append(f"{name}: {length} lines, {MAX_FUNCTION_LINES} are allowed")
    return found


def pried_open() -> list[str]:
    """Where a module reaches for something private that it does not define itself: `module: _name`. Ruff's SLF001 can't tell these from
    a table of a class's own methods."""
    found = []
    for module, tree in trees().items():
        if module in INSIDE_ASYNCIO:
            continue
        nodes = list(ast.walk(tree))
        own = {
            node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        own |= {
            node.name
            for node in nodes
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr in own:
                continue
            if node.attr.endswith("__") or node.attr in NAMED_TUPLE:
                continue
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue
            if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super":
                continue
            if isinstance(node.value, ast.Name) and (node.value.id in THEIR_PUBLIC or node.value.id in own):
                continue
            found.append(f"{module}: {node.attr}")
    return sorted(set(found))


# -- what is written twice ---------------------------------------------------------------------------------------------

REPEAT_LINES = 6
MAX_REPEATED = 339
"""Lines that stand somewhere else already. It may only shrink: what comes new is written once."""
KAFKAS_WORDS = ("wire/messages/",)
"""The answer of one API looks like another's, and each is its own form."""
_NOTHING = re.compile(r"[\W_]*|(?:return|pass|else:|try:|continue|break)|\W*#.*")


def _told_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without those that say nothing: blank ones, comments, brackets, imports."""
    importing = False
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if importing or line.startswith(("import ", "from ")):
            importing = (importing or line.endswith("(")) and not line.endswith(")")
        elif not _NOTHING.fullmatch(line):
            yield number, line


def repeats() -> list[tuple[str, str, int]]:
    """Runs of `REPEAT_LINES` lines or more that stand to the letter in two places: the later place, the earlier one, how many lines."""
    first: dict[tuple[str, ...], tuple[str, int]] = {}
    found: list[tuple[str, str, int]] = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(KAFKAS_WORDS):
            continue
        lines = list(_told_lines(path.read_text()))
        again: dict[int, tuple[str, int]] = {}
        for at in range(len(lines) - REPEAT_LINES + 1):
            run = tuple(line for _, line in lines[at : at + REPEAT_LINES])
            earlier = first.setdefault(run, (name, lines[at][0]))
            if earlier != (name, lines[at][0]):
                for each in range(at, at + REPEAT_LINES):
                    again.setdefault(each, earlier)
        start = None
        for each in range(len(lines) + 1):
            if each in again:
                start = each if start is None else start
            elif start is not None:
                origin, line = again[start]
                found.append((f"{name}:{lines[start][0]}", f"{origin}:{line}", each - start))
                start = None
    return sorted(found, key=lambda repeat: -repeat[2])


def repeated_too_much() -> list[str]:
    found = repeats()
    count = sum(lines for _, _, lines in found)
    if count <= MAX_REPEATED:
        return []
    return [
        f"{count} lines stand in two places, {MAX_REPEATED} are allowed (scripts/house --repeats):",
        *(f"  {later} as {earlier}, {lines} lines" for later, earlier, lines in found[:20]),
    ]


NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}
THEIR_PUBLIC = {"KafkaError", "os"}
"""librdkafka's own errors begin with an underscore, and so does `os._exit`."""
INSIDE_ASYNCIO = {"testing.virtual_loop"}
