"""Which key fills which field: the keys that are served, as two tables.

Those that are only recognized are in `canal_server.config.unserved`. A key that is
not in canal's own files is marked `ours`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from canal_server.config import history_location, values
from canal_server.config.schema import MIB
from canal_server.config.values import INT32_MAX, INT64_MAX, PORT_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

DAY_S = 86_400
HOURS_MAX = 100 * 366 * 24
SLOTS_MAX = 2**24  # of a ring; each costs some bytes also when it is empty
SERVER_ID_MAX = 2**32 - 1
UINT32_MAX = 2**32 - 1  # what an event's length can say


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its name in the file, its field, how its text is read.

    `field` is a path of attributes from ServerConfig or InstanceConfig on.
    """

    name: str
    field: str
    read: Callable[[str], object]
    ours: bool = False
    secret: bool = False


SERVER_KEYS = (
    Key("canal.ip", "ip", values.host),
    Key("canal.port", "port", values.integer(0, PORT_MAX)),
    Key("canal.register.ip", "register_ip", values.host),
    Key("canal.withoutNetty", "listen", values.opposite),
    Key("canal.user", "user", values.text),
    Key("canal.passwd", "passwd", values.password_hash, secret=True),
    Key(
        "canal.server.connections.max",
        "connections_max",
        values.integer(1, 100_000),
        ours=True,
    ),
    Key(
        "canal.server.frame.bytes.max",
        "frame_bytes_max",
        values.integer(1024, INT32_MAX, "bytes"),
        ours=True,
    ),
    Key(
        "canal.server.handshake.timeout.seconds",
        "handshake_timeout_s",
        values.seconds(1, DAY_S),
        ours=True,
    ),
    Key(
        "canal.server.connections.per.address.max",
        "per_address_max",
        values.integer(1, 100_000),
        ours=True,
    ),
    Key(
        "canal.server.connections.pending.max",
        "pending_max",
        values.integer(1, 100_000),
        ours=True,
    ),
    Key(
        "canal.server.send.timeout.seconds",
        "send_timeout_s",
        values.seconds(1, DAY_S),
        ours=True,
    ),
)


def host_keys(host: str, number: int = 0) -> tuple[Key, ...]:
    """Return the keys of `master` or `standby`, in a group of one with its number."""
    name = f"canal.instance.{host}{number or ''}."
    field = f"source.{host}."
    return (
        Key(name + "address", field + "address", values.address),
        Key(name + "journal.name", field + "journal_name", values.text),
        Key(
            name + "position",
            field + "position",
            values.integer(0, INT64_MAX, "bytes"),
        ),
        Key(
            name + "timestamp",
            field + "timestamp_ms",
            values.integer(0, INT64_MAX, "milliseconds"),
        ),
        Key(name + "gtid", field + "gtid", values.text),
        Key(name + "sslMode", field + "ssl_mode", values.ssl_mode),
        Key(name + "sslCa", field + "ssl_ca", values.folder, ours=True),
        Key(name + "sslCert", field + "ssl_cert", values.folder, ours=True),
        Key(name + "sslKey", field + "ssl_key", values.folder, ours=True),
        Key(
            name + "serverPublicKey",
            field + "server_public_key",
            values.folder,
            ours=True,
        ),
        Key(
            name + "allowPublicKeyRetrieval",
            field + "allow_public_key_retrieval",
            values.boolean,
            ours=True,
        ),
    )


UNREADABLE_FIELD = "source.events.unreadable"


def unreadable_key(number: int = 0) -> Key:
    """Return the key of events that may be passed over, in a group with its number."""
    name = f"canal.instance.master{number or ''}.unreadable.events"
    return Key(name, UNREADABLE_FIELD, values.named_events, ours=True)


