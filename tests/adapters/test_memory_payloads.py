from __future__ import annotations

import pytest

from angzarr.adapters.memory.payloads import MemoryPayloadStore
from angzarr.payloads.store import PayloadReference, PayloadStore, StorageKind
from contracts.payloads import PayloadStoreContract


class TestMemoryPayloadStore(PayloadStoreContract):
    kind = StorageKind.UNSPECIFIED

    @pytest.fixture(autouse=True)
    def backend(self) -> None:
        self.only = MemoryPayloadStore()

    def open(self) -> PayloadStore:
        return self.only

    def remove(self, reference: PayloadReference) -> None:
        del self.only.payloads[reference.sha256]

    def overwrite(self, reference: PayloadReference, payload: bytes) -> None:
        self.only.payloads[reference.sha256] = payload
