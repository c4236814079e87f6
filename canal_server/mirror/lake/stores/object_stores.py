"""Object stores by their address: what Arrow and pyiceberg need to open them.

delta-rs opens them itself, with the same options: those that it knows are the ones of
`lake.storage_options`, and the environment counts as it does there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake._internal import DeltaFileSystemHandler  # its public one cannot write
from pyarrow import fs

from canal_server.errors import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Put = Callable[[str, bytes], None]

_TRUE: Final = ("true", "1", "yes", "on")
_AZURE_HOST: Final = "dfs.core.windows.net"
# The variable with the address of Azurite, and that address without it.
_AZURITE: Final = ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")
# Names of the same option in delta-rs, without their prefix.
_AZURE_KEY: Final = ("account_key", "access_key", "master_key")
_AZURE_SAS: Final = ("sas_token", "sas_key")
_AZURE_TENANT: Final = ("tenant_id", "authority_id")
_GOOGLE_FILES: Final = (
    "service_account",
    "service_account_path",
    "service_account_key",
    "application_credentials",
)


@dataclass(frozen=True, slots=True)
class DeltaPut:
    """Writes whole objects with delta-rs; can be pickled.

    Arrow makes an empty object in Azure first, and readers would see it.
    """

    url: str  # of the container
    container: str
    options: dict[str, str] = field(repr=False)

    def __call__(self, path: str, data: bytes) -> None:
        """Write an object, whose path begins with the container. Raises OSError."""
        store = DeltaFileSystemHandler(self.url, self.options)
        stream: Any = store.open_output_stream(path.removeprefix(f"{self.container}/"))
        stream.write(data)
        stream.close()  # only this makes it visible


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One bucket or container, opened with given options.

    `root` is the path of the lake as Arrow has it, and begins with the bucket; `name`
    is what errors call the store. `endpoint` is its URL, empty for the provider's own.
    `iceberg` are the properties with which pyiceberg opens it. `put` writes an object
    of `root` at once, where a file of Arrow is visible before it is complete.
    """

    path: str
    root: str
    name: str
    open: Callable[..., Any] = field(repr=False)
    options: Mapping[str, Any] = field(repr=False)
    iceberg: Mapping[str, str] = field(repr=False)
    endpoint: str = ""
    put: Put | None = field(default=None, repr=False)

    def file_system(self) -> Any:
        """Return a file system of Arrow. Raises LakeError."""
        try:
            return self.open(**self.options)
        except (OSError, ValueError, TypeError, pa.ArrowException) as error:
            raise LakeError(
                f"the store of {self.path} cannot be opened: {error}; see "
                "lake.storage_options"
            ) from None


def store_of(path: str, options: Mapping[str, str]) -> ObjectStore:
    """Return the store of a lake's path, by its scheme; it is not opened yet.

    Raises LakeError.
    """
    stores = {"s3": _s3, "gs": _google, "abfss": _azure}
    return stores[urlsplit(path).scheme](path, options)


def _s3(path: str, options: Mapping[str, str]) -> ObjectStore:
    given = {name.lower().removeprefix("aws_"): text for name, text in options.items()}
    found: dict[str, Any] = {
        "access_key": given.get("access_key_id"),
        "secret_key": given.get("secret_access_key"),
        "session_token": given.get("session_token") or given.get("token"),
        "region": given.get("region") or given.get("default_region"),
    }
    endpoint = given.get("endpoint_url") or given.get("endpoint", "")
    if endpoint:
        scheme, found["endpoint_override"] = _scheme_and_address(endpoint, given)
        found["scheme"] = scheme
        endpoint = f"{scheme}://{found['endpoint_override']}"
    found = {name: value for name, value in found.items() if value}
    names = {
        "access_key": "s3.access-key-id",
        "secret_key": "s3.secret-access-key",
        "session_token": "s3.session-token",
        "region": "s3.region",
    }
    properties = {name: found[ours] for ours, name in names.items() if ours in found}
    if endpoint:
        properties["s3.endpoint"] = endpoint
    parts = urlsplit(path)
    return ObjectStore(
        path,
        f"{parts.netloc}{parts.path}",
        f"bucket {parts.netloc} {f'at {endpoint}' if endpoint else 'of S3'}",
        fs.S3FileSystem,
        found,
        properties,
        endpoint,
    )


