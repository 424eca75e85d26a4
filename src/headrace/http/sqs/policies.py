"""Driver: keeps the rights that queues' policies stand for, as queues come, change and go (A42)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.broker.queueing.specs import decode_spec
from headrace.cluster.deltas import Delta, OpaqueChanged
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.sqs.call import SqsCall, SqsSettings
from headrace.http.sqs.policy import PolicyQueue, PolicyRefused, closed, compile_policy
from headrace.security.image import SecurityImage
from headrace.security.records import Permission, PolicyAcl
from headrace.security.rights import Operation, Resource, Right

log = logging.getLogger(__name__)

_SPACE = "queues/"


class QueuePolicies:
    def __init__(self, image: SecurityImage, settings: SqsSettings) -> None:
        self._image = image
        self._settings = settings
        self._held: dict[str, list[PolicyAcl]] = {}

    def load(self, specs: Mapping[str, bytes]) -> None:
        for name, raw in specs.items():
            self._take(name, raw)

    def heard(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, OpaqueChanged) and delta.key.startswith(_SPACE):
                self._take(delta.key[len(_SPACE) :], delta.value)

    def _take(self, name: str, raw: bytes | None) -> None:
        spec = None if raw is None else decode_spec(raw)
        text = "" if spec is None else spec.attributes.get("Policy", "")
        acls: list[PolicyAcl] = []
        if spec is not None and text:
            queue = _queue(self._settings, name, spec.topics)
            try:
                acls = compile_policy(text, queue)
            except PolicyRefused as problem:
                log.error(
                    "the policy of queue %r can't be kept to (%s): until it is mended nobody may use it",
                    name,
                    problem,
                )
                acls = closed(queue)
        if acls != self._held.get(name, []):
            self._held[name] = acls
            self._image.set_policy(name, acls)
        if not acls:
            self._held.pop(name, None)


def check_policy(call: SqsCall, name: str, text: str) -> None:
    """Before it is kept: that it can be enforced, and that the caller gives nothing away that is not theirs."""
    spec = call.queues.find(name)
    queue = _queue(call.settings, name, (name,) if spec is None else spec.topics)
    try:
        wanted = set(compile_policy(text, queue)) if text else set()
    except PolicyRefused as problem:
        raise HeadraceError(
            ErrorKind.INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter Policy. Reason: {problem}."
        ) from None
    access = call.request.access
    if access is None:
        return
    before = spec.attributes.get("Policy", "") if spec is not None else ""
    try:
        held = set(compile_policy(before, queue)) if before else set()
    except PolicyRefused:
        held = set()
    for acl in sorted(wanted ^ held, key=lambda acl: acl.words):
        right = _needed(acl, is_new=acl in wanted)
        if right is not None and access.refuses(right.operation, right.resource, acl.name):
            raise HeadraceError(
                ErrorKind.ACCESS_DENIED, f"needs {right} {acl.name}, to say in a policy who has it."
            )


def _needed(acl: PolicyAcl, *, is_new: bool) -> Right | None:
    """Who gives a right must have it; who denies others a topic, or ends that, must be able to alter it."""
    if acl.permission is Permission.ALLOW:
        return Right(Operation(acl.operation), acl.resource) if is_new else None
    return Right(Operation.ALTER, Resource.TOPIC) if acl.resource is Resource.TOPIC else None


def _queue(settings: SqsSettings, name: str, topics: tuple[str, ...]) -> PolicyQueue:
    if not settings.regions.separate:
        return PolicyQueue(name, topics, settings.account, settings.tls_only)
    return PolicyQueue(name, topics, settings.account, settings.tls_only, *settings.regions.split(name))
