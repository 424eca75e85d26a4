"""Door: the features of the protocol that are on, as ApiVersions and UpdateFeatures tell (KIP-584)."""

from __future__ import annotations

FEATURE_LEVELS: dict[str, int] = {
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
