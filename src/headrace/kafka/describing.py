"""Door: what describing groups of any kind has in common: how many at once, and one row for each, a refused one too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.limits import MAX_NAMES_DESCRIBED
from headrace.kafka.call import Call

D_co = TypeVar("D_co", covariant=True)


class RefusedRow(Protocol[D_co]):
    """Makes the row of a group that can't be described."""

    def __call__(self, *, error_code: int, error_message: str | None, group_id: str) -> D_co: ...


class GroupsWanted(Protocol):
    """The request of any kind."""

    group_ids: list[str]


R = TypeVar("R", bound=GroupsWanted)
D = TypeVar("D")


async def described(
    call: Call[R], refused: RefusedRow[D], describe: Callable[[Call[R], str], Awaitable[D]]
) -> list[D]:
    wanted = dict.fromkeys(call.request.group_ids)
    if len(wanted) > MAX_NAMES_DESCRIBED:
        message = f"more than {MAX_NAMES_DESCRIBED} groups are asked for; ask in several requests"
        code = ErrorKind.INVALID_REQUEST.kafka_code
        return [refused(error_code=code, error_message=message, group_id=group) for group in wanted]
    rows = []
    async for group in call.pace().over(wanted):
        try:
            rows.append(await describe(call, group))
        except HeadraceError as problem:
            code, message = problem.kind.kafka_code, problem.detail
            rows.append(refused(error_code=code, error_message=message, group_id=group))
    return rows
