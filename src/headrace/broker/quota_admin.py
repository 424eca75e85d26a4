"""Driver: changing quotas in the coordinator, and knowing what they are (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.cluster import keys
from headrace.cluster.changes import Change, Compare, Delete, Put
from headrace.cluster.quotas import Entity, Quotas, decode_values, encode_values, key_name
from headrace.core.errors import ErrorKind, HeadraceError

if TYPE_CHECKING:
    from headrace.broker.metadata import Metadata

SPACE = "quotas"
ANONYMOUS = "ANONYMOUS"
"""Who has not said who they are, by Kafka's name for them."""
MAX_ATTEMPTS = 10


class QuotaAdmin:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.quotas = Quotas()
        self.load()

    def load(self) -> None:
        self.quotas.load(self._metadata.image.opaque(SPACE))

    async def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set the values, remove those that are None; compared, so two changes at once can't lose one another (R1)."""
        key = keys.opaque(SPACE, key_name(entity))
        image = self._metadata.image
        for _ in range(MAX_ATTEMPTS):
            stored = image.opaque(SPACE).get(key_name(entity))
            values = {} if stored is None else decode_values(stored)
            for name, value in changes.items():
                if value is None:
                    values.pop(name, None)
                else:
                    values[name] = value
            compare = Compare(key, "mod", image.mod_revision(key))
            op = Put(key, encode_values(values)) if values else Delete(key)
            change = Change((compare,), (op,), f"quotas of {key_name(entity)}")
            if (await self._metadata.commit(change)).succeeded:
                self.load()
                return
        raise HeadraceError(ErrorKind.CONFLICT, "others keep changing this quota; try again")
