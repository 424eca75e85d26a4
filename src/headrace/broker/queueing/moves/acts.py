"""Machine: what a move task does with a message: send it back, edit it where it is, or discard it (console 5.3).

A message that is edited is written anew and the old one is done, in one transaction, like every move. It says who edited it and
which record it was: that one stays in the log until retention takes it, so the original can be read as long as anything can.
"""

from __future__ import annotations

from typing import Literal

from headrace.broker.queueing import names
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.queues.commands import Source
from headrace.records.build import Record
from headrace.records.edits import CannotEdit, EditProblem, Edits

ActName = Literal["redrive", "edit", "discard"]


class MoveAct:
    def __init__(self, name: ActName, edits: list[str], by: str) -> None:
        """Raises INVALID_PARAMETER."""
        self.name = name
        self._by = by
        try:
            self._edits = Edits(edits)
        except EditProblem as problem:
            raise HeadraceError(ErrorKind.INVALID_PARAMETER, problem.detail) from None
        if name == "discard" and self._edits:
            raise HeadraceError(ErrorKind.INVALID_PARAMETER, "what is discarded can't be edited")
        if name == "edit" and not self._edits:
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                "there is nothing to set",
                'Say what changes, as in {"set": ["value.currency = \\"EUR\\""]}.',
            )

    @property
    def changes(self) -> bool:
        """Whether a record may not fit."""
        return bool(self._edits)

    def fits(self, record: Record) -> bool:
        try:
            self._edits.apply(record)
        except CannotEdit:
            return False
        return True

    def written(self, source: Source, record: Record, wall_ms: int) -> Record:
        """The record that takes the place of this one. Raises CannotEdit."""
        edited = self._edits.apply(record)
        if self._edits:
            where = f"{source.topic}/{source.partition}/{record.offset}"
            kept = _without(edited, names.EDITED_BY, names.EDITED_FROM)
            edited = edited._replace(
                headers=(*kept, (names.EDITED_BY, self._by.encode()), (names.EDITED_FROM, where.encode()))
            )
        # The mark keeps it from being taken for a duplicate of the first one.
        if self.name == "edit":
            return edited._replace(headers=(*_without(edited, names.MOVED), (names.MOVED, b"1")), offset=-1)
        alive = tuple(
            header for header in _without(edited, names.MOVED) if not header[0].startswith(names.DEAD_PREFIX)
        )
        # A new message: its delays are over, and why it died is history.
        return Record(edited.key, edited.value, (*alive, (names.MOVED, b"1")), wall_ms)


def _without(record: Record, *gone: str) -> tuple[tuple[str, bytes | None], ...]:
    return tuple(header for header in record.headers if header[0] not in gone)
