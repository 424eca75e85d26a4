"""Door: what the asker may do with a resource, as bits of Kafka's ACL operations, where a request wants to know.

An open broker refuses nobody anything, so these are all operations that the resource has.
"""

from __future__ import annotations

from enum import IntEnum
from functools import reduce
from operator import or_
from typing import Final

NOT_ASKED: Final = -(2**31)


class Operation(IntEnum):
    """The numbers are Kafka's."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def _bits(*operations: Operation) -> int:
    return reduce(or_, (1 << operation for operation in operations))


_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
TOPIC: Final = _bits(
    Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE, *_CONFIGS
)  # fmt: skip
GROUP: Final = _bits(Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS)
CLUSTER: Final = _bits(
    Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE, *_CONFIGS
)  # fmt: skip


def operations(asked: bool, all_of_it: int) -> int:
    return all_of_it if asked else NOT_ASKED
