"""The Query protocol says the same as the JSON protocol, in a form and in XML."""

from __future__ import annotations

from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import HeadraceError
from headrace.http.sqs.query import NAMESPACE, encode_answer, encode_error, parse_form

NAMES = {"s": NAMESPACE}


def form(**fields: str) -> dict[str, object]:
    return parse_form(urlencode({name.replace("__", "."): value for name, value in fields.items()}).encode())


def test_flat_parameters_become_shapes() -> None:
    parsed = form(
        Action="SendMessageBatch",
        SendMessageBatchRequestEntry__2__Id="b",
        SendMessageBatchRequestEntry__1__Id="a",
        SendMessageBatchRequestEntry__1__MessageAttribute__1__Name="n",
        SendMessageBatchRequestEntry__1__MessageAttribute__1__Value__DataType="Number",
        SendMessageBatchRequestEntry__1__MessageAttribute__1__Value__StringValue="1",
    )
    assert parsed["Entries"] == [
        {"Id": "a", "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "1"}}},
        {"Id": "b"},
    ]


def test_attributes_tags_and_lists() -> None:
    parsed = form(
        Action="CreateQueue", Attribute__1__Name="DelaySeconds", Attribute__1__Value="5",
        Tag__1__Key="team", Tag__1__Value="blue", AttributeName__1="All",
    )  # fmt: skip
    assert parsed["Attributes"] == {"DelaySeconds": "5"}
    assert parsed["tags"] == {"team": "blue"}
    assert parsed["AttributeNames"] == ["All"]


def test_one_attribute_without_a_number() -> None:
    parsed = form(Action="SetQueueAttributes", Attribute__Name="DelaySeconds", Attribute__Value="5")
    assert parsed["Attributes"] == {"DelaySeconds": "5"}


@pytest.mark.parametrize(
    "body", [b"a=1&a=2", b"a=1&a.b=2", b"Attribute.x.Name=a", b"a.b.c.d.e.f.g.h.i=1", b"\xff"]
)
def test_forms_that_make_no_sense(body: bytes) -> None:
    with pytest.raises(HeadraceError):
        parse_form(body)


@given(st.binary(max_size=60))
def test_any_form_is_parsed_or_refused(body: bytes) -> None:
    try:
        assert isinstance(parse_form(body), dict)
    except HeadraceError:
        pass


def test_a_message_in_xml() -> None:
    answer = {
        "Messages": [
            {
                "Body": "a<b&c\r\n",
                "Attributes": {"SentTimestamp": "1"},
                "MessageAttributes": {"n": {"DataType": "Number", "StringValue": "1"}},
            }
        ]
    }
    root = ElementTree.fromstring(encode_answer("ReceiveMessage", answer, "id-1"))
    message = root.find("s:ReceiveMessageResult/s:Message", NAMES)
    assert message is not None
    assert message.findtext("s:Body", None, NAMES) == "a<b&c\r\n"
    assert message.findtext("s:Attribute/s:Name", None, NAMES) == "SentTimestamp"
    assert message.findtext("s:MessageAttribute/s:Value/s:DataType", None, NAMES) == "Number"
    assert root.findtext("s:ResponseMetadata/s:RequestId", None, NAMES) == "id-1"


def test_batches_and_errors_in_xml() -> None:
    answer = {"Successful": [{"Id": "a"}], "Failed": [{"Id": "b", "SenderFault": True}]}
    root = ElementTree.fromstring(encode_answer("DeleteMessageBatch", answer, "i"))
    result = root.find("s:DeleteMessageBatchResult", NAMES)
    assert result is not None
    assert [child.tag.split("}")[1] for child in result] == [
        "DeleteMessageBatchResultEntry",
        "BatchResultErrorEntry",
    ]
    assert result.findtext("s:BatchResultErrorEntry/s:SenderFault", None, NAMES) == "true"
    error = ElementTree.fromstring(encode_error("C", "Sender", "<why>", "i"))
    assert error.findtext("s:Error/s:Message", None, NAMES) == "<why>"
