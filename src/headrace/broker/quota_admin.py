"""Driver: changing quotas in the coordinator, and knowing what they are (KIP-546)."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.broker.metadata import Decision, Metadata
from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Expect, PutKey
from headrace.cluster.deltas import Delta, OpaqueChanged
from headrace.cluster.quotas import Entity, Quotas, decode_values, encode_values, key_name
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_QUOTA_ENTITIES

SPACE = "quotas"


class QuotaAdmin:
    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.quotas = Quotas()
        self.load()

    def load(self) -> None:
        self.quotas.load(self._metadata.image.opaque(SPACE))

    def heard(self, deltas: list[Delta]) -> None:
        if any(isinstance(delta, OpaqueChanged) and delta.key.startswith(f"{SPACE}/") for delta in deltas):
            self.load()

    async def alter(self, wanted: Mapping[Entity, Mapping[str, float | None]]) -> None:
        """Set the values, remove those that are None, of all these entities at once or of none; compared, so two changes at once
        can't lose one another (R1)."""
        image = self._metadata.image

        async def decide() -> Decision[None]:
            stored = image.opaque(SPACE)
            compares: list[Expect] = []
            ops: list[PutKey | DeleteKey] = []
            added = 0
            for entity, changes in wanted.items():
                name = key_name(entity)
                key = keys.opaque(SPACE, name)
                values = decode_values(stored[name]) if name in stored else {}
                values.update({quota: value for quota, value in changes.items() if value is not None})
                values = {
                    quota: value for quota, value in values.items() if changes.get(quota, 0) is not None
                }
                compares.append(self._metadata.unchanged(key))
                ops.append(PutKey(key, encode_values(values)) if values else DeleteKey(key))
                added += bool(values) - (name in stored)
            if added > 0 and len(stored) + added > MAX_QUOTA_ENTITIES:
                raise HeadraceError(
                    ErrorKind.POLICY_VIOLATION,
                    f"a cluster has quotas for at most {MAX_QUOTA_ENTITIES} users and clients; set a default for the others",
                )
            change = Change(tuple(compares), tuple(ops), f"quotas of {len(wanted)} users and clients")
            return Decision((change,), None)

        await self._metadata.compare_and_swap(decide, "this quota")
        self.load()
