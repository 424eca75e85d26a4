"""R56: a receipt handle names one delivery and can not be made, changed or carried to another queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected
from headrace.queues.commands import Handle
from headrace.queues.receipt import QueueReceipt, decode_receipt, encode_receipt

KEY = b"k" * 32
receipts = st.builds(
    QueueReceipt,
    st.text(max_size=60),
    st.integers(0, 2**31 - 1),
    st.builds(Handle, st.integers(0, 2**63 - 1), st.integers(1, 2**31 - 1), st.integers(0, 2**62)),
)


@given(receipt=receipts, queue=st.text(max_size=20))
def test_round_trip(receipt: QueueReceipt, queue: str) -> None:
    assert decode_receipt(encode_receipt(receipt, queue, KEY), queue, KEY) == receipt


@given(receipt=receipts, position=st.integers(0), bit=st.integers(0, 7))
def test_r56_a_changed_handle_is_refused(receipt: QueueReceipt, position: int, bit: int) -> None:
    raw = bytearray(encode_receipt(receipt, "q", KEY).encode())
    at = position % len(raw)
    raw[at] ^= 1 << bit
    decoded = decode_receipt(raw.decode("latin-1"), "q", KEY)
    # The last character may carry bits that mean nothing; then it is the same handle in another spelling.
    assert isinstance(decoded, Rejected) or (decoded == receipt and at == len(raw) - 1)


def test_r56_not_for_another_queue_and_not_with_another_key() -> None:
    text = encode_receipt(QueueReceipt("t", 0, Handle(5, 1, 7)), "q", KEY)
    for decoded in (decode_receipt(text, "r", KEY), decode_receipt(text, "q", b"other")):
        assert isinstance(decoded, Rejected)
        assert decoded.kind is ErrorKind.RECEIPT_HANDLE_IS_INVALID


@given(text=st.text(max_size=200))
def test_anything_is_a_receipt_or_refused(text: str) -> None:
    assert isinstance(decode_receipt(text, "q", KEY), Rejected)


@pytest.mark.parametrize("text", ["", "=", "A" * 2000, "é", "AAAA\n", "A" * 56])
def test_rubbish(text: str) -> None:
    assert isinstance(decode_receipt(text, "q", KEY), Rejected)
