"""The settings of a server and its instances, with their defaults.

Each stage receives its own section. Values are checked where they are read from
files (`canal_server.config.load`); a section made by hand is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class BatchMode(StrEnum):
    """What fills a batch and the ring: bytes or entries."""

    MEMSIZE = "MEMSIZE"
    ITEMSIZE = "ITEMSIZE"


class SslMode(StrEnum):
    """How much TLS a connection to MySQL asks for."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


class Wiring(StrEnum):
    """Where subscriptions and cursors outlive the process."""

    MEMORY = "memory"  # nowhere
    FILE = "file"  # meta.dat in the data folder
    ZOOKEEPER = "zookeeper"  # nodes


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else (f"{self.host}:{self.port}")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The TCP port for clients."""

    ip: str = ""  # address to bind; empty: all
    port: int = 11111  # 0: any free one
    register_ip: str = ""  # told to clients by ZooKeeper; empty: `ip`, else the host's
    listen: bool = True  # false: no port is opened
    user: str = ""  # empty: everybody may log in
    passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(password)))
    connections_max: int = 1000
    frame_bytes_max: int = 1 * MIB  # of a request; replies are not limited by it
    handshake_timeout_s: float = 10.0  # from accept to a successful log-in
    per_address_max: int = 500  # connections from one address
    pending_max: int = 100  # connections that have not logged in
    send_timeout_s: float = 300.0  # how long a client may take nothing of an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """One MySQL server, and where in its binlog to begin when nothing is stored."""

    address: HostPort | None = None
    journal_name: str | None = None
    position: int | None = None  # offset in bytes in that file
    timestamp_ms: int | None = None
    gtid: str | None = None
    ssl_mode: SslMode = SslMode.DISABLED
    ssl_ca: Path | None = None  # PEM; None: the certificates the system trusts
    ssl_cert: Path | None = None  # PEM, shown to the server
    ssl_key: Path | None = None  # PEM, without a pass phrase
    server_public_key: Path | None = None  # PEM; for passwords without TLS
    # Whether the server may be asked for that key; None: with a warning.
    allow_public_key_retrieval: bool | None = None

    @property
    def has_start(self) -> bool:
        """Tell whether a place to begin is configured."""
        return bool(self.journal_name or self.timestamp_ms or self.gtid)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectingConfig:
    """The statement that tells whether the source lives."""

    enable: bool = False
    sql: str = ""
    interval_s: float = 5.0  # also how often an idle source yields a heartbeat
    retry_threshold: int = 3  # failures in a row that are borne
    switch_to_standby: bool = False


class Action(StrEnum):
    """What becomes of an event that cannot be read."""

    SKIP = "skip"  # it is left out
    RAW = "raw"  # its bytes are delivered in a marked entry


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """An event that may be passed over where it cannot be read."""

    file: str
    position: int
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class EventConfig:
    """What is asked of single events."""

    bytes_max: int = GIB  # of one, also when it is inflated
    unreadable: tuple[NamedEvent, ...] = ()  # that may be passed over


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The MySQL side of an instance, or one of them in a group."""

    member: int = 0  # its number in a group: that of its masterN; 0: no group
    master: HostConfig = HostConfig()
    standby: HostConfig = HostConfig()
    user: str = ""  # whoever loads the files demands one
    password: str = field(default="", repr=False)
    default_database: str = ""
    connection_charset: str = "utf-8"  # a codec of Python
    gtid_on: bool = False
    gtid_sets: bool = True  # without it: kept beside cursors, for another server
    slave_id: int = 0  # 0: one is chosen
    so_timeout_s: float = 30.0  # to connect, and for the answer to a query
    heartbeat_s: float = 3.0  # how often an idle source is asked to speak
    silence_s: float = 9.0  # without a byte for so long, the connection is lost
    receive_buffer_bytes: int = 16 * KIB
    binlog_formats: tuple[str, ...] = ()  # those allowed; empty: any
    binlog_images: tuple[str, ...] = ()  # those allowed; empty: any
    fallback_interval_s: int = 60  # how far to go back on another server
    standby_lag_max_s: int = 0  # one that lags further may not take over; 0: any
    auto_reset_latest: bool = False  # begin at the end when the position is purged
    detecting: DetectingConfig = DetectingConfig()
    events: EventConfig = EventConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """What an instance lets through; true drops, but for `druid_ddl`."""

    regex: str = r".*\..*"  # for clients without a filter of their own
    black_regex: str = ""  # never for anybody
    client_length_max: int = 64 * KIB  # characters of a client's own filter
    field: str = ""  # schema.table:column/column,…
    black_field: str = ""
    druid_ddl: bool = True  # DDL is told apart by parsing, not by patterns
    query_dcl: bool = False
    query_dml: bool = False
    query_ddl: bool = False
    table_error: bool = False  # drop rows of unknown tables instead of stopping
    unknown_events: bool = False  # leave them out instead of stopping
    rows: bool = False
    transaction_entry: bool = False
    dml_insert: bool = False
    dml_update: bool = False
    dml_delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferConfig:
    """The transaction ring buffer."""

    transaction_size: int = 1024  # entries; a power of two
    memory_bytes_max: int = 8 * MIB  # a longer transaction goes on in parts


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The event store."""

    buffer_size: int = 16 * KIB  # entries; a power of two
    memunit: int = KIB  # bytes; what a batch size and a slot count in MEMSIZE
    batch_mode: BatchMode = BatchMode.MEMSIZE
    raw_entry: bool = True  # an entry counts with its bytes, else its event's times 6
    ddl_isolation: bool = False  # a DDL is alone in its batch
    linger_ms: int = 5  # what a get with entries waits for more; 0: its time-out
    block_bytes_max: int = 64 * MIB  # what blocks may really hold
    ranged_bytes_max: int = 32 * MIB  # kept for who reads ranges
    clients_max: int = 1000  # subscribed client ids; those that are stored stay
    pin_seconds: int = 300  # how long an absent client holds entries; -1: for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionConfig:
    """Where cursors are kept."""

    wiring: Wiring = Wiring.FILE
    data_dir: Path = Path("conf")  # one folder per destination in it
    flush_period_ms: int = 1000  # of files
    zookeeper_servers: str = ""  # host:port,host:port/chroot
    zookeeper_flush_period_ms: int = 1000
    zookeeper_session_timeout_ms: int = 4000  # asked for; servers grant what they like
    zookeeper_takeover_delay_ms: int = 5000  # before a Java server's place is taken


@dataclass(frozen=True, slots=True)
class MysqlDatabase:
    """A data base on a MySQL server of its own, where we write."""

    address: HostPort
    name: str
    ssl_mode: SslMode = SslMode.PREFERRED
    server_public_key: Path | None = None
    allow_public_key_retrieval: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetaConfig:
    """The history of the tables' columns."""

    enable: bool = True  # false: columns are those the tables have today
    dir: Path = Path("conf")  # of the file; each destination has one of its own
    database: MysqlDatabase | None = None  # None: it is kept in the file
    user: str = ""  # of the database
    password: str = field(default="", repr=False)
    snapshot_interval_h: int = 24  # 0: none
    snapshot_expire_h: int = 360  # 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceConfig:
    """One destination."""

    destination: str
    # Its instance.properties, whether it is there or not; None of what no file names.
    file: Path | None = field(default=None, compare=False)
    lazy: bool = False  # starts with its first subscription
    source: SourceConfig = SourceConfig()  # of a group the first
    group: tuple[SourceConfig, ...] = ()  # all that are merged, where several may be
    filter: FilterConfig = FilterConfig()
    buffer: BufferConfig = BufferConfig()
    store: StoreConfig = StoreConfig()
    position: PositionConfig = PositionConfig()
    table_meta: TableMetaConfig = TableMetaConfig()

    @property
    def by_source(self) -> tuple[InstanceConfig, ...]:
        """Return the settings that the reader of each source works by.

        In a group each has a name of its own, `destination/masterN`, and a table
        history of its own in a folder of that name.
        """
        if not self.group:
            return (self,)
        return tuple(
            replace(
                self,
                destination=f"{self.destination}/{name}",
                source=source,
                group=(),
                table_meta=replace(self.table_meta, dir=self.table_meta.dir / name),
            )
            for source in self.group
            for name in (f"master{source.member}",)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """All that one process serves."""

    conf_dir: Path
    data_dir: Path  # holds the control socket
    server: ServerConfig = ServerConfig()
    instances: tuple[InstanceConfig, ...] = ()  # in the order they are configured
    scan_interval_s: float = 0.0  # of folders with instances; 0: once at start
    warnings: tuple[str, ...] = ()  # one line each, for the log

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the names of the instances, in their order."""
        return tuple(instance.destination for instance in self.instances)
