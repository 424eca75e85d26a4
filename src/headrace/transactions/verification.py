"""Machine: R45 on the partition: the first batch of a transaction is written only after its coordinator confirmed it.

While the question is on its way the answer can become wrong: the transaction ends, its marker is written here, and the
late batch would open a transaction that nobody will ever end. So a question gets a ticket, a marker tears the ticket up,
and a batch needs the ticket it asked with.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.transactions.hearings import Hearings

MAX_TICKETS = 10_000


class Verifications:
    """Of one partition. Kept only while there is no open transaction of that producer in the log."""

    __slots__ = ("_limit", "_next_ticket", "_tickets", "hearings")

    def __init__(self, limit: int = MAX_TICKETS) -> None:
        self._tickets: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._next_ticket = 1
        self._limit = limit
        self.hearings = Hearings()

    def begin(self, producer_id: int, producer_epoch: int) -> int:
        """A ticket for the question to the coordinator; batches that ask at the same time share one."""
        epoch, ticket = self._tickets.get(producer_id, (-1, 0))
        if producer_epoch > epoch or not ticket:
            ticket = self._next_ticket
            self._next_ticket += 1
            self._tickets[producer_id] = (producer_epoch, ticket)
            if len(self._tickets) > self._limit:
                self._tickets.popitem(last=False)  # its batch has to ask again: safe
        return ticket

    def holds(self, producer_id: int, producer_epoch: int, ticket: int) -> bool:
        """The confirmation for this ticket still counts. Ask, check and append without an await in between (R25)."""
        return self._tickets.get(producer_id) == (producer_epoch, ticket)

    def appended(self, producer_id: int) -> None:
        """The batch is in the log, so the transaction is open there and no more verification is needed."""
        self._tickets.pop(producer_id, None)
        self.hearings.spoke(producer_id)

    def marker_written(
        self, producer_id: int, producer_epoch: int, *, commit: bool, newest_connection_id: int
    ) -> None:
        """What was being verified belongs to the transaction that just ended."""
        self._tickets.pop(producer_id, None)
        if not commit:
            self.hearings.aborted(producer_id, producer_epoch, newest_connection_id)
