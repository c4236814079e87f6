"""The settings of a server and its instances, with their defaults.

Each stage receives its own section. Values are validated where they are read from
files (`canal_server.config.load`); a section created in code is used unchecked.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from canal_server.passwords.password_source import Password  # noqa: TC001  # of fields
from canal_server.runtime.log_context import Subject

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class BatchMode(StrEnum):
    """What limits a batch and the ring: bytes or entries."""

    MEMSIZE = "MEMSIZE"
    ITEMSIZE = "ITEMSIZE"


class SslMode(StrEnum):
    """The TLS mode of connections to MySQL."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"


class Wiring(StrEnum):
    """Where subscriptions and cursors are stored."""

    MEMORY = "memory"  # not stored
    FILE = "file"  # meta.dat in the data folder
    ZOOKEEPER = "zookeeper"  # nodes


@dataclass(frozen=True, slots=True)
class HostPort:
    """The address that a server listens on."""

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else (f"{self.host}:{self.port}")
        )


class ClientCertificates(StrEnum):
    """Whether clients have to show a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of the server's ports; PEM files."""

    cert_file: Path | None = None  # None: no TLS
    key_file: Path | None = None  # without a pass phrase; None: in `cert_file`
    client_ca_file: Path | None = None  # signers of clients' certificates
    client_certificates: ClientCertificates = ClientCertificates.NONE
    expiry_warning_days: int = 30  # also for certificates of sources
    required: bool = False  # no clear text on the port for clients
    http: bool = True  # also on the port of the page
    metrics: bool = True  # also on the port for Prometheus


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerConfig:
    """The canal-admin that hands out the settings, and what this server is there."""

    address: str = ""  # URL; empty: all settings are in the conf folder
    register: bool = False  # add this server there
    cluster: str = ""  # to which it is added
    name: str = ""  # under which it is added; empty: the host's


class ServerMode(StrEnum):
    """How changes leave the server."""

    TCP = "tcp"  # clients pull them
    KAFKA = "kafka"
    RABBITMQ = "rabbitmq"
    PULSARMQ = "pulsarmq"


class MessageLayout(StrEnum):
    """How messages look that are not protobuf."""

    CANAL_JSON = "canal-json"
    MAXWELL = "maxwell"
    DEBEZIUM = "debezium"
    CLOUDEVENTS = "cloudevents"  # with the data of Debezium
    DEBEZIUM_AVRO = "debezium-avro"  # with a registry of schemas


class Decimals(StrEnum):
    """How messages of Debezium have a DECIMAL."""

    PRECISE = "precise"  # the unscaled number, as bytes
    STRING = "string"
    DOUBLE = "double"


class MessageKeys(StrEnum):
    """What messages have as their keys."""

    NONE = "none"
    PRIMARY_KEY = "primaryKey"  # of their row


