"""Kernel: bytes that stay where they lie until they leave: a stretch of a file instead of a buffer (decision 0050)."""

from __future__ import annotations

from headrace.core.ports import Buffer, Descriptor


class Stored:
    """Whole batches, as `Buffer` would hold them. It has a length and no bytes."""

    __slots__ = ("descriptor", "next_offset", "position", "size")

    def __init__(self, descriptor: Descriptor, position: int, size: int, next_offset: int) -> None:
        self.descriptor = descriptor
        self.position = position
        self.size = size
        self.next_offset = next_offset
        """No batch in it reaches this offset."""

    def __len__(self) -> int:
        return self.size


Piece = Buffer | Stored
"""What an answer is made of."""
