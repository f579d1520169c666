"""What every payload store must do, wherever it keeps them."""

from __future__ import annotations

import multiprocessing
import threading
from abc import ABC, abstractmethod
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from angzarr.adapters.cryptography.xaes import XaesCipher
from angzarr.errors import PayloadCorrupt, PayloadElsewhere, PayloadGone
from angzarr.payloads.body_sealer import BodyKeys, BodySealer
from angzarr.payloads.packed_store import PackedStore
from angzarr.payloads.store import (
    SEALED_ENCODING,
    PayloadReference,
    PayloadStore,
    StorageKind,
    sha256_of,
)

BODY = b'[[{"order_id": "\xc3\xb6"}], {}, {}]\x00\xff'

#: What stands behind the address of a payload that was registered.
GENERATION = "-0123456789abcdef"


class PayloadStoreContract(ABC):
    #: What its references say of it.
    kind: StorageKind

    @abstractmethod
    def open(self) -> PayloadStore:
        """Open one more client of the store of this test, which is empty."""

    @abstractmethod
    def remove(self, reference: PayloadReference) -> None:
        """Delete what *reference* names, as a lifecycle rule would."""

    @abstractmethod
    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        """Put *payload* where *reference* says another is."""

    @pytest.fixture
    def store(self, backend: Any) -> PayloadStore:
        return self.open()

    def test_a_payload_is_fetched_as_it_was_put(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        assert store.fetch(reference) == BODY
        assert (reference.size, reference.sha256) == (len(BODY), sha256_of(BODY))
        assert reference.kind is self.kind
        assert reference.stored_at is not None
        assert abs(datetime.now(UTC) - reference.stored_at) < timedelta(minutes=1)

    def test_a_payload_of_any_size_is_kept(self, store: PayloadStore) -> None:
        for payload in (b"", b"x", bytes(range(251)) * 12_000):
            assert store.fetch(store.put(payload)) == payload

    def test_the_same_bytes_have_one_place_and_others_another(self, store: PayloadStore) -> None:
        first, again, other = store.put(BODY), store.put(BODY), store.put(BODY + b"!")
        assert (first.uri, first.sha256) == (again.uri, again.sha256)
        assert other.uri != first.uri
        assert store.fetch(first) == store.fetch(again) == BODY

    def test_a_payload_is_fetched_through_another_client(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        store.close()
        assert self.open().fetch(reference) == BODY

    def test_a_store_that_was_closed_opens_itself_again(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        store.close()
        store.close()
        assert store.fetch(reference) == BODY

    def test_a_payload_that_was_deleted_is_gone(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        self.remove(reference)
        with pytest.raises(PayloadGone, match="is gone"):
            store.fetch(reference)

    def test_a_payload_that_was_deleted_is_there_again_once_it_is_put_again(
        self, store: PayloadStore
    ) -> None:
        reference = store.put(BODY)
        self.remove(reference)
        store.put(BODY)
        assert store.fetch(reference) == BODY

    def test_what_is_not_the_payload_is_never_given_for_it(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        for other in (b"", BODY[:-1], BODY + b"!", BODY[:-1] + b"!"):
            self.overwrite(reference, other)
            with pytest.raises(PayloadCorrupt, match="is corrupt"):
                store.fetch(reference)

    def test_putting_again_mends_a_payload_that_was_damaged(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        self.overwrite(reference, b"damaged")
        store.put(BODY)
        assert store.fetch(reference) == BODY

    def test_a_reference_with_another_size_is_refused(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        for size in (0, len(BODY) - 1, len(BODY) + 1, 2**63):
            with pytest.raises(PayloadCorrupt):
                store.fetch(replace(reference, size=size))

    def test_a_hostile_reference_leads_nowhere(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        uri = reference.uri
        hostile = [
            f"{uri}/../../etc/passwd",
            uri.replace(":", ":/"),
            uri[:-1],
            "",
            "file:///etc/passwd",
            "s3://another-bucket/secret",
            "http://169.254.169.254/latest/meta-data",
            "\x1b[2J\ud800",
        ]
        for one in hostile:
            with pytest.raises(PayloadGone, match="not in the payload store") as caught:
                store.fetch(replace(reference, uri=one))
            assert "\x1b" not in str(caught.value)

    def test_a_hash_that_is_no_sha256_leads_nowhere(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        for sha256 in ("", "ff", "0" * 63, "0" * 65):
            uri = reference.uri.replace(reference.sha256[2:], sha256[2:])
            for one in (reference.uri, uri):
                with pytest.raises(PayloadGone):
                    store.fetch(replace(reference, sha256=sha256, uri=one))

    def test_a_payload_may_have_a_generation_which_is_a_place_of_its_own(
        self, store: PayloadStore
    ) -> None:
        plain, asked = store.put(BODY), list[tuple[str, int]]()

        def name(address: str, size: int) -> str:
            asked.append((address, size))
            return address + GENERATION

        named = store.put(BODY, name)
        assert asked == [(plain.uri, len(BODY))]
        assert (named.uri, named.sha256) == (plain.uri + GENERATION, plain.sha256)
        self.overwrite(plain, b"another")
        assert store.fetch(named) == BODY
        assert store.is_here(named.uri)
        self.remove(named)
        with pytest.raises(PayloadGone, match="is gone"):
            store.fetch(named)

    def test_nothing_is_written_before_its_name_is_known_or_under_another(
        self, store: PayloadStore
    ) -> None:
        def refuse(_address: str, _size: int) -> str:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.put(BODY, refuse)
        for other in ("file:///etc/passwd", "../x", "s3://another-bucket/secret", ""):
            with pytest.raises(PayloadElsewhere):
                store.put(BODY, lambda _address, _size, other=other: other)
        kept = store.put(b"something")
        assert [one.uri for one in store.find_all()] == [kept.uri]

    def test_a_payload_is_deleted_once_and_another_time_without_harm(
        self, store: PayloadStore
    ) -> None:
        kept, gone = store.put(BODY), store.put(BODY, lambda address, _size: address + GENERATION)
        store.delete(gone.uri)
        store.delete(gone.uri)
        with pytest.raises(PayloadGone, match="is gone"):
            store.fetch(gone)
        assert store.fetch(kept) == BODY
        store.delete(kept.uri)
        assert list(store.find_all()) == []
        assert store.fetch(store.put(BODY)) == BODY

    def test_nothing_outside_the_store_is_deleted(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        uri = reference.uri
        hostile = [
            f"{uri}/../../etc/passwd", f"{uri}/", uri[:-1], f"{uri}-", f"{uri}-xyz", "", "/",
            uri.rpartition("/")[0], uri.replace(":", ":/"), f"{uri}?versionId=1", f"{uri}\n",
            "file:///etc/passwd", "s3://another-bucket/secret", "\x1b[2J\ud800",
            f"{uri}{GENERATION}{GENERATION}", str(store),
        ]  # fmt: skip
        for one in hostile:
            assert not store.is_here(one)
            with pytest.raises(PayloadElsewhere) as caught:
                store.delete(one)
            assert "\x1b" not in str(caught.value)
        assert store.fetch(reference) == BODY

    def test_all_payloads_are_found_with_size_and_age(self, store: PayloadStore) -> None:
        began = datetime.now(UTC)
        uris = {store.put(b"%d" % number).uri: len(b"%d" % number) for number in range(12)}
        named = store.put(BODY, lambda address, _size: address + GENERATION)
        uris[named.uri] = named.size
        found = list(store.find_all())
        assert {one.uri: one.size for one in found} == uris
        assert len(found) == len(uris)
        for one in found:
            assert one.at is None or abs(one.at - began) < timedelta(minutes=5)

    def test_an_empty_store_has_no_payloads(self, store: PayloadStore) -> None:
        store.delete(store.put(BODY).uri)
        assert list(store.find_all()) == []

    def test_an_encrypted_body_is_stored_as_it_is_and_opened_for_its_event(
        self, store: PayloadStore
    ) -> None:
        keys = BodyKeys(keys={"k1": b"k" * 32, "k2": b"j" * 32}, current="k1")
        sealer = BodySealer(keys=keys, cipher=XaesCipher())
        packed = PackedStore(store, most=10, known={})
        for key in keys.keys:
            place = packed.put(sealer.seal(BODY, "e1", key))
            reference = replace(place, encoding=SEALED_ENCODING, unpacked_size=len(BODY))
            found = packed.fetch(reference)
            assert BODY not in found
            assert sealer.open(found, "e1", len(BODY), key) == BODY
            with pytest.raises(PayloadCorrupt, match="another event"):
                sealer.open(found, "e2", len(BODY), key)
            self.overwrite(reference, found[:-1] + bytes([found[-1] ^ 1]))
            with pytest.raises(PayloadCorrupt, match="is corrupt"):
                packed.fetch(reference)

    def test_many_threads_may_put_and_fetch_the_same_at_once(self, store: PayloadStore) -> None:
        fetched: list[bytes] = []

        def use(number: int) -> None:
            payload = BODY * (1 + number % 2)
            fetched.append(store.fetch(store.put(payload))[: len(BODY)])

        threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert fetched == [BODY] * 8


class SharedPayloadStoreContract(PayloadStoreContract):
    """What a store must do besides that other processes share."""

    def test_a_forked_child_shares_no_connection(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        fork = multiprocessing.get_context("fork")
        answers = fork.SimpleQueue()
        child = fork.Process(
            target=lambda: answers.put((store.fetch(reference), store.put(b"child's")))
        )
        child.start()
        child.join(60)
        body, put = answers.get()
        assert body == BODY
        assert store.fetch(put) == b"child's"
        assert store.fetch(reference) == BODY
