from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from angzarr.adapters.files.payloads import FilePayloadStore
from angzarr.errors import PayloadCorrupt, PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import PayloadReference, PayloadStore, StorageKind, sha256_of
from contracts.payloads import BODY, SharedPayloadStoreContract


def path_of(reference: PayloadReference) -> Path:
    return Path(unquote(urlsplit(reference.uri).path))


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class TestFilePayloadStore(SharedPayloadStoreContract):
    kind = StorageKind.FILESYSTEM

    @pytest.fixture(autouse=True)
    def backend(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "päy loads" / "here"

    def open(self) -> PayloadStore:
        return FilePayloadStore(self.folder)

    def remove(self, reference: PayloadReference) -> None:
        path_of(reference).unlink()

    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        path_of(reference).write_bytes(payload)

    def test_nobody_else_may_read_a_payload(self, store: PayloadStore) -> None:
        path = path_of(store.put(BODY))
        assert path.stat().st_mode & 0o777 == 0o600
        assert self.folder.stat().st_mode & 0o777 == 0o700
        assert path.parent.stat().st_mode & 0o777 == 0o700

    def test_a_payload_is_on_disk_with_its_name_before_it_counts(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        sync = os.fsync

        def record(handle: int) -> None:
            synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
            sync(handle)

        monkeypatch.setattr(os, "fsync", record)
        path = path_of(store.put(BODY))
        file, shard = synced[-2:]
        assert file.startswith(".unfinished-")
        assert shard == path.parent.name
        assert {"here", "päy loads"} <= set(synced), "folders that were made"

    def test_a_full_disk_is_told_and_leaves_nothing_behind(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_handle: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(PayloadStoreUnavailable, match="written: No space left on device"):
                store.put(BODY)
        assert files_in(self.folder) == []
        assert store.fetch(store.put(BODY)) == BODY

    def test_a_full_disk_leaves_what_was_there_before(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reference = store.put(BODY)
        monkeypatch.setattr(os, "fsync", lambda _handle: os.fstat(-1))
        with pytest.raises(PayloadStoreUnavailable):
            store.put(BODY)
        assert store.fetch(reference) == BODY

    def test_who_is_killed_while_writing_leaves_no_half_payload(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child = os.fork()
        if not child:
            os.fsync = lambda _handle: os.kill(os.getpid(), signal.SIGKILL)
            store.put(BODY)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert sha256_of(BODY)[2:] not in {path.name for path in files_in(self.folder)}
        assert store.fetch(store.put(BODY)) == BODY

    def test_a_folder_that_is_not_there_is_away_and_its_payloads_are_not_gone(
        self, store: PayloadStore
    ) -> None:
        reference = store.put(BODY)
        self.folder.rename(self.folder.with_name("unmounted"))
        with pytest.raises(PayloadStoreUnavailable, match="cannot be read"):
            store.fetch(reference)

    def test_a_folder_that_cannot_be_made_is_away(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        store = FilePayloadStore(tmp_path / "file" / "store")
        with pytest.raises(PayloadStoreUnavailable, match="cannot be written: File exists"):
            store.put(BODY)

    def test_a_payload_of_another_folder_is_not_read(
        self, store: PayloadStore, tmp_path: Path
    ) -> None:
        elsewhere = FilePayloadStore(tmp_path / "elsewhere").put(BODY)
        with pytest.raises(PayloadGone, match=r"elsewhere/.* not in the payload store"):
            store.fetch(elsewhere)
        secret = tmp_path / "secret"
        secret.write_bytes(BODY)
        with pytest.raises(PayloadGone):
            store.fetch(replace(elsewhere, uri=secret.as_uri()))


def test_what_else_lies_in_the_folder_is_neither_found_nor_deleted(tmp_path: Path) -> None:
    store = FilePayloadStore(tmp_path / "bodies")
    reference = store.put(BODY)
    shard = path_of(reference).parent
    others = [shard / ".unfinished-1", shard / "notes.txt", tmp_path / "bodies" / ".lock"]
    for other in others:
        other.write_text("x")
    (tmp_path / "bodies" / "ab").mkdir(exist_ok=True)
    assert [one.uri for one in store.find_all()] == [reference.uri]
    store.delete(reference.uri)
    assert list(store.find_all()) == []
    assert all(other.exists() for other in others)


def test_a_folder_that_is_not_mounted_has_deleted_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "bodies"
    store = FilePayloadStore(folder)
    reference = store.put(BODY)
    folder.rename(tmp_path / "unmounted")
    with pytest.raises(PayloadStoreUnavailable, match="cannot be written"):
        store.delete(reference.uri)


def _link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def _link_to_a_folder(path: Path, secret: Path) -> None:
    path.symlink_to(secret.parent)


def _pipe(path: Path, _secret: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path, _secret: Path) -> None:
    path.mkdir()


def _socket(path: Path, _secret: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


@pytest.mark.parametrize("put_there", [_link, _link_to_a_folder, _pipe, _folder, _socket])
def test_what_is_not_a_file_is_never_read_and_nothing_waits_for_it(
    put_there: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    store = FilePayloadStore(tmp_path / "bodies")
    reference = store.put(BODY)
    path = path_of(reference)
    secret = tmp_path / "outside" / "secret"
    secret.parent.mkdir()
    path.rename(secret)
    put_there(path, secret)
    with pytest.raises(PayloadCorrupt, match="is corrupt: links are not followed there"):
        store.fetch(reference)
    assert list(store.find_all()) == []
    store.delete(reference.uri)
    assert secret.read_bytes() == BODY


@pytest.mark.parametrize("put_there", [_link, _pipe, _socket])
def test_what_stands_where_a_folder_of_the_store_should_be_is_named(
    put_there: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    store = FilePayloadStore(tmp_path / "bodies")
    path = path_of(store.put(BODY))
    shard = path.parent
    path.unlink()
    shard.rmdir()
    put_there(shard, tmp_path / "nothing")  # a link leads nowhere
    with pytest.raises(PayloadStoreUnavailable, match=f"written: {shard} is no folder; remove it"):
        store.put(BODY)


def test_a_link_among_the_folders_of_the_store_leads_nowhere(tmp_path: Path) -> None:
    store = FilePayloadStore(tmp_path / "bodies")
    reference = store.put(BODY)
    shard = path_of(reference).parent
    outside = shard.rename(tmp_path / "outside")
    shard.symlink_to(outside)
    with pytest.raises(PayloadCorrupt, match="links are not followed there"):
        store.fetch(reference)
    with pytest.raises(PayloadStoreUnavailable, match=f"written: {shard} is no folder; remove it"):
        store.put(BODY)
    assert list(store.find_all()) == []
    store.delete(reference.uri)
    assert (outside / path_of(reference).name).read_bytes() == BODY


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "bodies").symlink_to(tmp_path / "disk")
    store = FilePayloadStore(tmp_path / "bodies")
    reference = store.put(BODY)
    assert store.fetch(reference) == BODY
    assert [one.uri for one in store.find_all()] == [reference.uri]
    store.delete(reference.uri)
    assert files_in(tmp_path / "disk") == []
