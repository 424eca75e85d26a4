"""Kernel: named tuples made without their Python-level constructor, which costs more than the tuple itself. For paths of every message."""

from __future__ import annotations

from typing import Protocol, TypeVar, cast

T = TypeVar("T")


class NewTuple(Protocol):
    """The class and all of its fields, in order: defaults are not filled in."""

    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T: ...


new_tuple = cast(NewTuple, tuple.__new__)
