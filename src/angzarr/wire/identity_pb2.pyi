from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UUID(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class Cover(_message.Message):
    __slots__ = ("root", "domain", "correlation_id", "edition")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    EDITION_FIELD_NUMBER: _ClassVar[int]
    root: UUID
    domain: str
    correlation_id: str
    edition: Edition
    def __init__(self, root: _Optional[_Union[UUID, _Mapping]] = ..., domain: _Optional[str] = ..., correlation_id: _Optional[str] = ..., edition: _Optional[_Union[Edition, _Mapping]] = ...) -> None: ...

class Edition(_message.Message):
    __slots__ = ("name", "divergences")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIVERGENCES_FIELD_NUMBER: _ClassVar[int]
    name: str
    divergences: _containers.RepeatedCompositeFieldContainer[DomainDivergence]
    def __init__(self, name: _Optional[str] = ..., divergences: _Optional[_Iterable[_Union[DomainDivergence, _Mapping]]] = ...) -> None: ...

class DomainDivergence(_message.Message):
    __slots__ = ("domain", "sequence")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    domain: str
    sequence: int
    def __init__(self, domain: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...
