from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

from angzarr.adapters.fsspec import payloads as adapter
from angzarr.adapters.fsspec.payloads import FsspecPayloadStore, check_scheme
from angzarr.adapters.zstd.codec import ZstdPacking
from angzarr.errors import PayloadElsewhere, PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.packed_store import PackedStore
from angzarr.payloads.store import PayloadReference, PayloadStore, StorageKind, sha256_of
from contracts.payloads import BODY, PayloadStoreContract, SharedPayloadStoreContract

MOST = 64 * 2**20


def path_of(reference: PayloadReference) -> str:
    return reference.uri.partition("://")[2]


class TestMemory(PayloadStoreContract):
    kind = StorageKind.UNSPECIFIED

    @pytest.fixture(autouse=True)
    def backend(self) -> None:
        self.root = f"angzarr-{uuid.uuid4().hex[:10]}/payloads"
        self.system: Any = fsspec.filesystem("memory")

    def open(self) -> PayloadStore:
        return FsspecPayloadStore("memory", self.root)

    def remove(self, reference: PayloadReference) -> None:
        self.system.rm_file(f"/{path_of(reference)}")

    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        self.system.pipe_file(f"/{path_of(reference)}", payload)

    def test_errors_of_the_file_system_are_absence_and_their_text_stays_inside(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reference = store.put(BODY)

        def fail(*_given: object, **_more: object) -> None:
            raise RuntimeError("token s3cret")

        for verb in ("pipe_file", "cat_file"):
            monkeypatch.setattr(type(self.system), verb, fail)
        for use in (lambda: store.put(BODY), lambda: store.fetch(reference)):
            with pytest.raises(PayloadStoreUnavailable, match="payloads: RuntimeError") as caught:
                use()
            assert "s3cret" not in str(caught.value)


class TestPackedMemory(TestMemory):
    """The contract holds for what is packed, too: a reference names what lies in the store."""

    def open(self) -> PayloadStore:
        zstd = ZstdPacking()
        return PackedStore(super().open(), most=MOST, packing=zstd, known={"zstd": zstd})


class TestLocal(SharedPayloadStoreContract):
    kind = StorageKind.FILESYSTEM

    @pytest.fixture(autouse=True)
    def backend(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "päy loads" / "here"

    def open(self) -> PayloadStore:
        return FsspecPayloadStore("file", str(self.folder))

    def remove(self, reference: PayloadReference) -> None:
        Path("/" + path_of(reference)).unlink()

    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        Path("/" + path_of(reference)).write_bytes(payload)

    def test_a_payload_that_could_not_be_written_leaves_nothing_behind(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(adapter.os, "fsync", full)
            with pytest.raises(PayloadStoreUnavailable, match="No space left on device"):
                store.put(BODY)
        assert [path for path in self.folder.rglob("*") if path.is_file()] == []
        assert store.fetch(store.put(BODY)) == BODY

    def test_half_a_payload_is_never_under_its_name(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[str] = []
        shard = self.folder / sha256_of(BODY)[:2]
        monkeypatch.setattr(
            adapter.os, "fsync", lambda _handle: seen.extend(one.name for one in shard.iterdir())
        )
        store.put(BODY)
        assert [name[:12] for name in seen] == [".unfinished-"]

    def test_a_folder_that_is_not_there_is_away_and_its_payloads_are_not_gone(
        self, store: PayloadStore
    ) -> None:
        reference = store.put(BODY)
        self.folder.rename(self.folder.with_name("unmounted"))
        with pytest.raises(PayloadStoreUnavailable, match="does not give payloads"):
            store.fetch(reference)

    def test_a_payload_of_another_folder_is_not_read(
        self, store: PayloadStore, tmp_path: Path
    ) -> None:
        elsewhere = FsspecPayloadStore("file", str(tmp_path / "elsewhere")).put(BODY)
        with pytest.raises(PayloadElsewhere):
            store.fetch(elsewhere)


def test_a_deleted_bucket_is_no_payload_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an object store: a bucket that is missing says nothing of what was in it."""
    store = FsspecPayloadStore("memory", f"angzarr-{uuid.uuid4().hex[:10]}")
    reference = store.put(BODY)
    fsspec.filesystem("memory").rm_file(f"/{path_of(reference)}")
    with pytest.raises(PayloadGone):
        store.fetch(reference)
    monkeypatch.setattr(store, "_has_root", lambda _system: False)
    with pytest.raises(PayloadStoreUnavailable):
        store.fetch(reference)


def test_an_empty_payload_is_read_where_no_range_of_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Google's buckets refuse each range of an empty object (416)."""
    store = FsspecPayloadStore("memory", f"angzarr-{uuid.uuid4().hex[:10]}")
    reference = store.put(b"")

    def refuse(*_given: object, **_more: object) -> None:
        raise ValueError("the requested range cannot be satisfied")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "cat_file", refuse)
    assert store.fetch(reference) == b""


def test_a_scheme_that_fsspec_does_not_know_is_refused() -> None:
    check_scheme("memory")
    with pytest.raises(ValueError, match="Protocol not known"):
        check_scheme("carrier-pigeon")
