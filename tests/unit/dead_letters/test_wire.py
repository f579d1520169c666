from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

CHECKOUT = Path(__file__).resolve().parents[3]
PROTOS = sorted((CHECKOUT / "proto" / "angzarr" / "wire").glob("*.proto"))


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_the_generated_code_is_that_of_the_proto_file(proto: Path, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc")
    well_known = Path(protoc.__file__).parent / "_proto"
    output = tmp_path / "set"
    arguments = [f"-I{CHECKOUT / 'proto'}", f"-I{well_known}", f"--descriptor_set_out={output}"]
    assert protoc.main(["protoc", *arguments, str(proto)]) == 0
    [written] = FileDescriptorSet.FromString(output.read_bytes()).file
    generated = FileDescriptorProto()
    import_module(f"angzarr.wire.{proto.stem}_pb2").DESCRIPTOR.CopyToProto(generated)
    for one in (written, generated):
        _drop_json_names(one.message_type)
    assert generated == written


def _drop_json_names(messages: object) -> None:
    for message in messages:  # type: ignore[attr-defined]
        for field in message.field:
            field.ClearField("json_name")
        _drop_json_names(message.nested_type)


def test_there_are_proto_files_to_compare() -> None:
    assert len(PROTOS) == 6