def _google(path: str, options: Mapping[str, str]) -> ObjectStore:
    given = {
        name.lower().removeprefix("google_"): text for name, text in options.items()
    }
    for name in _GOOGLE_FILES:
        if name in given:
            raise LakeError(
                f"lake.storage_options: {name} cannot be used for {path}: name the "
                "file of credentials in the environment, as "
                "GOOGLE_APPLICATION_CREDENTIALS"
            )
    found: dict[str, Any] = {}
    properties = {}
    endpoint = given.get("base_url", "").rstrip("/")
    if endpoint:
        found["scheme"], found["endpoint_override"] = _scheme_and_address(
            endpoint, given
        )
        properties["gcs.service.host"] = endpoint
    if given.get("skip_signature", "").lower() in _TRUE:
        found["anonymous"] = True
    parts = urlsplit(path)
    return ObjectStore(
        path,
        f"{parts.netloc}{parts.path}",
        f"bucket {parts.netloc} of {endpoint or 'Google Cloud Storage'}",
        fs.GcsFileSystem,
        found,
        properties,
        endpoint,
    )


def _azure(path: str, options: Mapping[str, str]) -> ObjectStore:
    given = {
        name.lower().removeprefix("azure_").removeprefix("storage_"): text
        for name, text in options.items()
    }
    parts = urlsplit(path)
    account, _, host = (parts.hostname or "").partition(".")
    found: dict[str, Any] = {
        "account_name": account,
        "account_key": _first(given, _AZURE_KEY, "AZURE_STORAGE_ACCOUNT_KEY"),
        "sas_token": _first(given, _AZURE_SAS, "AZURE_STORAGE_SAS_TOKEN"),
    }
    if given.get("client_secret"):
        found["client_id"] = given.get("client_id")
        found["client_secret"] = given["client_secret"]
        found["tenant_id"] = _first(given, _AZURE_TENANT, "AZURE_TENANT_ID")
    endpoint = given.get("endpoint", "").rstrip("/")
    if not endpoint and given.get("use_emulator", "").lower() in _TRUE:
        endpoint = f"{os.environ.get(*_AZURITE)}/{account}"
    if endpoint:
        scheme, address = _scheme_and_address(endpoint, given)
        address = address.removesuffix(f"/{account}")
        for service in ("blob", "dfs"):
            found[f"{service}_storage_scheme"] = scheme
            found[f"{service}_storage_authority"] = address
    elif host != _AZURE_HOST:  # another cloud of Azure
        found["dfs_storage_authority"] = f".{host}"
        found["blob_storage_authority"] = f".{host.replace('dfs.', 'blob.', 1)}"
    where = f"at {endpoint}" if endpoint else f"of account {account}"
    return ObjectStore(
        path,
        f"{parts.username}{parts.path}",
        f"container {parts.username} {where}",
        fs.AzureFileSystem,
        {name: value for name, value in found.items() if value},
        {},
        endpoint,
        DeltaPut(f"abfss://{parts.netloc}", parts.username or "", dict(options)),
    )


def _scheme_and_address(endpoint: str, given: Mapping[str, str]) -> tuple[str, str]:
    """Return the scheme and the rest of an address, which may lack the scheme."""
    scheme, _, rest = endpoint.rpartition("://")
    plain = given.get("allow_http", "").lower() in _TRUE
    return scheme or ("http" if plain else "https"), rest.rstrip("/")


def _first(given: Mapping[str, str], names: tuple[str, ...], variable: str) -> str:
    """Return an option by any of its names, else what the environment has."""
    found = (given[name] for name in names if given.get(name))
    return next(found, "") or os.environ.get(variable, "")