SOURCE_KEYS = (
    *host_keys("master"),
    unreadable_key(),
    *host_keys("standby"),
    Key("canal.instance.dbUsername", "source.user", values.text),
    Key("canal.instance.dbPassword", "source.password", values.text, secret=True),
    Key("canal.instance.defaultDatabaseName", "source.default_database", values.text),
    Key(
        "canal.instance.connectionCharset", "source.connection_charset", values.charset
    ),
    Key("canal.instance.gtidon", "source.gtid_on", values.boolean),
    Key(
        "canal.instance.gtid.sets.enable",
        "source.gtid_sets",
        values.boolean,
        ours=True,
    ),
    Key(
        "canal.instance.mysql.slaveId",
        "source.slave_id",
        values.integer(0, SERVER_ID_MAX),
    ),
    Key(
        "canal.instance.network.soTimeout",
        "source.so_timeout_s",
        values.seconds(1, DAY_S),
    ),
    Key(
        "canal.instance.network.receiveBufferSize",
        "source.receive_buffer_bytes",
        values.integer(0, INT32_MAX, "bytes"),
    ),
    Key(
        "canal.instance.network.heartbeat.seconds",
        "source.heartbeat_s",
        values.seconds(1, DAY_S),
        ours=True,
    ),
    Key(
        "canal.instance.network.silence.seconds",
        "source.silence_s",
        values.seconds(1, DAY_S),
        ours=True,
    ),
    Key(
        "canal.instance.binlog.format",
        "source.binlog_formats",
        values.names("ROW", "STATEMENT", "MIXED"),
    ),
    Key(
        "canal.instance.binlog.image",
        "source.binlog_images",
        values.names("FULL", "MINIMAL", "NOBLOB"),
    ),
    Key(
        "canal.instance.fallbackIntervalInSeconds",
        "source.fallback_interval_s",
        values.integer(0, INT32_MAX, "seconds"),
    ),
    Key("canal.auto.reset.latest.pos.mode", "source.auto_reset_latest", values.boolean),
    Key(
        "canal.instance.standby.lag.max.seconds",
        "source.standby_lag_max_s",
        values.integer(0, INT32_MAX, "seconds"),
        ours=True,
    ),
    Key(
        "canal.instance.event.bytes.max",
        "source.events.bytes_max",
        values.integer(MIB, UINT32_MAX, "bytes"),
        ours=True,
    ),
    Key("canal.instance.detecting.enable", "source.detecting.enable", values.boolean),
    Key("canal.instance.detecting.sql", "source.detecting.sql", values.text),
    Key(
        "canal.instance.detecting.interval.time",
        "source.detecting.interval_s",
        values.seconds(1, DAY_S),
    ),
    Key(
        "canal.instance.detecting.retry.threshold",
        "source.detecting.retry_threshold",
        values.integer(0, INT32_MAX),
    ),
    Key(
        "canal.instance.detecting.heartbeatHaEnable",
        "source.detecting.switch_to_standby",
        values.boolean,
    ),
)

FILTER_KEYS = (
    Key("canal.instance.filter.regex", "filter.regex", values.tables),
    Key("canal.instance.filter.black.regex", "filter.black_regex", values.tables),
    Key(
        "canal.instance.filter.client.length.max",
        "filter.client_length_max",
        values.integer(1, 1_000_000, "characters"),
        ours=True,
    ),
    Key("canal.instance.filter.field", "filter.field", values.text),
    Key("canal.instance.filter.black.field", "filter.black_field", values.text),
    *(
        Key(f"canal.instance.filter.{name}", f"filter.{field}", values.boolean)
        for name, field in (
            ("druid.ddl", "druid_ddl"),
            ("query.dcl", "query_dcl"),
            ("query.dml", "query_dml"),
            ("query.ddl", "query_ddl"),
            ("table.error", "table_error"),
            ("rows", "rows"),
            ("transaction.entry", "transaction_entry"),
            ("dml.insert", "dml_insert"),
            ("dml.update", "dml_update"),
            ("dml.delete", "dml_delete"),
        )
    ),
    Key(
        "canal.instance.filter.unknown.events",
        "filter.unknown_events",
        values.boolean,
        ours=True,
    ),
)

