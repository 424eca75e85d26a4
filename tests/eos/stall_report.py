"""What the broker knows about a loop that stands still: its transaction, the writers of its sink, its group.

With the stacks of the workers beside it this tells who waits for whom: a transaction that is Ongoing while its worker polls is
the worker's; one that stays in Prepare* is the broker's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from raw_client import RawClient

from headrace.wire.api import ApiKey
from headrace.wire.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup


def stall_report(port: int, name: str, sink: str, partitions: int) -> str:
    """`name` is the group and the transactional id. A question that fails is part of the report."""
    questions: dict[str, Callable[[RawClient], object]] = {
        "transaction": lambda client: client.call(
            ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest([name])
        ),
        "writers": lambda client: client.call(
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            DescribeProducersRequest([TopicRequest(sink, list(range(partitions)))]),
        ),
        "group": lambda client: client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest([name])),
        "offsets": lambda client: client.call(
            ApiKey.OFFSET_FETCH,
            8,
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None)], require_stable=True),
        ),
    }
    lines = []
    for what, ask in questions.items():
        try:
            with RawClient(port, 5.0) as client:
                lines.append(f"{what}: {ask(client)}")
        except OSError as failure:
            lines.append(f"{what}: {failure!r}")
    return "\n".join(lines)
