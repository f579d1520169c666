"""From settings to payload stores: that of large messages, and that of large letters; to keys.

Imports only the technologies that the settings name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from angzarr.dead_letters.sealed_letters import SealedLetters
from angzarr.errors import ConfigurationError, MissingExtra
from angzarr.payloads.body_sealer import BodyKeys, BodySealer
from angzarr.payloads.collector import CollectionTerms, PayloadCollector
from angzarr.payloads.holders import BodyRegistration
from angzarr.payloads.packed_store import PackedStore, Packing
from angzarr.payloads.store import PayloadStore
from angzarr.payloads.store_chain import StoreChain
from angzarr.runtime.processes import OncePerProcess
from angzarr.settings.keys import current_key
from angzarr.settings.payloads import PayloadPlace, PayloadStoreSettings, place_of
from angzarr.settings.settings import Settings
from angzarr.wiring import stores as wiring
from angzarr.wiring.telemetry import METRICS

#: Schemes whose file system is a package of its own, as fsspec names it.
_SYSTEMS: Final = {
    "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs",
    "sftp": "paramiko", "ssh": "paramiko", "oci": "ocifs",
}  # fmt: skip


def open_store(given: PayloadStoreSettings) -> PayloadStore | None:
    """The store that *given* names, None where it names none; connects when it is first used.

    Raises MissingExtra, or ConfigurationError for a scheme that fsspec does not know.
    """
    if given.url is None:
        return None
    place = place_of(given.url)
    store: PayloadStore
    if place.scheme == "file":
        files = importlib.import_module("angzarr.adapters.files.payloads")
        store = files.FilePayloadStore(Path(place.path))
    elif place.scheme == "s3":
        s3 = wiring.adapter("angzarr.adapters.s3.payloads", "boto3", brought_by="s3")
        store = s3.S3PayloadStore(
            place.bucket, place.path, region=given.region, endpoint_url=given.endpoint_url
        )
    else:
        store = _open_fsspec(place, given.options)
    return store


def _open_fsspec(place: PayloadPlace, options: Mapping[str, Any]) -> PayloadStore:
    adapter = wiring.adapter("angzarr.adapters.fsspec.payloads", "fsspec", brought_by="fsspec")
    try:
        adapter.check_scheme(place.scheme)
    except ValueError:
        msg = f"payloads cannot be kept on {place.scheme}://: fsspec knows no such file system"
        raise ConfigurationError(msg) from None
    except ImportError as error:
        package = _SYSTEMS.get(place.scheme, "its file system")
        msg = f"payloads on {place.scheme}:// need {package}: pip install {package}"
        raise ConfigurationError(msg) from error
    root = "/".join(filter(None, (place.bucket, place.path)))
    store: PayloadStore = adapter.FsspecPayloadStore(place.scheme, root, options=options)
    return store


def check_shared(settings: Settings, broker: str) -> None:
    """Refuse a store that is gone with its process, beside a broker whose messages are not."""
    if wiring.is_embedded(broker):
        return
    for key, given in (
        ("payloads.url", settings.payloads),
        ("dlq.payloads.url", settings.dlq.payloads),
    ):
        if given.url is not None and place_of(given.url).scheme == "memory":
            msg = (
                f"{key} memory:// is gone with its process, and the messages of a broker stay:"
                " set it to s3://bucket/prefix, file:///folder, or another URL of fsspec"
            )
            raise ConfigurationError(msg)


def open_for_messages(settings: Settings, broker: str) -> PayloadStore | None:
    """The store of the bodies of messages; None: messages are sent whole, whatever their size.

    Raises MissingExtra where bodies are to be packed and cannot be, and ConfigurationError for a
    store that readers of *broker* do not share.
    """
    check_shared(settings, broker)
    store = open_store(settings.payloads)
    if store is None:
        return None
    return PackedStore(
        store, most=settings.message.most_unpacked, packing=_packing(settings), known=packings()
    )


def open_sealer(settings: Settings) -> BodySealer | None:
    """What encrypts bodies and opens them; None: this app has no keys.

    Raises MissingExtra where the library is not there.
    """
    given = settings.payloads
    current = current_key("encryption_key", given.encryption_key, given.encryption_keys)
    if current is None:
        return None
    xaes = wiring.adapter("angzarr.adapters.cryptography.xaes", "cryptography")
    return BodySealer(
        keys=BodyKeys(keys=given.body_keys(), current=current, tenants=given.tenant_keys),
        cipher=xaes.XaesCipher(),
        packing=None if given.url is None else _packing(settings),
        known=packings(),
    )


def open_sealed_letters(settings: Settings) -> SealedLetters:
    """What opens letters whose body is encrypted, with the keys of this app, if any."""
    return SealedLetters(sealer=open_sealer(settings), most=settings.message.most_unpacked)


def _packing(settings: Settings) -> Packing | None:
    """The packing of what is stored; raises MissingExtra where it is not installed."""
    if settings.payloads.compression != "zstd":
        return None
    packing = packings().get("zstd")
    if packing is None:
        raise MissingExtra("backports.zstd", "zstd")
    return packing


def open_for_letters(settings: Settings) -> PayloadStore | None:
    """The store from which the bodies of letters are fetched; None: this app has none.

    A letter's body lies where its queue has put it, or where its message has left it.
    """
    given = {one.url: one for one in (settings.dlq.payloads, settings.payloads) if one.url}
    stores = [store for one in given.values() if (store := open_store(one)) is not None]
    if not stores:
        return None
    chain = StoreChain(stores) if len(stores) > 1 else stores[0]
    return PackedStore(chain, most=settings.message.most_unpacked, known=packings())


def open_holders(settings: Settings, broker: str) -> Callable[[], Any] | None:
    """What opens the register of who holds bodies; None: this app says not where claims are.

    All of this process share one.
    """
    try:
        url = wiring.store_url(settings, broker)
    except ConfigurationError:
        return None
    return _opener(url, settings.prefix)


@cache
def _opener(url: str, prefix: str) -> Callable[[], Any]:
    return OncePerProcess[Any](partial(_open_register, url, prefix)).get


def _open_register(url: str, prefix: str) -> Any:
    """The register of bodies beside the claims at *url*; connects when it is first used.

    It is a `PayloadHolders` and a `PayloadRegister`.
    """
    if url.startswith("redis"):
        client = wiring.adapter("angzarr.adapters.redis.link", "redis").RedisClient(url)
        module = wiring.adapter("angzarr.adapters.redis.payload_holders", "redis")
        return module.RedisPayloadHolders(client, prefix=prefix)
    if url.startswith("memory"):
        return importlib.import_module(wiring.MEMORY_HOLDERS).SHARED
    engine = wiring.sql_engine(url, power_safe=False)
    return importlib.import_module(wiring.SQL_HOLDERS).SqlPayloadHolders(engine)


def open_collector(settings: Settings, broker: str) -> PayloadCollector:
    """What deletes bodies that nothing needs, to be closed; raises ConfigurationError."""
    store = open_for_letters(settings)
    if store is None:
        msg = (
            "no payload store is configured: set payloads.url, e.g. payloads: {url:"
            " s3://bucket/prefix}"
        )
        raise ConfigurationError(msg)
    given = settings.payloads
    return PayloadCollector(
        register=_opener(wiring.store_url(settings, broker), settings.prefix)(),
        store=store,
        terms=CollectionTerms(grace=given.grace, keep=given.keep),
    )


def payload_meters() -> Any:
    """The OpenTelemetry instruments of bodies in payload stores."""
    module = importlib.import_module("angzarr.adapters.opentelemetry.payload_meters")
    return module.PayloadMeters(METRICS.provider())


def registration(settings: Settings, broker: str) -> BodyRegistration | None:
    """What registers bodies that are put; None: this app says not where claims are."""
    opened = open_holders(settings, broker)
    return None if opened is None else BodyRegistration(opened)


@cache
def packings() -> Mapping[str, Packing]:
    """The packings that are installed here, by name."""
    try:
        zstd = importlib.import_module("angzarr.adapters.zstd.codec").ZstdPacking()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "backports":
            raise
        return {}
    return {zstd.name: zstd}