class SubjectNames(StrEnum):
    """Under which name the registry keeps a schema, in Confluent's words."""

    TOPIC = "TopicNameStrategy"  # topic-key, topic-value
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """The registry that has the schemas of Avro."""

    urls: tuple[str, ...] = ()
    user: str = ""  # empty: no login
    password: Password = field(default="", repr=False)
    ca_file: Path | None = None  # of its certificate; None: the system's
    cert_file: Path | None = None  # of this server
    key_file: Path | None = None  # None: in `cert_file`
    subjects: SubjectNames = SubjectNames.TOPIC
    registers: bool = True  # false: schemas are only looked up


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The message queue that all destinations are delivered to."""

    mode: ServerMode = ServerMode.TCP  # TCP: there is none
    flat: bool = True  # JSON, not protobuf
    layout: MessageLayout = MessageLayout.CANAL_JSON
    maxwell_output: frozenset[str] = frozenset()  # what its messages have in addition
    debezium_name: str = ""  # of the source in its messages; empty: the destination
    debezium_schemas: bool = False
    debezium_decimals: Decimals = Decimals.PRECISE
    registry: RegistryConfig = RegistryConfig()
    keys: MessageKeys = MessageKeys.NONE  # with them, a message has one row
    tombstones: bool = False  # after deletions, for compacted topics
    headers: bool = False  # position, GTID and transaction
    batch_size: int = 50  # as of a client: KiB, or entries with ITEMSIZE
    database_hash: bool = True  # the schema's name is part of the hash of columns
    serves_clients: bool = False  # the port for clients is opened as well
    too_large_topic: str = ""  # for a note instead of a message; empty: stop
    exactly_once: bool = False  # by transactions, with the position in a topic
    position_topic: str = "canal-position"  # without the name of the destination
    create_topics: bool = False
    topic_replicas: int = -1  # of created ones; -1: the default of the brokers
    topic_settings: tuple[tuple[str, str], ...] = ()  # of created ones
    # Settings of the producer, as its own manual names them.
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    # Where they come from: the name, the file, and the key in it, for errors.
    origins: tuple[tuple[str, str, str], ...] = ()
    file: str = ""  # canal.properties, where what is missing belongs


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingConfig:
    """The topics and partitions of a destination's messages."""

    topic: str = ""  # of what no expression matches; empty: the destination's name
    partition: int = 0  # of all messages, without a hash
    partitions: int = 1  # of the topic, for a hash
    partition_hash: str = ""
    dynamic_topic: str = ""
    dynamic_topic_partitions: str = ""
    database_hash: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The TCP port for clients."""

    ip: str = ""  # address to bind; empty: all
    port: int = 11111  # 0: any free one
    register_ip: str = ""  # for clients in ZooKeeper; empty: `ip`, else the host's
    listen: bool = True  # false: no port is opened
    user: str = ""  # empty: no login required
    passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(password)))
    users_file: Path | None = None  # YAML: users and their rights
    audit_file: Path | None = None  # JSON lines: who did what
    anonymous: bool = False  # everybody may log in, whatever the address
    connections_max: int = 1000
    frame_bytes_max: int = 1 * MIB  # of a request; replies are not limited
    handshake_timeout_s: float = 10.0  # from accept to a successful login
    per_address_max: int = 500  # connections from one address
    per_user_max: int = 500  # connections that logged in as one user
    pending_max: int = 100  # connections that have not logged in
    send_timeout_s: float = 300.0  # how long a client may stop receiving an answer
    metrics_port: int = 11112  # for Prometheus; 0: any free one, -1: none
    metrics_ip: str = ""  # address to bind; empty: `ip`, and if that is empty, loopback
    http_port: int = 11113  # of the page; 0: any free one, -1: none
    http_ip: str = "127.0.0.1"
    http_user: str = ""  # empty: no login required
    http_passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(password)))
    admin_port: int = -1  # for canal-admin; 0: any free one, -1: none
    admin_user: str = ""
    admin_passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(password)))
    alarm_after_s: float = 60.0  # for how long a condition must last
    alarm_lag_s: float = 0.0  # of reading; 0: no alarm
    alarm_client_lag_s: float = 0.0
    alarm_webhook: str = field(default="", repr=False)  # URL; it may have a secret
    alarm_command: str = field(default="", repr=False)  # without a shell
    log_file_megabytes: int = 100  # at which a file is renamed
    log_files: int = 10  # of each log, the current one included
    tls: TlsConfig = TlsConfig()
    manager: ManagerConfig = ManagerConfig()
    queue: QueueConfig = QueueConfig()

    @property
    def clients_log_in(self) -> bool:
        """Return whether clients need a password or a certificate."""
        certificates = self.tls.required and (
            self.tls.client_certificates is ClientCertificates.REQUIRED
        )
        return bool(self.user or self.passwd or self.users_file or certificates)

    @property
    def lets_everybody_in(self) -> bool:
        """Return whether clients need neither a password nor a certificate."""
        return self.listen and not self.clients_log_in


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """One MySQL server, and where reading starts if no position is stored."""

    address: HostPort | None = None
    journal_name: str | None = None
    position: int | None = None  # offset in bytes in that file
    timestamp_ms: int | None = None
    gtid: str | None = None
    archive: Path | None = None  # a directory with binlog files that it has purged
    ssl_mode: SslMode = SslMode.DISABLED
    ssl_ca: Path | None = None  # PEM; None: the trusted certificates of the system
    ssl_cert: Path | None = None  # PEM, sent to the server
    ssl_key: Path | None = None  # PEM; None: in `ssl_cert`
    ssl_key_password: Password = field(default="", repr=False)
    # Key stores of Java, instead of PEM files; their formats are found in the files.
    trust_store_type: str = ""
    trust_store: Path | None = None
    trust_store_password: Password = field(default="", repr=False)
    client_store_type: str = ""
    client_store: Path | None = None
    client_store_password: Password = field(default="", repr=False)
    tls_versions: tuple[str, ...] = ()  # empty: all that are supported
    ssl_ciphers: str = ""  # of TLS 1.2, in OpenSSL's form; empty: its usual ones
    server_public_key: Path | None = None  # PEM; for passwords without TLS
    # Whether the key may be requested from the server; None: with a warning.
    allow_public_key_retrieval: bool | None = None

    @property
    def has_start(self) -> bool:
        """Return whether a start position is configured."""
        return bool(self.journal_name or self.timestamp_ms or self.gtid)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectingConfig:
    """The statement that checks whether the source is alive."""

    enable: bool = False
    sql: str = ""
    interval_s: float = 5.0  # also how often an idle source yields a heartbeat
    retry_threshold: int = 3  # consecutive failures that are tolerated
    switch_to_standby: bool = False


class Action(StrEnum):
    """How an event that cannot be decoded is handled."""

    SKIP = "skip"  # it is skipped
    RAW = "raw"  # its bytes are delivered in a marked entry


@dataclass(frozen=True, slots=True)
class NamedEvent:
    """An event that may be skipped if it cannot be decoded."""

    file: str
    position: int
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class EventConfig:
    """Settings for single events."""

    bytes_max: int = GIB  # of one event, also when decompressed
    unreadable: tuple[NamedEvent, ...] = ()  # events that may be skipped


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """The MySQL side of an instance, or one source of a group."""

    number: int = 0  # the number N of masterN in a group; 0: no group
    master: HostConfig = HostConfig()
    standby: HostConfig = HostConfig()
    user: str = ""  # required when the files are loaded
    password: Password = field(default="", repr=False)
    default_database: str = ""
    connection_charset: str = "utf-8"  # a Python codec
    gtid_on: bool = False
    gtid_sets: bool = True  # without gtid_on: stored with cursors, for other servers
    slave_id: int = 0  # 0: chosen automatically
    so_timeout_s: float = 30.0  # to connect, and for each query
    heartbeat_s: float = 3.0  # the interval of heartbeats from an idle source
    silence_s: float = 9.0  # without data for this long, the connection is lost
    receive_buffer_bytes: int = 16 * KIB
    binlog_formats: tuple[str, ...] = ()  # the accepted ones; empty: any
    binlog_images: tuple[str, ...] = ()  # the accepted ones; empty: any
    fallback_interval_s: int = 60  # how far to go back on another server
    standby_lag_max_s: int = 0  # a standby that lags more may not take over; 0: any
    auto_reset_latest: bool = False  # start at the end if the position is purged
    detecting: DetectingConfig = DetectingConfig()
    events: EventConfig = EventConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterConfig:
    """What an instance delivers; true drops events, except for `druid_ddl`."""

    regex: str = r".*\..*"  # for clients without a filter of their own
    black_regex: str = ""  # never delivered
    client_length_max: int = 64 * KIB  # characters of a client's own filter
    field: str = ""  # schema.table:column/column,…
    black_field: str = ""
    druid_ddl: bool = True  # DDL is classified by parsing, not by patterns
    query_dcl: bool = False
    query_dml: bool = False
    query_ddl: bool = False
    table_error: bool = False  # drop rows of unknown tables instead of stopping
    unknown_events: bool = False  # skip them instead of stopping
    rows: bool = False
    transaction_entry: bool = False
    dml_insert: bool = False
    dml_update: bool = False
    dml_delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferConfig:
    """The transaction ring buffer."""

    transaction_size: int = 1024  # entries; a power of two
    memory_bytes_max: int = 8 * MIB  # a larger transaction is passed on in parts


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The event store."""

    buffer_size: int = 16 * KIB  # entries; a power of two
    memunit: int = KIB  # bytes; the unit of batch sizes and slots in MEMSIZE
    batch_mode: BatchMode = BatchMode.MEMSIZE
    raw_entry: bool = True  # an entry counts its bytes, else those of its event times 6
    ddl_isolation: bool = False  # each DDL gets its own batch
    linger_ms: int = 5  # how long a get waits for more entries; 0: its timeout
    block_bytes_max: int = 64 * MIB  # maximum memory of blocks
    ranged_bytes_max: int = 32 * MIB  # retained for ranged reads
    clients_max: int = 1000  # subscribed client ids; stored ones are kept
    pin_seconds: int = 300  # how long an absent client retains entries; -1: forever


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionConfig:
    """Where cursors are stored."""

    wiring: Wiring = Wiring.FILE
    data_dir: Path = Path("conf")  # one folder per destination in it
    flush_period_ms: int = 1000  # of files
    zookeeper_servers: str = ""  # host:port,host:port/chroot
    zookeeper_flush_period_ms: int = 1000
    zookeeper_session_timeout_ms: int = 4000  # requested; servers may grant less
    zookeeper_takeover_delay_ms: int = 5000  # before a Java server is replaced


