"""Door: what an SQS action is given, and typed access to its parameters. A wrong type gets AWS's error, never a 500."""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeVar, overload

from headrace.broker.queueing.queues import Queues
from headrace.broker.queueing.specs import QueueSpec
from headrace.core.errors import ErrorKind, HeadraceError, Unknown
from headrace.http.forwarding import HOST as FORWARDED_HOST
from headrace.http.forwarding import REGION as FORWARDED_REGION
from headrace.http.messages import Request
from headrace.http.sqs.host import SqsHost
from headrace.http.sqs.regions import Regions
from headrace.security.sigv4 import claimed_region

_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_is_entry_id = re.compile(r"[A-Za-z0-9_-]{1,80}").fullmatch
_is_number = re.compile(r"-?[0-9]{1,15}").fullmatch
_ABSENT = object()
MAX_BATCH_ENTRIES = 10
LOOSE_BATCH_ENTRIES = 1_000
_RANGES = {
    "WaitTimeSeconds": "Must be >= {low} and <= {high}, if provided.",
    "DelaySeconds": "DelaySeconds must be >= {low} and <= {high}.",
}
"""In AWS's words where they differ."""


T = TypeVar("T")
D = TypeVar("D")
Entry = dict[str, Any]
"""Of a batch, as its caller wrote it."""


class SqsSettings(NamedTuple):
    account: str = "000000000000"
    regions: Regions = Regions()
    strict: bool = False
    """Refuse what AWS refuses: longer delays, larger batches."""
    tls_only: bool = False
    """No connection without TLS is taken."""
    receipt_key: bytes = b""
    """Under every receipt handle (R56)."""


class SqsServices(NamedTuple):
    """What every action of a door is given."""

    broker: SqsHost
    queues: Queues
    settings: SqsSettings


