"""Door: what the asker may do with a resource, as bits of Kafka's ACL operations, where a request wants to know (A47).

An open broker refuses nobody anything, so there these are all operations that the resource has.
"""

from __future__ import annotations

from typing import Final

from headrace.security.access import TRUSTED, Access
from headrace.security.rights import Operation, Resource

NOT_ASKED: Final = -(2**31)

Legal = tuple[Operation, ...]
_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
ON_TOPIC: Final[Legal] = (
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE, *_CONFIGS
)  # fmt: skip
ON_GROUP: Final[Legal] = (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
ON_CLUSTER: Final[Legal] = (
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE, *_CONFIGS
)  # fmt: skip


def operations(asked: bool, legal: Legal, access: Access | None, resource: Resource, name: str) -> int:
    return (access or TRUSTED).bits(legal, resource, name) if asked else NOT_ASKED
