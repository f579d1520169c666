import datetime

from angzarr.wire import identity_pb2 as _identity_pb2
from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MergeStrategy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MERGE_COMMUTATIVE: _ClassVar[MergeStrategy]
    MERGE_STRICT: _ClassVar[MergeStrategy]
    MERGE_AGGREGATE_HANDLES: _ClassVar[MergeStrategy]
    MERGE_MANUAL: _ClassVar[MergeStrategy]

class SnapshotRetention(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETENTION_DEFAULT: _ClassVar[SnapshotRetention]
    RETENTION_PERSIST: _ClassVar[SnapshotRetention]
    RETENTION_TRANSIENT: _ClassVar[SnapshotRetention]

class PayloadStorageType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAYLOAD_STORAGE_TYPE_UNSPECIFIED: _ClassVar[PayloadStorageType]
    PAYLOAD_STORAGE_TYPE_FILESYSTEM: _ClassVar[PayloadStorageType]
    PAYLOAD_STORAGE_TYPE_GCS: _ClassVar[PayloadStorageType]
    PAYLOAD_STORAGE_TYPE_S3: _ClassVar[PayloadStorageType]
MERGE_COMMUTATIVE: MergeStrategy
MERGE_STRICT: MergeStrategy
MERGE_AGGREGATE_HANDLES: MergeStrategy
MERGE_MANUAL: MergeStrategy
RETENTION_DEFAULT: SnapshotRetention
RETENTION_PERSIST: SnapshotRetention
RETENTION_TRANSIENT: SnapshotRetention
PAYLOAD_STORAGE_TYPE_UNSPECIFIED: PayloadStorageType
PAYLOAD_STORAGE_TYPE_FILESYSTEM: PayloadStorageType
PAYLOAD_STORAGE_TYPE_GCS: PayloadStorageType
PAYLOAD_STORAGE_TYPE_S3: PayloadStorageType

class PageHeader(_message.Message):
    __slots__ = ("sequence", "external_deferred", "angzarr_deferred")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_DEFERRED_FIELD_NUMBER: _ClassVar[int]
    ANGZARR_DEFERRED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    external_deferred: ExternalDeferredSequence
    angzarr_deferred: AngzarrDeferredSequence
    def __init__(self, sequence: _Optional[int] = ..., external_deferred: _Optional[_Union[ExternalDeferredSequence, _Mapping]] = ..., angzarr_deferred: _Optional[_Union[AngzarrDeferredSequence, _Mapping]] = ...) -> None: ...

class ExternalDeferredSequence(_message.Message):
    __slots__ = ("external_id", "description")
    EXTERNAL_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    external_id: str
    description: str
    def __init__(self, external_id: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class AngzarrDeferredSequence(_message.Message):
    __slots__ = ("source", "source_seq")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEQ_FIELD_NUMBER: _ClassVar[int]
    source: _identity_pb2.Cover
    source_seq: int
    def __init__(self, source: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., source_seq: _Optional[int] = ...) -> None: ...

class PayloadReference(_message.Message):
    __slots__ = ("storage_type", "uri", "content_hash", "original_size", "stored_at")
    STORAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STORED_AT_FIELD_NUMBER: _ClassVar[int]
    storage_type: PayloadStorageType
    uri: str
    content_hash: bytes
    original_size: int
    stored_at: _timestamp_pb2.Timestamp
    def __init__(self, storage_type: _Optional[_Union[PayloadStorageType, str]] = ..., uri: _Optional[str] = ..., content_hash: _Optional[bytes] = ..., original_size: _Optional[int] = ..., stored_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class EventPage(_message.Message):
    __slots__ = ("header", "created_at", "event", "external", "no_commit", "cascade_id")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    NO_COMMIT_FIELD_NUMBER: _ClassVar[int]
    CASCADE_ID_FIELD_NUMBER: _ClassVar[int]
    header: PageHeader
    created_at: _timestamp_pb2.Timestamp
    event: _any_pb2.Any
    external: PayloadReference
    no_commit: bool
    cascade_id: str
    def __init__(self, header: _Optional[_Union[PageHeader, _Mapping]] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., external: _Optional[_Union[PayloadReference, _Mapping]] = ..., no_commit: _Optional[bool] = ..., cascade_id: _Optional[str] = ...) -> None: ...

class Snapshot(_message.Message):
    __slots__ = ("sequence", "state", "retention")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    state: _any_pb2.Any
    retention: SnapshotRetention
    def __init__(self, sequence: _Optional[int] = ..., state: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., retention: _Optional[_Union[SnapshotRetention, str]] = ...) -> None: ...

class EventBook(_message.Message):
    __slots__ = ("cover", "snapshot", "pages", "next_sequence")
    COVER_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    cover: _identity_pb2.Cover
    snapshot: Snapshot
    pages: _containers.RepeatedCompositeFieldContainer[EventPage]
    next_sequence: int
    def __init__(self, cover: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., snapshot: _Optional[_Union[Snapshot, _Mapping]] = ..., pages: _Optional[_Iterable[_Union[EventPage, _Mapping]]] = ..., next_sequence: _Optional[int] = ...) -> None: ...

class CommandPage(_message.Message):
    __slots__ = ("header", "merge_strategy", "command", "external")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    MERGE_STRATEGY_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_FIELD_NUMBER: _ClassVar[int]
    header: PageHeader
    merge_strategy: MergeStrategy
    command: _any_pb2.Any
    external: PayloadReference
    def __init__(self, header: _Optional[_Union[PageHeader, _Mapping]] = ..., merge_strategy: _Optional[_Union[MergeStrategy, str]] = ..., command: _Optional[_Union[_any_pb2.Any, _Mapping]] = ..., external: _Optional[_Union[PayloadReference, _Mapping]] = ...) -> None: ...

class CommandBook(_message.Message):
    __slots__ = ("cover", "pages")
    COVER_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    cover: _identity_pb2.Cover
    pages: _containers.RepeatedCompositeFieldContainer[CommandPage]
    def __init__(self, cover: _Optional[_Union[_identity_pb2.Cover, _Mapping]] = ..., pages: _Optional[_Iterable[_Union[CommandPage, _Mapping]]] = ...) -> None: ...