class SqsCall:
    """One action with its parameters."""

    __slots__ = ("_region", "_services", "broker", "parameters", "queues", "request", "settings")

    def __init__(
        self, services: SqsServices, request: Request, parameters: dict[str, object], region: str = ""
    ) -> None:
        """`region`: the one that was signed; empty when nobody has to sign."""
        self._services = services
        self.broker, self.queues, self.settings = services
        self.request = request
        self.parameters = parameters
        self._region = region

    @property
    def trace(self) -> str:
        """X-Amzn-Trace-Id of the request."""
        return self.request.header(b"x-amzn-trace-id")

    @property
    def region(self) -> str:
        """The one that the caller claims; of who claims none, our own."""
        if not self._region:
            request = self.request
            told = request.header(FORWARDED_REGION) if request.sender is not None else ""
            claimed = told or claimed_region(request.header(b"authorization"))
            self._region = claimed or self.settings.regions.own
        return self._region

    @property
    def base_url(self) -> str:
        request = self.request
        host = request.header(b"host") or "localhost"
        if request.sender is not None:
            host = request.header(FORWARDED_HOST) or host
        return f"{'https' if request.peer.is_tls else 'http'}://{host}"

    # -- queues --------------------------------------------------------------------------------------------------------

    def inside(self, name: str) -> str | None:
        """What the cluster calls a queue that the caller calls so; None: the caller's region has none of this name."""
        return self.settings.regions.inside(self.region, name)

    def shown(self, name: str) -> str:
        """What callers of its region call a queue of the cluster."""
        return self.settings.regions.split(name)[1]

    def has(self, name: str) -> bool:
        """Whether a queue of the cluster is one of the caller's region."""
        regions = self.settings.regions
        return not regions.separate or regions.split(name)[0] == self.region

    def queue_url(self, name: str) -> str:
        return f"{self.base_url}/{self.settings.account}/{self.shown(name)}"

    def arn(self, name: str) -> str:
        regions = self.settings.regions
        region, shown = regions.split(name) if regions.separate else (self.region, name)
        return f"arn:aws:sqs:{region}:{self.settings.account}:{shown}"

    def queue(self) -> QueueSpec:
        """The queue named by QueueUrl. Bare names and foreign hosts are fine: only the last part counts."""
        url = self.parameters.get("QueueUrl")
        if type(url) is not str:
            url = self.text("QueueUrl")
        name = url.rstrip("/").rpartition("/")[2]
        if self.settings.regions.separate:
            return self.named(name)
        spec = self.queues.find(name)
        if spec is None:
            raise _no_such_queue()
        return spec

    def named(self, name: str) -> QueueSpec:
        """The queue that the caller calls so."""
        inside = self.inside(name)
        spec = None if inside is None else self.queues.find(inside)
        if spec is None:
            raise _no_such_queue()
        return spec

    def name_of_arn(self, arn: str) -> str | None:
        """What the cluster calls the queue that an ARN names, or a bare name; None: it is not one of the caller's region."""
        parts = arn.split(":")
        if self.settings.regions.separate and len(parts) == 6 and parts[3] != self.region:
            return None
        return self.inside(parts[-1])

    def queue_of_arn(self, arn: str) -> QueueSpec:
        name = self.name_of_arn(arn) if arn.startswith("arn:aws:sqs:") else None
        spec = None if name is None else self.queues.find(name)
        if spec is None:
            raise Unknown(
                ErrorKind.RESOURCE_NOT_FOUND,
                "The resource that you specified for the SourceArn parameter doesn't exist.",
            )
        return spec

    # -- parameters ------------------------------------------------------------------------------------------------------

    @overload
    def get(self, name: str, kind: type[T]) -> T: ...
    @overload
    def get(self, name: str, kind: type[T], default: D) -> T | D: ...
    def get(self, name: str, kind: type, default: object = _ABSENT) -> object:
        value = self.parameters.get(name)
        if value is None:
            if default is _ABSENT:
                raise HeadraceError(
                    ErrorKind.MISSING_PARAMETER, f"The request must contain the parameter {name}."
                )
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            raise invalid(f"Value for parameter {name} is of the wrong type.")
        return value

    @overload
    def text(self, name: str) -> str: ...
    @overload
    def text(self, name: str, default: D) -> str | D: ...
    def text(self, name: str, default: object = _ABSENT) -> object:
        return self.get(name, str, default)

    def texts(self, name: str, default: list[str] | None = None) -> list[str]:
        """A list of text."""
        values = self.get(name, list) if default is None else self.get(name, list, default)
        if not all(isinstance(value, str) for value in values):
            raise invalid(f"Value for parameter {name} is of the wrong type.")
        return values

    @overload
    def number(self, name: str, low: int, high: int) -> int: ...
    @overload
    def number(self, name: str, low: int, high: int, default: D) -> int | D: ...
    def number(self, name: str, low: int, high: int, default: object = _ABSENT) -> object:
        given = self.parameters.get(name)
        if given is None and default is not _ABSENT:
            return default
        if isinstance(given, str) and _is_number(given):
            value = int(given)  # the Query protocol has only text
        else:
            value = given if type(given) is int else self.get(name, int)
        if value is not default and not low <= value <= high:
            reason = _RANGES.get(name, "Must be between {low} and {high}, if provided.").format(
                low=low, high=high
            )
            raise invalid(f"Value {value} for parameter {name} is invalid. Reason: {reason}")
        return value

    def entries(self, kind: str) -> list[Entry]:
        """The entries of a batch, with AWS's checks on their number and ids."""
        limit = MAX_BATCH_ENTRIES if self.settings.strict else LOOSE_BATCH_ENTRIES
        entries: list[Entry] = self.get("Entries", list, [])
        if not entries:
            raise HeadraceError(ErrorKind.EMPTY_BATCH, f"There should be at least one {kind} in the request.")
        if len(entries) > limit:
            raise HeadraceError(
                ErrorKind.TOO_MANY_BATCH_ENTRIES,
                f"Maximum number of entries per request are {limit}. You have sent {len(entries)}.",
            )
        seen: set[str] = set()
        for entry in entries:
            if not isinstance(entry, dict):
                raise invalid("A batch entry must be an object.")
            entry_id = entry.get("Id")
            if not isinstance(entry_id, str) or not _is_entry_id(entry_id):
                raise HeadraceError(
                    ErrorKind.INVALID_BATCH_ENTRY_ID,
                    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                    "It can be at most 80 letters long.",
                )
            if entry_id in seen:
                raise HeadraceError(ErrorKind.BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry_id} repeated.")
            seen.add(entry_id)
        return entries

    def with_parameters(self, parameters: Entry) -> SqsCall:
        """The same call for one entry of a batch."""
        return SqsCall(self._services, self.request, parameters, self._region)


def invalid(detail: str) -> HeadraceError:
    return HeadraceError(ErrorKind.INVALID_PARAMETER, detail)


def _no_such_queue() -> Unknown:
    return Unknown(ErrorKind.QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")


def queue_name_problem(name: str) -> str | None:
    if not _QUEUE_NAME.fullmatch(name) or len(name) > 80:
        return "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    return None