@dataclass(frozen=True, slots=True)
class MysqlDatabase:
    """A writable database on a separate MySQL server."""

    address: HostPort
    name: str
    ssl_mode: SslMode = SslMode.PREFERRED
    server_public_key: Path | None = None
    allow_public_key_retrieval: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMetaConfig:
    """The table history."""

    enable: bool = True  # false: the current columns of the tables are used
    dir: Path = Path("conf")  # of the file; each destination has its own
    database: MysqlDatabase | None = None  # None: stored in the file
    user: str = ""  # of the database
    password: Password = field(default="", repr=False)
    snapshot_interval_h: int = 24  # 0: none
    snapshot_expire_h: int = 360  # 0: never


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceConfig:
    """One destination."""

    destination: str
    # Its instance.properties, even if missing; None if it has no file.
    file: Path | None = field(default=None, compare=False)
    lazy: bool = False  # starts with its first subscription
    source: SourceConfig = SourceConfig()  # in a group, the first one
    group: tuple[SourceConfig, ...] = ()  # all merged sources of a group
    filter: FilterConfig = FilterConfig()
    buffer: BufferConfig = BufferConfig()
    store: StoreConfig = StoreConfig()
    position: PositionConfig = PositionConfig()
    table_meta: TableMetaConfig = TableMetaConfig()
    routing: RoutingConfig = RoutingConfig()
    # What its log lines are about if these are the settings of one reader: of a source
    # of a group, or of a client that lags. None: the destination.
    log_subject: Subject | None = None

    @property
    def subject(self) -> Subject:
        """Return what log lines of its threads are about."""
        return self.log_subject or Subject(self.destination)

    @property
    def conf_option(self) -> str:
        """Return the option of commands that names the conf folder, with a blank.

        Empty for settings without a file.
        """
        if self.file is None:
            return ""
        return f"--conf {shlex.quote(str(self.file.parent.parent))} "

    @property
    def by_source(self) -> tuple[InstanceConfig, ...]:
        """Return the settings for the reader of each source.

        In a group each source has its own name, `destination/masterN`, and its own
        table history in a folder of that name.
        """
        if not self.group:
            return (self,)
        return tuple(
            replace(
                self,
                destination=f"{self.destination}/{name}",
                log_subject=self.subject,
                source=source,
                group=(),
                table_meta=replace(self.table_meta, dir=self.table_meta.dir / name),
            )
            for source in self.group
            for name in (f"master{source.number}",)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """Everything that one process serves."""

    conf_dir: Path
    data_dir: Path  # holds the control socket
    server: ServerConfig = ServerConfig()
    instances: tuple[InstanceConfig, ...] = ()  # in configuration order
    scan_interval_s: float = 0.0  # between scans for instances; 0: only at start
    poll_interval_s: float = 0.0  # between requests to canal-admin; 0: none
    instances_managed: bool = False  # whether canal-admin hands them out
    warnings: tuple[str, ...] = ()  # one line each, for the log

    @property
    def destinations(self) -> tuple[str, ...]:
        """Return the names of the instances, in order."""
        return tuple(instance.destination for instance in self.instances)