STORE_KEYS = (
    Key(
        "canal.instance.transaction.size",
        "buffer.transaction_size",
        values.power_of_two(SLOTS_MAX),
    ),
    Key(
        "canal.instance.transaction.bytes.max",
        "buffer.memory_bytes_max",
        values.integer(64 * 1024, INT32_MAX, "bytes"),
        ours=True,
    ),
    Key(
        "canal.instance.memory.buffer.size",
        "store.buffer_size",
        values.power_of_two(SLOTS_MAX),
    ),
    Key(
        "canal.instance.memory.buffer.memunit",
        "store.memunit",
        values.integer(1, INT32_MAX, "bytes"),
    ),
    Key("canal.instance.memory.batch.mode", "store.batch_mode", values.batch_mode),
    Key("canal.instance.memory.rawEntry", "store.raw_entry", values.boolean),
    Key("canal.instance.get.ddl.isolation", "store.ddl_isolation", values.boolean),
    Key(
        "canal.instance.get.linger.ms",
        "store.linger_ms",
        values.integer(0, 60_000, "milliseconds"),
        ours=True,
    ),
    Key(
        "canal.instance.ranged.memory.bytes",
        "store.ranged_bytes_max",
        values.integer(0, 2**40, "bytes"),
        ours=True,
    ),
    Key(
        "canal.instance.memory.block.bytes.max",
        "store.block_bytes_max",
        values.integer(1 * MIB, 2**40, "bytes"),
        ours=True,
    ),
    Key(
        "canal.instance.clients.max",
        "store.clients_max",
        values.integer(1, 65_536),
        ours=True,
    ),
    Key(
        "canal.instance.cursor.pin.seconds",
        "store.pin_seconds",
        values.integer(-1, INT32_MAX, "seconds"),
        ours=True,
    ),
)

POSITION_KEYS = (
    Key("canal.file.data.dir", "position.data_dir", values.folder),
    Key(
        "canal.file.flush.period",
        "position.flush_period_ms",
        values.integer(1, INT32_MAX, "milliseconds"),
    ),
    Key("canal.zkServers", "position.zookeeper_servers", values.zookeeper_servers),
    Key(
        "canal.zookeeper.flush.period",
        "position.zookeeper_flush_period_ms",
        values.integer(1, INT32_MAX, "milliseconds"),
    ),
    Key(
        "canal.zookeeper.session.timeout.ms",
        "position.zookeeper_session_timeout_ms",
        values.integer(200, INT32_MAX, "milliseconds"),
        ours=True,
    ),
    Key(
        "canal.zookeeper.takeover.delay.ms",
        "position.zookeeper_takeover_delay_ms",
        values.integer(0, INT32_MAX, "milliseconds"),
        ours=True,
    ),
)

TABLE_META_KEYS = (
    Key("canal.instance.tsdb.enable", "table_meta.enable", values.boolean),
    Key(history_location.DIR_KEY, "table_meta.dir", values.folder),
    Key(
        # Somebody may have written a password into it.
        history_location.URL_KEY,
        "table_meta.database",
        history_location.database,
        secret=True,
    ),
    Key(history_location.USER_KEY, "table_meta.user", values.text),
    Key(
        "canal.instance.tsdb.dbPassword",
        "table_meta.password",
        values.text,
        secret=True,
    ),
    Key(
        "canal.instance.tsdb.snapshot.interval",
        "table_meta.snapshot_interval_h",
        values.integer(0, HOURS_MAX, "hours"),
    ),
    Key(
        "canal.instance.tsdb.snapshot.expire",
        "table_meta.snapshot_expire_h",
        values.integer(0, HOURS_MAX, "hours"),
    ),
)

INSTANCE_KEYS = (
    *SOURCE_KEYS,
    *FILTER_KEYS,
    *STORE_KEYS,
    *POSITION_KEYS,
    *TABLE_META_KEYS,
)

# Keys that decide what is served; `canal_server.config.modes` reads them. Those in
# PER_DESTINATION also exist as canal.instance.<destination>.<word>.
PER_DESTINATION = ("mode", "lazy", "spring.xml", "manager.address")
MODE_KEYS = (
    "canal.serverMode",
    "canal.admin.manager",
    "canal.destinations",
    "canal.destinations.expr",
    "canal.conf.dir",
    "canal.auto.scan",
    "canal.auto.scan.interval",
    "canal.instance.enableDruid",
    history_location.SPRING_KEY,
    *(f"canal.instance.global.{word}" for word in PER_DESTINATION),
)
