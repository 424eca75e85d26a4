"""The torture may call a hung worker the client's own fault only when the client's log shows that every request was answered."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from exchange import Exchange

SENT = "SEND [a#producer-1] [thrd:TxnCoordinator]: TxnCoordinator/2: Sent EndTxnRequest (v1, 57 bytes @ 0, CorrId 7)"
RECEIVED = "RECV [a#producer-1] [thrd:TxnCoordinator]: TxnCoordinator/2: Received EndTxnResponse (v1, 6 bytes, CorrId 7, rtt 1.49ms)"
DOWN = "STATE [a#producer-1] [thrd:TxnCoordinator]: TxnCoordinator: Broker changed state UP -> DOWN"
GIVEN_UP = "REQTMOUT [a#producer-1] [thrd:TxnCoordinator]: TxnCoordinator/2: Timed out EndTxnRequest in flight (after 10002ms, timeout #0)"


def hear(exchange: Exchange, *lines: str) -> None:
    for line in lines:
        exchange.handle(logging.LogRecord("client", logging.DEBUG, "", 0, line, None, None))


def owed(exchange: Exchange, *meanwhile: str) -> list[str]:
    """What is owed when the client says these lines again and again."""
    return exchange.owed(lambda: hear(exchange, *meanwhile), apart_s=0, tries=3)


def test_nothing_is_owed_to_a_client_whose_requests_were_answered() -> None:
    exchange = Exchange()
    hear(exchange, SENT, RECEIVED)
    assert owed(exchange) == []


def test_a_request_without_an_answer_is_owed() -> None:
    exchange = Exchange()
    hear(exchange, SENT)
    assert owed(exchange) == ["EndTxn to TxnCoordinator"]


def test_a_request_is_owed_no_longer_when_its_connection_is_gone() -> None:
    exchange = Exchange()
    hear(exchange, SENT, DOWN)
    assert owed(exchange) == []


def test_requests_that_the_client_gives_up_again_and_again_are_owed() -> None:
    assert owed(Exchange(), SENT, GIVEN_UP, DOWN) == ["EndTxn"] * 6


def test_the_end_of_one_connection_is_not_that_of_another() -> None:
    exchange = Exchange()
    hear(exchange, SENT, DOWN.replace("thrd:TxnCoordinator", "thrd:10.99.0.1:9092/1"))
    assert owed(exchange) == ["EndTxn to TxnCoordinator"]
