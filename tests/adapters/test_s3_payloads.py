from __future__ import annotations

import socket
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any

import boto3
import pytest

from angzarr.adapters.s3.payloads import S3PayloadStore
from angzarr.adapters.sqs.dead_letters import SqsDeadLetterQueue
from angzarr.adapters.sqs.letter_sender import LIMIT
from angzarr.dead_letters.offloading_queue import OffloadingQueue, without_body
from angzarr.errors import PayloadGone, PayloadStoreUnavailable
from angzarr.payloads.store import PayloadReference, PayloadStore, StorageKind
from contracts.dead_letters import a_letter, take
from contracts.payloads import BODY, SharedPayloadStoreContract
from tcp_proxy import LossyProxy


def key_of(reference: PayloadReference) -> str:
    return reference.uri.removeprefix("s3://").partition("/")[2]


class TestS3PayloadStore(SharedPayloadStoreContract):
    kind = StorageKind.S3

    @pytest.fixture(autouse=True)
    def backend(self, s3_endpoint: str) -> None:
        self.endpoint = s3_endpoint
        self.bucket = f"angzarr-{uuid.uuid4().hex[:10]}"
        self.s3: Any = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
        self.s3.create_bucket(Bucket=self.bucket)

    def open(self, prefix: str = "dlq/bodies/", **changes: Any) -> PayloadStore:
        settings = {"region": "us-east-1", "endpoint_url": self.endpoint, **changes}
        return S3PayloadStore(self.bucket, prefix, **settings)

    def remove(self, reference: PayloadReference) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=key_of(reference))

    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key_of(reference), Body=payload)

    def test_a_payload_lies_below_its_prefix_under_its_hash(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        sha256 = reference.sha256
        key = f"dlq/bodies/{sha256[:2]}/{sha256[2:]}"
        assert reference.uri == f"s3://{self.bucket}/{key}"
        [found] = self.s3.list_objects_v2(Bucket=self.bucket)["Contents"]
        assert (found["Key"], found["Size"]) == (key, len(BODY))
        plain = self.open(prefix="").put(BODY)
        assert plain.uri == f"s3://{self.bucket}/{sha256[:2]}/{sha256[2:]}"

    def test_what_arrives_damaged_is_refused_by_s3(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("angzarr.adapters.s3.payloads.sha256_of", lambda _payload: "ab" * 32)
        with pytest.raises(PayloadStoreUnavailable, match="does not take payloads"):
            store.put(BODY)
        assert "Contents" not in self.s3.list_objects_v2(Bucket=self.bucket)

    def test_another_prefix_and_another_bucket_are_not_read(self, store: PayloadStore) -> None:
        for reference in (self.open(prefix="other").put(BODY), self.open(prefix="").put(BODY)):
            with pytest.raises(PayloadGone, match="not in the payload store"):
                store.fetch(reference)

    def test_a_bucket_that_is_not_there_is_no_payload_gone(self, store: PayloadStore) -> None:
        reference = store.put(BODY)
        self.remove(reference)
        self.s3.delete_bucket(Bucket=self.bucket)
        with pytest.raises(PayloadStoreUnavailable, match="does not give payloads: NoSuchBucket"):
            store.fetch(reference)
        with pytest.raises(PayloadStoreUnavailable, match="does not take payloads: NoSuchBucket"):
            store.put(BODY)

    @pytest.mark.parametrize("listening", [True, False])
    def test_a_server_that_is_away_is_told_without_secrets(self, *, listening: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            if not listening:
                listener.close()
            store = self.open(
                endpoint_url=f"http://127.0.0.1:{port}",
                timeout=timedelta(milliseconds=300),
                options={"aws_access_key_id": "s3cret", "aws_secret_access_key": "s3cret"},
            )
            with pytest.raises(PayloadStoreUnavailable, match=r"no answer \(") as caught:
                store.put(BODY)
        assert "s3cret" not in str(caught.value)
        store.close()

    def test_a_connection_that_is_cut_is_away_and_works_again_once_it_is_back(self) -> None:
        host, port = self.endpoint.removeprefix("http://").split(":")
        with LossyProxy(host, int(port)) as proxy:
            store = self.open(endpoint_url=f"http://127.0.0.1:{proxy.port}")
            reference = store.put(BODY)
            proxy.cut()
            with pytest.raises(PayloadStoreUnavailable):
                store.fetch(reference)
            proxy.mend()
            assert store.fetch(reference) == BODY
            store.close()

    def test_missing_credentials_are_told_with_the_cure(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        with pytest.raises(PayloadStoreUnavailable, match="set AWS_ACCESS_KEY_ID"):
            self.open().put(BODY)

    def test_more_objects_than_one_page_has_are_found_and_no_others(
        self, store: PayloadStore
    ) -> None:
        reference = store.put(BODY)
        sha256 = reference.sha256
        for number in range(1005):
            key = f"dlq/bodies/{sha256[:2]}/{sha256[2:]}-{number:016x}"
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"x")
        for key in ("dlq/bodies/notes.txt", "other/ab/x", "dlq/bodies"):
            self.s3.put_object(Bucket=self.bucket, Key=key, Body=b"x")
        assert len({one.uri for one in store.find_all()}) == 1006

    def test_a_bucket_that_is_not_there_has_deleted_nothing(self, store: PayloadStore) -> None:
        uri = store.put(BODY).uri
        store.delete(uri)
        self.s3.delete_bucket(Bucket=self.bucket)
        with pytest.raises(PayloadStoreUnavailable, match="does not delete payloads: NoSuchBucket"):
            store.delete(uri)
        with pytest.raises(PayloadStoreUnavailable, match="does not list payloads: NoSuchBucket"):
            list(store.find_all())

    def test_a_letter_larger_than_sqs_takes_arrives_with_its_body_on_s3(
        self, store: PayloadStore
    ) -> None:
        sqs = SqsDeadLetterQueue(region="us-east-1", endpoint_url=self.endpoint)
        queue = OffloadingQueue(sqs, store)
        domain = f"t{uuid.uuid4().hex[:10]}"
        letter = a_letter(domain)
        large = letter.message.body + b" " * LIMIT
        too_large = a_letter(domain, message=replace(letter.message, body=large))
        assert queue.put([too_large, a_letter(domain, 1)]) == [None, None]
        taken = {one.letter.id: one.letter for one in take(queue, [domain], 2) if one.letter}
        received = taken[letter.id]
        assert received.payload is not None
        assert received == without_body(too_large, received.payload)
        assert store.fetch(received.payload) == large
        assert taken[f"{domain}-1"] == a_letter(domain, 1)
        queue.close()
