import datetime

from angzarr.wire import book_pb2 as _book_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskMessage(_message.Message):
    __slots__ = ("task", "args", "kwargs", "embed", "raw_body", "content_type", "content_encoding", "headers", "queue", "exchange", "routing_key", "priority", "properties", "event", "payload", "payload_encoding", "unpacked_size", "unpacked_hash")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    KWARGS_FIELD_NUMBER: _ClassVar[int]
    EMBED_FIELD_NUMBER: _ClassVar[int]
    RAW_BODY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_ENCODING_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_ENCODING_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_SIZE_FIELD_NUMBER: _ClassVar[int]
    UNPACKED_HASH_FIELD_NUMBER: _ClassVar[int]
    task: str
    args: str
    kwargs: str
    embed: str
    raw_body: bytes
    content_type: str
    content_encoding: str
    headers: str
    queue: str
    exchange: str
    routing_key: str
    priority: int
    properties: str
    event: EventFacts
    payload: _book_pb2.PayloadReference
    payload_encoding: str
    unpacked_size: int
    unpacked_hash: bytes
    def __init__(self, task: _Optional[str] = ..., args: _Optional[str] = ..., kwargs: _Optional[str] = ..., embed: _Optional[str] = ..., raw_body: _Optional[bytes] = ..., content_type: _Optional[str] = ..., content_encoding: _Optional[str] = ..., headers: _Optional[str] = ..., queue: _Optional[str] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., priority: _Optional[int] = ..., properties: _Optional[str] = ..., event: _Optional[_Union[EventFacts, _Mapping]] = ..., payload: _Optional[_Union[_book_pb2.PayloadReference, _Mapping]] = ..., payload_encoding: _Optional[str] = ..., unpacked_size: _Optional[int] = ..., unpacked_hash: _Optional[bytes] = ...) -> None: ...

class EventFacts(_message.Message):
    __slots__ = ("id", "type", "data", "domain", "root", "edition", "sequence", "correlation_id", "causation_id", "tenant_id", "priority", "config_pins", "occurred_at", "traceparent", "depth")
    class ConfigPinsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    ROOT_FIELD_NUMBER: _ClassVar[int]
    EDITION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSATION_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_PINS_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    id: str
    type: str
    data: str
    domain: str
    root: str
    edition: str
    sequence: int
    correlation_id: str
    causation_id: str
    tenant_id: str
    priority: str
    config_pins: _containers.ScalarMap[str, str]
    occurred_at: _timestamp_pb2.Timestamp
    traceparent: str
    depth: int
    def __init__(self, id: _Optional[str] = ..., type: _Optional[str] = ..., data: _Optional[str] = ..., domain: _Optional[str] = ..., root: _Optional[str] = ..., edition: _Optional[str] = ..., sequence: _Optional[int] = ..., correlation_id: _Optional[str] = ..., causation_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., priority: _Optional[str] = ..., config_pins: _Optional[_Mapping[str, str]] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., traceparent: _Optional[str] = ..., depth: _Optional[int] = ...) -> None: ...

class JsonMessage(_message.Message):
    __slots__ = ("type", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    data: str
    def __init__(self, type: _Optional[str] = ..., data: _Optional[str] = ...) -> None: ...
