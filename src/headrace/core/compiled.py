"""Whether the hot modules run as machine code (decision 0073). This one is compiled with them, so it is enough to ask what it is itself."""

from __future__ import annotations


def is_compiled() -> bool:
    return not __file__.endswith((".py", ".pyc"))


def how_it_runs() -> str:
    return "compiled" if is_compiled() else "pure Python"
