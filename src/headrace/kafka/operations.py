"""Door: what the asker may do with a resource, as bits of Kafka's ACL operations, where a request wants to know.

An open broker refuses nobody anything, so these are all operations that the resource has.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

from headrace.security.rights import Operation

NOT_ASKED: Final = -(2**31)


def _bits(*operations: Operation) -> int:
    return reduce(or_, (1 << operation for operation in operations))


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
TOPIC_BITS: Final = _bits(
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE, *_CONFIGS
)  # fmt: skip
GROUP_BITS: Final = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
CLUSTER_BITS: Final = _bits(
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE, *_CONFIGS
)  # fmt: skip


def operations(asked: bool, all_of_it: int) -> int:
    return all_of_it if asked else NOT_ASKED
