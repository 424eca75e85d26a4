"""Codec: the places in a module where one small change can be made, and the module with that change made.

A change is a splice into the source text, so line numbers, comments and everything else stay what they were.
"""

from __future__ import annotations

import ast
import warnings
from typing import NamedTuple

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.LShift: ">>",
    ast.RShift: "<<",
}
UNSEEN_CALLS = {"log", "logging", "warnings"}
"""What is said to people is not what a mutation asks about."""


class Mutation(NamedTuple):
    path: str
    scope: str
    """The qualified name of the function it is in."""
    line: int
    kind: str
    before: str
    after: str
    around: str
    """The whole expression or statement that it is part of."""
    begin: int
    end: int
    """Where `before` stands in the text, as offsets into its UTF-8 bytes."""

    @property
    def name(self) -> str:
        """The same as long as nobody touches the expression: what the list of equivalents names."""
        change = f"{self.before.strip()} -> {self.after.strip()}" if self.before != self.around else self.kind
        return f"{self.path}:{self.scope}: {' '.join(self.around.split())[:120]}: {change}"

    def apply(self, source: bytes) -> bytes:
        assert source[self.begin : self.end] == self.before.encode(), self.name
        return source[: self.begin] + self.after.encode() + source[self.end :]


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.scope: list[str] = []
        self.found: list[Mutation] = []

    # -- places ------------------------------------------------------------------------------------------------

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.starts[node.lineno - 1] + node.col_offset,
            self.starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, begin: int, end: int) -> str:
        return self.source[begin:end].decode()

    def _add(
        self, node: ast.expr | ast.stmt, kind: str, after: str, span: tuple[int, int] | None = None
    ) -> None:
        begin, end = span or self._span(node)
        if self.scope:
            before, around = self._text(begin, end), self._text(*self._span(node))
            place = (self.path, ".".join(self.scope), node.lineno)
            self.found.append(Mutation(*place, kind, before, after, around, begin, end))

    def _between(
        self, left: ast.expr, right: ast.expr, old: str, new: str
    ) -> tuple[tuple[int, int], str] | None:
        """The operator between two operands, which the tree does not place."""
        begin, end = self._span(left)[1], self._span(right)[0]
        gap = self._text(begin, end)
        if gap.count(old) != 1 or "#" in gap:
            return None
        return (begin, end), gap.replace(old, new)

    # -- scopes ------------------------------------------------------------------------------------------------

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.visit(statement)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name in ("__repr__", "__str__"):
            return
        self.scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    # -- what is changed ---------------------------------------------------------------------------------------

    def visit_Assert(self, node: ast.Assert) -> None:
        """States an invariant; without it nothing changes."""

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is not None:
            self._add(node, "raise removed", "pass")

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant):
            return
        if isinstance(value, ast.Call):
            root = value.func
            while isinstance(root, ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name) and root.id in UNSEEN_CALLS:
                return
            if ast.unparse(value.func) in ("super().__init__",):
                return
            self._add(node, "call removed", "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        new = ARITHMETIC.get(type(node.op))
        if new is not None:
            text = self._text(*self._span(node))
            target_end = self._span(node.target)[1]
            begin, end = target_end, self._span(node.value)[0]
            gap = self._text(begin, end)
            old = gap.strip().rstrip("=")
            if old and text:
                self._add(node, "augmented", gap.replace(old + "=", new + "="), (begin, end))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old = _symbol(operator)
            place = self._between(left, right, old, COMPARISONS[type(operator)])
            if place is not None:
                self._add(node, "compare", place[1], place[0])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            place = self._between(left, right, old, new)
            if place is not None:
                self._add(node, "boolean", place[1], place[0])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        new = ARITHMETIC.get(type(node.op))
        is_text = any(
            isinstance(side, (ast.JoinedStr,)) or _is_string(side) for side in (node.left, node.right)
        )
        if new is not None and not is_text:
            begin, end = self._span(node.left)[1], self._span(node.right)[0]
            gap = self._text(begin, end)
            old = gap.strip("() \n\t")
            if old and gap.count(old) == 1 and "#" not in gap:
                self._add(node, "arithmetic", gap.replace(old, new), (begin, end))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, "not removed", self._text(*self._span(node.operand)))
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._add(node.test, "condition", f"(not ({self._text(*self._span(node.test))}))")
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._add(node.test, "loop skipped", f"(False and ({self._text(*self._span(node.test))}))")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(node.test, "condition", f"(not ({self._text(*self._span(node.test))}))")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int) and abs(node.value) < 2**31:
            self._add(node, "constant", str(node.value + 1))

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node.value, "return", "None")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "continue", "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "break", "continue")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""


def _symbol(operator: ast.cmpop) -> str:
    return {
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.Is: "is",
        ast.IsNot: "is not",
        ast.In: "in",
        ast.NotIn: "not in",
    }[type(operator)]


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Every change of a module; a few do not compile (`compiles`)."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.found


def compiles(mutation: Mutation, source: bytes) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(mutation.apply(source), mutation.path, "exec")
        except SyntaxError:
            return False
    return True
