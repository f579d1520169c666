import datetime

from angzarr.wire import book_pb2 as _book_pb2
from angzarr.wire import identity_pb2 as _identity_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Notification(_message.Message):
    __slots__ = ("cover", "payload", "sent_at", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COVER_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    cover: _identity_pb2.Cover
    payload: _any_pb2.Any
    sent_at: _timestamp_pb2.Timestamp
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, cover: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., payload: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., sent_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RejectionNotification(_message.Message):
    __slots__ = ("rejected_command", "rejection_reason")
    REJECTED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_FIELD_NUMBER: _ClassVar[int]
    rejected_command: _book_pb2.CommandBook
    rejection_reason: str
    def __init__(self, rejected_command: _Optional[_Union[_book_pb2.CommandBook, _Mapping]] = ..., rejection_reason: _Optional[str] = ...) -> None: ...

class RevokeEventCommand(_message.Message):
    __slots__ = ("triggering_event_sequence", "saga_name", "rejection_reason", "rejected_command")
    TRIGGERING_EVENT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAGA_NAME_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_FIELD_NUMBER: _ClassVar[int]
    REJECTED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    triggering_event_sequence: int
    saga_name: str
    rejection_reason: str
    rejected_command: _book_pb2.CommandBook
    def __init__(self, triggering_event_sequence: _Optional[int] = ..., saga_name: _Optional[str] = ..., rejection_reason: _Optional[str] = ..., rejected_command: _Optional[_Union[_book_pb2.CommandBook, _Mapping]] = ...) -> None: ...

class RevocationResponse(_message.Message):
    __slots__ = ("emit_system_revocation", "send_to_dead_letter_queue", "escalate", "abort", "reason")
    EMIT_SYSTEM_REVOCATION_FIELD_NUMBER: _ClassVar[int]
    SEND_TO_DEAD_LETTER_QUEUE_FIELD_NUMBER: _ClassVar[int]
    ESCALATE_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    emit_system_revocation: bool
    send_to_dead_letter_queue: bool
    escalate: bool
    abort: bool
    reason: str
    def __init__(self, emit_system_revocation: _Optional[bool] = ..., send_to_dead_letter_queue: _Optional[bool] = ..., escalate: _Optional[bool] = ..., abort: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class BusinessResponse(_message.Message):
    __slots__ = ("events", "revocation", "notification")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    REVOCATION_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    events: _book_pb2.EventBook
    revocation: RevocationResponse
    notification: Notification
    def __init__(self, events: _Optional[_Union[_book_pb2.EventBook, _Mapping]] = ..., revocation: _Optional[_Union[RevocationResponse, _Mapping]] = ..., notification: _Optional[_Union[Notification, _Mapping]] = ...) -> None: ...

class SagaCompensationFailed(_message.Message):
    __slots__ = ("triggering_aggregate", "triggering_event_sequence", "saga_name", "rejection_reason", "compensation_failure_reason", "rejected_command", "occurred_at")
    TRIGGERING_AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    TRIGGERING_EVENT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SAGA_NAME_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_FIELD_NUMBER: _ClassVar[int]
    COMPENSATION_FAILURE_REASON_FIELD_NUMBER: _ClassVar[int]
    REJECTED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    triggering_aggregate: _identity_pb2.Cover
    triggering_event_sequence: int
    saga_name: str
    rejection_reason: str
    compensation_failure_reason: str
    rejected_command: _book_pb2.CommandBook
    occurred_at: _timestamp_pb2.Timestamp
    def __init__(self, triggering_aggregate: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., triggering_event_sequence: _Optional[int] = ..., saga_name: _Optional[str] = ..., rejection_reason: _Optional[str] = ..., compensation_failure_reason: _Optional[str] = ..., rejected_command: _Optional[_Union[_book_pb2.CommandBook, _Mapping]] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
