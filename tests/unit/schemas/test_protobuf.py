"""Protobuf: .proto files are read as protoc reads them, written back the same, and held against each other by what is on the wire."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_tools import protoc

from headrace.schemas import protobuf
from headrace.schemas.model import BadSchema, Reference, Schema
from headrace.schemas.proto_reading import problems
from headrace.schemas.proto_text import written

EVERYTHING = """
// A file with most of what there is.
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "com.example.shop";
option java_multiple_files = true;
option optimize_for = SPEED;

message Order {
  reserved 9, 20 to 30;
  reserved "old", "older";
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, Line> by_code = 4;
  map<int32, double> prices = 5;
  google.protobuf.Timestamp at = 6;
  State state = 7 [deprecated = true];
  oneof paid {
    string card = 10;
    Line.Kind kind = 11;
  }
  message Line {
    string code = 1; /* a comment */
    enum Kind { NONE = 0; GIFT = 1; }
    Kind kind = 2;
  }
  repeated sint32 counts = 12 [packed = false];
}
enum State { option allow_alias = true; NEW = 0; FRESH = 0; SENT = 0x2; }
service Orders {
  rpc Get (Order) returns (stream Order);
  rpc Put (stream .shop.v1.Order) returns (Order) { option deprecated = true; }
}
"""

PROTO2 = """
syntax = "proto2";
message A {
  required int32 id = 1;
  optional string name = 2 [default = "it's\\n"];
  repeated group Part = 3 { optional int32 x = 1; }
  extensions 100 to max;
}
extend A { optional int32 more = 100; }
"""


def nobody(reference: Reference) -> Schema:
    raise BadSchema(f"no {reference.subject}")


def read(text: str) -> protobuf.ProtoSchema:
    return protobuf.parse(Schema("PROTOBUF", text), nobody)


def by_protoc(text: str, tmp_path: Path) -> FileDescriptorProto:
    (tmp_path / "schema.proto").write_text(text)
    out = tmp_path / "out.pb"
    include = Path(protoc.__file__).parent / "_proto"
    arguments = ["protoc", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={out}", "schema.proto"]
    assert protoc.main(arguments) == 0
    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file
    for message in file.message_type:
        _without_json_names(message)
    for field in file.extension:
        field.ClearField("json_name")
    for service in file.service:
        for method in service.method:
            method.ClearField("options")
    return file


def _without_json_names(message: object) -> None:
    for field in (*message.field, *message.extension):  # type: ignore[attr-defined]
        field.ClearField("json_name")
    for nested in message.nested_type:  # type: ignore[attr-defined]
        _without_json_names(nested)


@pytest.mark.parametrize("text", [EVERYTHING, PROTO2], ids=["proto3", "proto2"])
def test_a_file_is_read_as_protoc_reads_it(text: str, tmp_path: Path) -> None:
    mine, theirs = read(text).file, by_protoc(text, tmp_path)
    for service in mine.service:
        for method in service.method:  # said or left to the default
            for side in ("client_streaming", "server_streaming"):
                if not getattr(method, side):
                    method.ClearField(side)
    assert str(mine) == str(theirs)


@pytest.mark.parametrize("text", [EVERYTHING, PROTO2], ids=["proto3", "proto2"])
def test_what_is_written_is_read_as_the_same(text: str) -> None:
    once = read(text)
    again = read(written(once.file))
    assert written(again.file) == written(once.file)
    pool = DescriptorPool()
    for name in again.file.dependency:
        pool.Add(FileDescriptorProto.FromString(protobuf.KNOWN[name]))
    pool.Add(again.file)  # whoever deserialises makes a pool of it


def test_a_descriptor_in_base64_is_a_schema_too() -> None:
    made = base64.b64encode(read(EVERYTHING).file.SerializeToString()).decode()
    assert written(read(made).file) == written(read(EVERYTHING).file)


def test_order_does_not_count_when_it_is_normalized() -> None:
    one = read('syntax = "proto3"; message A { int32 a = 1; int32 b = 2; } message B { int32 x = 1; }')
    other = read('syntax="proto3"; message B { int32 x = 1; } message A { int32 b = 2; int32 a = 1; }')
    assert written(one.file) != written(other.file)
    assert written(one.file, in_order=True) == written(other.file, in_order=True)


TABLE = [
    # reader, writer (both within message M), what is wrong
    ("int32 a = 1;", "int32 a = 1;", ""),
    ("int32 a = 1; string b = 2;", "int32 a = 1;", ""),
    ("int32 a = 1;", "int32 a = 1; string b = 2;", ""),
    ("int32 other = 1;", "int32 a = 1;", ""),
    ("int64 a = 1;", "int32 a = 1;", ""),
    ("bytes a = 1;", "string a = 1;", ""),
    ("sint32 a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("string a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("fixed32 a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("N a = 1; message N {}", "int32 a = 1; message N {}", "FIELD_KIND_CHANGED"),
    ("E a = 1; enum E { Z = 0; }", "int32 a = 1;", ""),
    ("N a = 1; message N {} message O {}", "O a = 1; message N {} message O {}", "FIELD_NAMED_TYPE_CHANGED"),
    ("", "message N {}", "MESSAGE_REMOVED"),
    ("repeated int32 a = 1;", "int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
    ("repeated string a = 1;", "string a = 1;", ""),
    ("oneof o { int32 a = 1; }", "int32 a = 1;", ""),
    ("oneof o { int32 a = 1; int32 b = 2; }", "int32 a = 1; int32 b = 2;", "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
    ("oneof o { int32 a = 1; int32 b = 2; }", "oneof o { int32 a = 1; } int32 b = 2;", "FIELD_MOVED_TO_EXISTING_ONEOF"),
    ("oneof o { int32 a = 1; }", "oneof o { int32 a = 1; int32 b = 2; }", "ONEOF_FIELD_REMOVED"),
    ("map<string, int64> a = 1;", "map<string, int32> a = 1;", ""),
    ("map<string, string> a = 1;", "map<string, int32> a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
    ("M a = 1;", "M a = 1;", ""),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "trouble"), TABLE)
def test_what_is_on_the_wire_is_read(reader: str, writer: str, trouble: str) -> None:
    new, old = (read(f'syntax = "proto3"; message M {{ {body} }}') for body in (reader, writer))
    found = problems(new, old)
    assert bool(found) == bool(trouble), found
    assert all(trouble in one for one in found)


def test_required_fields_neither_come_nor_go() -> None:
    plain = read("message M { optional int32 a = 1; }")
    strict = read("message M { optional int32 a = 1; required int32 b = 2; }")
    assert "REQUIRED_FIELD_ADDED" in problems(strict, plain)[0]
    assert "REQUIRED_FIELD_REMOVED" in problems(plain, strict)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "nothing"),
        ('syntax = "proto3"; message {}', "name"),
        ('syntax = "proto4"; message M {}', "proto4"),
        ('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "number of a"),
        ('syntax = "proto3"; message M { Missing a = 1; }', "Missing"),
        ('syntax = "proto3"; message M { int32 a = 0; }', "number of a field"),
        ('syntax = "proto3"; import "mine.proto"; message M {}', "mine.proto"),
        ('syntax = "proto3"; message M { map<double, string> a = 1; }', "key of a map"),
        ('syntax = "proto3"; message M { int32 a = 1 }', 'expected ";"'),
        ('syntax = "proto3"; message M { int32 a = 1; ', "end of the file"),
        ('syntax = "proto3"; enum E {}', "no values"),
        ("message " + "M { message " * 100 + "M {}" + "}" * 100, "deep"),
        ("\x00", "no place"),
    ],
)
def test_a_bad_file_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(BadSchema, match=words):
        read(text)
