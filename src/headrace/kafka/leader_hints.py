"""Door: telling a client who leads instead (KIP-951), which saves it a Metadata round trip after a failover."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind
from headrace.wire.leader_hint import NO_LEADER, LeaderIdAndEpoch, NodeEndpoint

_MOVED = (ErrorKind.NOT_LEADER_OR_FOLLOWER, ErrorKind.FENCED_LEADER_EPOCH)


def hint_for(image: ClusterImage, topic: str, index: int, error: ErrorKind) -> LeaderIdAndEpoch:
    if error not in _MOVED:
        return NO_LEADER
    state = image.partition(topic, index)
    if state is None or not image.is_live(state.leader):
        return NO_LEADER  # a hint is where to go, not where nobody is
    return LeaderIdAndEpoch(state.leader, state.leader_epoch)


def endpoint(image: ClusterImage, node_id: int) -> NodeEndpoint | None:
    node = image.broker(node_id)
    if node is None:
        return None
    return NodeEndpoint(node_id, node.registration.host, node.registration.port, node.rack)


def endpoints_for(image: ClusterImage, hints: Iterable[LeaderIdAndEpoch]) -> list[NodeEndpoint]:
    nodes = {hint.leader_id for hint in hints if hint.leader_id >= 0}
    return [found for node_id in sorted(nodes) if (found := endpoint(image, node_id)) is not None]
