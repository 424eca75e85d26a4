"""Codec: a queue's Policy as rights (A42). What it says is enforced at every door, or it is refused in words; nothing is kept and ignored.

A statement allows or denies actions of this queue to users. Each action becomes the rights that the table says it needs (rights.py), on the
queue's group and its topics: a policy is another way to write rights, with the same meaning for boto3, REST and Kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.http.sqs.rights import RIGHTS
from headrace.security.acl_book import EVERYBODY, host_problem
from headrace.security.records import ANY_NAME, PatternType, Permission, PolicyAcl, name_problem
from headrace.security.rights import Resource, Right

MAX_RIGHTS = 1_000
VERSIONS = ("2012-10-17", "2008-10-17")
_STATEMENT = frozenset(("Sid", "Effect", "Principal", "Action", "Resource", "Condition"))
_EFFECTS = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}
_PREFIX = "sqs:"
_NOT_GIVEN = frozenset(("CreateQueue", "ListQueues", "ListMessageMoveTasks", "StartMessageMoveTask", "CancelMessageMoveTask"))  # fmt: skip
"""Not about one queue that is there, or about two."""
GIVEN = {name.lower(): name for name in RIGHTS if name not in _NOT_GIVEN}
T = TypeVar("T")


class PolicyRefused(ValueError):
    """The text says what is not served, for whoever wrote it."""


class PolicyQueue(NamedTuple):
    """Whose policy it is."""

    name: str
    topics: Sequence[str]
    account: str
    tls_only: bool = False
    """No connection without TLS is taken, so what asks for one never holds."""
    region: str = ""
    """Its own, where regions are kept apart."""
    shown: str = ""
    """What it is called there; empty: as everywhere."""


def compile_policy(text: str, queue: PolicyQueue) -> list[PolicyAcl]:
    """Raises PolicyRefused."""
    try:
        policy = json.loads(text)
    except (ValueError, RecursionError):
        raise PolicyRefused("it is not JSON") from None
    if not isinstance(policy, dict):
        raise PolicyRefused("it is no object")
    _need_known(policy, frozenset(("Version", "Id", "Statement")), "a policy")
    if policy.get("Version", VERSIONS[0]) not in VERSIONS:
        raise PolicyRefused(f"Version is one of {', '.join(VERSIONS)}")
    found: dict[PolicyAcl, None] = {}
    for statement in _many(policy.get("Statement"), dict, "Statement"):
        for acl in _statement(statement, queue):
            found[acl] = None
            if len(found) > MAX_RIGHTS:
                raise PolicyRefused(f"it makes more than {MAX_RIGHTS} rights")
    return list(found)


def closed(queue: PolicyQueue) -> list[PolicyAcl]:
    """What stands for a policy that can't be read (A51): it may have denied something, so it denies everything."""
    return [
        PolicyAcl(Resource.GROUP, queue.name, PatternType.LITERAL, EVERYBODY, ANY_NAME, 2, Permission.DENY, queue.name)
    ]  # fmt: skip


def _statement(statement: Mapping[str, object], queue: PolicyQueue) -> Iterator[PolicyAcl]:
    _need_known(statement, _STATEMENT, "a statement")
    effect = _EFFECTS.get(str(statement.get("Effect")))
    if effect is None:
        raise PolicyRefused("Effect is Allow or Deny")
    for resource in _many(statement.get("Resource"), str, "Resource"):
        _need_this_queue(resource, queue)
    principals = _principals(statement.get("Principal"), queue)
    rights = list(_rights(_many(statement.get("Action"), str, "Action"), queue))
    holds, hosts = _condition(statement.get("Condition", {}), queue)
    if holds:
        for principal in principals:
            for right, name in rights:
                for host in hosts:
                    yield PolicyAcl(
                        right.resource, name, PatternType.LITERAL, principal, host, right.operation, effect, queue.name
                    )  # fmt: skip


def _need_known(document: Mapping[str, object], known: frozenset[str], what: str) -> None:
    for key in document:
        if key not in known:
            raise PolicyRefused(f"{what} with {key[:100]} is not served here, and would protect nothing")


