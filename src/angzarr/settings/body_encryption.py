"""The settings of which bodies of messages are encrypted, and with which keys (ADR 0091)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, SecretStr, model_validator

from angzarr.settings.base import Section
from angzarr.settings.keys import check_key_ids, current_key, encryption_keys


class BodyEncryption(StrEnum):
    """Which bodies are encrypted before they leave their publisher."""

    NONE = "none"
    STORED = "stored"  # those that go to the payload store
    ALL = "all"  # those that go to the broker, too


class BodyEncryptionSettings(Section):
    """The keys of bodies: one in use, perhaps others for tenants, and those that only open."""

    #: By key id: base64 of 32 bytes.
    encryption_keys: dict[str, SecretStr] = Field(default_factory=dict)
    encryption_key: str | None = Field(default=None, repr=False)
    #: By tenant: the id of the key that seals its bodies.
    tenant_keys: dict[str, str] = Field(default_factory=dict, repr=False)
    #: By default `stored` where there are keys.
    encrypt: BodyEncryption | None = None

    @model_validator(mode="after")
    def _body_keys_work(self) -> BodyEncryptionSettings:
        check_key_ids(self.encryption_keys)
        self.body_keys()
        current = current_key("encryption_key", self.encryption_key, self.encryption_keys)
        for tenant, name in self.tenant_keys.items():
            if name not in self.encryption_keys:  # unnamed: by mistake it may be a key
                msg = (
                    f"tenant_keys.{tenant} must be the id of one of encryption_keys: add that key,"
                    " or remove the tenant, whose bodies have the key in use then"
                )
                raise ValueError(msg)
        if current is None and self.encrypt in (BodyEncryption.STORED, BodyEncryption.ALL):
            msg = f"encrypt {self.encrypt.value!r} needs encryption_keys"
            raise ValueError(msg)
        return self

    def body_keys(self) -> dict[str, bytes]:
        """The encryption keys of bodies; raises ValueError, which never shows one."""
        return encryption_keys(self.encryption_keys)

    def body_encryption(self) -> BodyEncryption:
        """The rule of which bodies are encrypted."""
        default = BodyEncryption.STORED if self.encryption_keys else BodyEncryption.NONE
        return self.encrypt or default
