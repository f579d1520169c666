import datetime

from angzarr.wire import book_pb2 as _book_pb2
from angzarr.wire import identity_pb2 as _identity_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SequenceMismatchDetails(_message.Message):
    __slots__ = ("expected_sequence", "actual_sequence", "merge_strategy")
    EXPECTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MERGE_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    expected_sequence: int
    actual_sequence: int
    merge_strategy: _book_pb2.MergeStrategy
    def __init__(self, expected_sequence: _Optional[int] = ..., actual_sequence: _Optional[int] = ..., merge_strategy: _Optional[_Union[_book_pb2.MergeStrategy, str]] = ...) -> None: ...

class EventProcessingFailedDetails(_message.Message):
    __slots__ = ("error", "retry_count", "is_transient")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_TRANSIENT_FIELD_NUMBER: _ClassVar[int]
    error: str
    retry_count: int
    is_transient: bool
    def __init__(self, error: _Optional[str] = ..., retry_count: _Optional[int] = ..., is_transient: _Optional[bool] = ...) -> None: ...

class PayloadRetrievalFailedDetails(_message.Message):
    __slots__ = ("storage_type", "uri", "content_hash", "original_size", "error")
    STORAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    storage_type: _book_pb2.PayloadStorageType
    uri: str
    content_hash: bytes
    original_size: int
    error: str
    def __init__(self, storage_type: _Optional[_Union[_book_pb2.PayloadStorageType, str]] = ..., uri: _Optional[str] = ..., content_hash: _Optional[bytes] = ..., original_size: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class AngzarrDeadLetter(_message.Message):
    __slots__ = ("cover", "rejected_command", "rejected_events", "rejection_reason", "occurred_at", "metadata", "source_component", "source_component_type", "sequence_mismatch", "event_processing_failed", "payload_retrieval_failed")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COVER_FIELD_NUMBER: _ClassVar[int]
    REJECTED_COMMAND_FIELD_NUMBER: _ClassVar[int]
    REJECTED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    REJECTION_REASON_FIELD_NUMBER: _ClassVar[int]
    OCCURRED_AT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMPONENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMPONENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    EVENT_PROCESSING_FAILED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_RETRIEVAL_FAILED_FIELD_NUMBER: _ClassVar[int]
    cover: _identity_pb2.Cover
    rejected_command: _book_pb2.CommandBook
    rejected_events: _book_pb2.EventBook
    rejection_reason: str
    occurred_at: _timestamp_pb2.Timestamp
    metadata: _containers.ScalarMap[str, str]
    source_component: str
    source_component_type: str
    sequence_mismatch: SequenceMismatchDetails
    event_processing_failed: EventProcessingFailedDetails
    payload_retrieval_failed: PayloadRetrievalFailedDetails
    def __init__(self, cover: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., rejected_command: _Optional[_Union[_book_pb2.CommandBook, _Mapping]] = ..., rejected_events: _Optional[_Union[_book_pb2.EventBook, _Mapping]] = ..., rejection_reason: _Optional[str] = ..., occurred_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., source_component: _Optional[str] = ..., source_component_type: _Optional[str] = ..., sequence_mismatch: _Optional[_Union[SequenceMismatchDetails, _Mapping]] = ..., event_processing_failed: _Optional[_Union[EventProcessingFailedDetails, _Mapping]] = ..., payload_retrieval_failed: _Optional[_Union[PayloadRetrievalFailedDetails, _Mapping]] = ...) -> None: ...
