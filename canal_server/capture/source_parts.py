"""The parts of a source's pipeline that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from canal_server.config.schema import SslMode, Wiring
from canal_server.core.blocks import BlockPool
from canal_server.errors import ConfigError
from canal_server.mysql.source_settings import Access, Address, Credentials, server_key
from canal_server.position.gtid_cache import ExecutedSets
from canal_server.source.begin.boundary_index import FILE_NAME, BoundaryIndex
from canal_server.tablemeta.history.tsdb import Retention, TableMetaTsdb
from canal_server.tablemeta.storage.open_storage import open_storage
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from canal_server.config.schema import (
        HostConfig,
        HostPort,
        InstanceConfig,
        SourceConfig,
    )
    from canal_server.tablemeta.storage.mysql_lock import Owner

# Free blocks kept for reuse: about what a full ring needs.
_SPARE_BYTES_MAX: Final = 16 * 1024 * 1024


def block_pool() -> BlockPool:
    """Return a pool for the entries of one destination."""
    return BlockPool(spare_max=_SPARE_BYTES_MAX)


def history_of(
    config: InstanceConfig, owner: Owner | None = None
) -> TableMetaTsdb | None:
    """Return the table history; None: the columns are those of today."""
    settings = config.table_meta
    if not settings.enable:
        return None
    return TableMetaTsdb(
        open_storage(config, owner=owner),
        Retention(
            snapshot_interval_s=settings.snapshot_interval_h * 3600,
            expire_s=settings.snapshot_expire_h * 3600,
        ),
    )


def boundary_index_of(config: InstanceConfig) -> BoundaryIndex | None:
    """Return the index of transaction boundaries; None where nothing is stored."""
    position = config.position
    if position.wiring is Wiring.MEMORY:
        return None
    return BoundaryIndex(position.data_dir / config.destination / FILE_NAME)


def executed_sets_of(config: InstanceConfig) -> ExecutedSets | None:
    """Return the cache of GTID sets by position; None where sets are not followed."""
    source = config.source
    return ExecutedSets() if source.gtid_sets and not source.gtid_on else None


def access_of(source: SourceConfig, destination: str) -> Access:
    """Return how to reach the source. Raises ConfigError without an address."""
    master = source.master
    if master.address is None:
        raise ConfigError(
            [
                (
                    f"{destination}/instance.properties: canal.instance.master.address "
                    "is not set; give the MySQL server as host:port"
                )
            ]
        )
    key = f"canal.instance.master{source.number or ''}.address"
    return _access(source, master, master.address, key)


def standby_access_of(source: SourceConfig) -> Access | None:
    """Return how to reach the standby, None when there is none."""
    standby = source.standby
    if standby.address is None:
        return None
    key = f"canal.instance.standby{source.number or ''}.address"
    return _access(source, standby, standby.address, key)


def _access(
    source: SourceConfig, host: HostConfig, address: HostPort, key: str
) -> Access:
    tls = TlsOptions()
    if host.ssl_mode is not SslMode.DISABLED:
        tls = TlsOptions(
            mode=TlsMode[host.ssl_mode.name],
            ca=str(host.ssl_ca or ""),
            cert=str(host.ssl_cert or ""),
            key=str(host.ssl_key or ""),
            key_password=host.ssl_key_password,
            trust_store=str(host.trust_store or ""),
            trust_store_password=host.trust_store_password,
            client_store=str(host.client_store or ""),
            client_store_password=host.client_store_password,
            versions=host.tls_versions,
            ciphers=host.ssl_ciphers,
        )
    return Access(
        address=Address(address.host, address.port),
        credentials=Credentials(source.user, source.password),
        tls=tls,
        server_key=server_key(host.server_public_key, host.allow_public_key_retrieval),
        connect_timeout_s=source.so_timeout_s,
        io_timeout_s=source.so_timeout_s,
        link_timeout_s=source.silence_s,
        receive_buffer=source.receive_buffer_bytes,
        archive=host.archive,
        named_by=key,
    )