def _many(value: object, kind: type[T], what: str) -> list[T]:
    values = value if isinstance(value, list) else [value]
    found = [each for each in values if isinstance(each, kind)]
    if not found or len(found) < len(values):
        raise PolicyRefused(f"{what} is missing or of a wrong type")
    return found


def _need_this_queue(resource: str, queue: PolicyQueue) -> None:
    name = queue.shown or queue.name
    if resource in (ANY_NAME, name):
        return
    parts = resource.split(":")
    is_here = len(parts) == 6 and parts[3] == (queue.region or parts[3])
    if not is_here or parts[:3] != ["arn", "aws", "sqs"] or parts[4:] != [queue.account, name]:
        raise PolicyRefused(f"Resource {resource[:200]} is not this queue")


def _principals(value: object, queue: PolicyQueue) -> list[str]:
    if value == ANY_NAME:
        return [EVERYBODY]
    if not isinstance(value, dict) or list(value) != ["AWS"]:
        raise PolicyRefused('Principal is "*" or {"AWS": accounts and users}: nobody else logs in here')
    return [_principal(each, queue) for each in _many(value["AWS"], str, "Principal")]


def _principal(text: str, queue: PolicyQueue) -> str:
    if text == ANY_NAME:
        return EVERYBODY
    name = text
    if text.startswith("arn:"):
        parts = text.split(":")
        if len(parts) != 6 or parts[:4] != ["arn", "aws", "iam", ""]:
            raise PolicyRefused(f"Principal {text[:200]} is nobody here")
        kind, _, path = parts[5].partition("/")
        if kind == "user" and parts[4] != queue.account:
            raise PolicyRefused(f"Principal {text[:200]} is of another account; this one is {queue.account}")
        if kind not in ("root", "user"):
            raise PolicyRefused(f"Principal {text[:200]} is no user: there are no roles")
        name = parts[4] if kind == "root" else path.rpartition("/")[2]
    if name_problem(name) is not None:
        raise PolicyRefused(f"Principal {text[:200]} is no user's name")
    return f"User:{name}"


def _rights(actions: Sequence[str], queue: PolicyQueue) -> Iterator[tuple[Right, str]]:
    for action in actions:
        lowered = action.lower()
        wanted = lowered[len(_PREFIX) :] if lowered.startswith(_PREFIX) else ""
        if action == ANY_NAME:
            wanted = ANY_NAME
        names = (
            [name for key, name in GIVEN.items() if key.startswith(wanted[:-1])]
            if wanted.endswith(ANY_NAME)
            else [GIVEN[wanted]] if wanted in GIVEN else []
        )  # fmt: skip
        if not names:
            raise PolicyRefused(f"Action {action[:100]} is not one that a policy of a queue gives")
        for name in names:
            for choices in RIGHTS[name].needs:
                for right in choices:
                    yield from ((right, thing) for thing in _things(right, queue))


def _things(right: Right, queue: PolicyQueue) -> Iterator[str]:
    for place in right.places:
        if place == "{queue}":
            yield queue.name
        elif place == "topics of {queue}":
            yield from queue.topics


def _condition(value: object, queue: PolicyQueue) -> tuple[bool, list[str]]:
    """Whether it can hold at all, and from where."""
    if not isinstance(value, dict):
        raise PolicyRefused("Condition is no object")
    holds, hosts = True, [ANY_NAME]
    for operator, tests in value.items():
        if not isinstance(tests, dict):
            raise PolicyRefused("Condition is of a wrong type")
        for key, wanted in tests.items():
            if (operator, key.lower()) == ("IpAddress", "aws:sourceip"):
                hosts = _many(wanted, str, key)
                for host in hosts:
                    if (problem := host_problem(host)) is not None:
                        raise PolicyRefused(problem)
            elif (operator, key.lower()) == ("Bool", "aws:securetransport"):
                if not queue.tls_only:
                    raise PolicyRefused(
                        "aws:SecureTransport is not told apart by queue: start the brokers with --plaintext refuse, and it always holds"
                    )
                holds = holds and str(wanted).lower() == "true"
            else:
                raise PolicyRefused(
                    f"Condition {operator[:50]} {key[:100]} is not served here: only IpAddress aws:SourceIp and Bool aws:SecureTransport are"
                )
    return holds, hosts
