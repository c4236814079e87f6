"""The keys of the source of an instance: its MySQL servers and the connection."""

from __future__ import annotations

from canal_server.config import values
from canal_server.config.keys.setting import DAY_S, Key
from canal_server.config.schema import MIB
from canal_server.config.values import INT32_MAX, INT64_MAX

SERVER_ID_MAX = 2**32 - 1
UINT32_MAX = 2**32 - 1  # what an event's length can say


def _password_key(name: str, field: str, description: str, *, ours: bool) -> Key:
    return Key(
        name,
        field,
        values.text,
        description,
        ours=ours,
        secret=True,
        has_forms=True,
        is_late=True,
    )


def _store_keys(name: str, field: str, content: str) -> tuple[Key, ...]:
    """Return the keys of a key store of Java."""
    return (
        Key(
            f"{name}Type",
            f"{field}_type",
            values.store_type,
            "The format of that key store. The file itself shows which it is;"
            " [`JKS` has to be"
            " converted](../howto/tls.md#key-stores-of-java).",
        ),
        Key(
            f"{name}Url",
            field,
            values.file_url,
            f"A key store of Java in PKCS #12 with {content}.",
        ),
        _password_key(
            f"{name}Password",
            f"{field}_password",
            "The password of that key store.",
            ours=False,
        ),
    )


def host_keys(host: str, number: int = 0) -> tuple[Key, ...]:
    """Return the keys of `master` or `standby`, in a group of one with its number."""
    name = f"canal.instance.{host}{number or ''}."
    field = f"source.{host}."
    return (
        Key(
            name + "address",
            field + "address",
            values.address,
            "The MySQL or MariaDB server. The port may be omitted (3306).",
        ),
        Key(
            name + "journal.name",
            field + "journal_name",
            values.text,
            "The binlog file to start in when no cursor is stored. `oldest` means the"
            " first file that the source, or its archive, still has. With no start"
            " configured, the instance starts at the current end of the binlog;"
            " [where reading starts](../explanation/start-position.md).",
        ),
        Key(
            name + "position",
            field + "position",
            values.integer(0, INT64_MAX, "bytes"),
            "The offset to start at in the file `journal.name`.",
        ),
        Key(
            name + "timestamp",
            field + "timestamp_ms",
            values.integer(0, INT64_MAX, "milliseconds"),
            "The time to start at when no cursor is stored, since 1970.",
        ),
        Key(
            name + "gtid",
            field + "gtid",
            values.text,
            "The GTID set to start after when no cursor is stored. It needs"
            " `canal.instance.gtidon`.",
        ),
        Key(
            name + "archive.dir",
            field + "archive",
            values.folder,
            "A directory with binlog files that this server has purged. They are read"
            " [as if the server still had them](../howto/archived-binlogs.md).",
            ours=True,
        ),
        Key(
            name + "sslMode",
            field + "ssl_mode",
            values.ssl_mode,
            "Whether the connection uses TLS. The shipped `conf/example` sets"
            " `PREFERRED`.",
        ),
        Key(
            name + "sslCa",
            field + "ssl_ca",
            values.folder,
            "A PEM file with the certificate authority to trust. Empty means the"
            " authorities that the system trusts.",
            ours=True,
        ),
        Key(
            name + "sslCert",
            field + "ssl_cert",
            values.folder,
            "A PEM file with the certificate of the client.",
            ours=True,
        ),
        Key(
            name + "sslKey",
            field + "ssl_key",
            values.folder,
            "A PEM file with the private key of the client's certificate. Empty means"
            " that it is in `sslCert`.",
            ours=True,
        ),
        _password_key(
            name + "sslKeyPassword",
            field + "ssl_key_password",
            "The pass phrase of that key.",
            ours=True,
        ),
        Key(
            name + "tlsVersions",
            field + "tls_versions",
            values.tls_versions,
            "The versions of TLS that are accepted. Empty accepts both.",
        ),
        Key(
            name + "sslCiphers",
            field + "ssl_ciphers",
            values.text,
            "The ciphers that are accepted with TLS 1.2, as `openssl ciphers` takes"
            " them, separated by colons. Empty means OpenSSL's own choice.",
            ours=True,
        ),
        *_store_keys(
            name + "trustCertificateKeyStore",
            field + "trust_store",
            "the authorities to trust, instead of `sslCa`",
        ),
        *_store_keys(
            name + "clientCertificateKeyStore",
            field + "client_store",
            "the certificate of the client and its key, instead of `sslCert` and"
            " `sslKey`",
        ),
        Key(
            name + "serverPublicKey",
            field + "server_public_key",
            values.folder,
            "A PEM file with the RSA key of the server. It encrypts the"
            " [password](../howto/security.md) when the connection has no TLS.",
            ours=True,
        ),
        Key(
            name + "allowPublicKeyRetrieval",
            field + "allow_public_key_retrieval",
            values.boolean,
            "Whether canal-server may ask the server for its RSA key. The shipped"
            " `conf/example` sets `false`. When the key is not set, as in a folder of"
            " the Java server, canal-server asks for it and logs a warning, or, on the"
            " same machine, asks without a warning.",
            ours=True,
        ),
    )


UNREADABLE_FIELD = "source.events.unreadable"


def unreadable_key(number: int = 0) -> Key:
    """Return the key of events that may be skipped, in a group with its number."""
    name = f"canal.instance.master{number or ''}.unreadable.events"
    return Key(
        name,
        UNREADABLE_FIELD,
        values.named_events,
        "Events that [cannot be read](../howto/unreadable-events.md), and what to do"
        " with them: `skip` leaves an event out, `raw` delivers its bytes in a marked"
        " entry.",
        ours=True,
    )


CONNECTION_KEYS = (
    Key(
        "canal.instance.dbUsername",
        "source.user",
        values.text,
        "The account for the source. It must be set; the Java server has a default,"
        " `retl`.",
    ),
    Key(
        "canal.instance.dbPassword",
        "source.password",
        values.text,
        "The password of `canal.instance.dbUsername`. It must be set; leave the value"
        " empty for an account without a password.",
        secret=True,
        has_forms=True,
        is_late=True,
    ),
    Key(
        "canal.instance.defaultDatabaseName",
        "source.default_database",
        values.text,
        "The database that the connection uses.",
    ),
    Key(
        "canal.instance.connectionCharset",
        "source.connection_charset",
        values.charset,
        "The character set of statements in the binlog.",
    ),
    Key(
        "canal.instance.gtidon",
        "source.gtid_on",
        values.boolean,
        "`true` follows GTIDs instead of files and offsets.",
    ),
    Key(
        "canal.instance.gtid.sets.enable",
        "source.gtid_sets",
        values.boolean,
        "For a source that has GTIDs while `canal.instance.gtidon` is `false`. `true`"
        " stores the executed GTID set"
        " [with each cursor](data-files.md#gtid-sets-with-cursors). After a switch to"
        " another server, reading resumes after that set. `false` finds the position"
        " on another server by time.",
        ours=True,
    ),
    Key(
        "canal.instance.mysql.slaveId",
        "source.slave_id",
        values.integer(0, SERVER_ID_MAX),
        "The server id that canal-server registers with as a replica; no other replica"
        " may use it. 0 chooses one. On MariaDB, 0 also chooses another one after the"
        " connection went silent. With a fixed id the next connection waits there"
        " until the previous one has ended, for up to a minute.",
    ),
    Key(
        "canal.instance.network.soTimeout",
        "source.so_timeout_s",
        values.seconds(1, DAY_S),
        "How long to wait for a connection, and for the answer to a query.",
    ),
    Key(
        "canal.instance.network.receiveBufferSize",
        "source.receive_buffer_bytes",
        values.integer(0, INT32_MAX, "bytes"),
        "The size of the receive buffer of the socket.",
    ),
    Key(
        "canal.instance.network.heartbeat.seconds",
        "source.heartbeat_s",
        values.seconds(1, DAY_S),
        "How often an idle source is asked to send a heartbeat.",
        ours=True,
    ),
    Key(
        "canal.instance.network.silence.seconds",
        "source.silence_s",
        values.seconds(1, DAY_S),
        "How long the source may send nothing, not even one byte, before the"
        " connection [counts as lost](../howto/standby.md). The time doubles while"
        " new connections receive nothing. It must be longer than"
        " `canal.instance.network.heartbeat.seconds`.",
        ours=True,
    ),
    Key(
        "canal.instance.event.bytes.max",
        "source.events.bytes_max",
        values.integer(MIB, UINT32_MAX, "bytes"),
        "The largest event that is accepted, before and after decompression. The"
        " default is MySQL's own limit, 1 GiB. A larger event stops the instance with a"
        " [DecodeError](messages.md) before it is in memory. An entry may have 4 times"
        " this size, but at least 64 MiB and at most 2 GiB.",
        ours=True,
    ),
    Key(
        "canal.instance.binlog.format",
        "source.binlog_formats",
        values.names("ROW", "STATEMENT", "MIXED"),
        "The binlog formats that are accepted. Empty accepts all. Only ROW contains"
        " rows; a change that the source logs as a statement reaches clients as a"
        " statement.",
    ),
    Key(
        "canal.instance.binlog.image",
        "source.binlog_images",
        values.names("FULL", "MINIMAL", "NOBLOB"),
        "The row images that are accepted. Empty accepts all. With MINIMAL and NOBLOB a"
        " row has only the columns that were logged.",
    ),
    Key(
        "canal.instance.fallbackIntervalInSeconds",
        "source.fallback_interval_s",
        values.integer(0, INT32_MAX, "seconds"),
        "How far to go back in the binlog when another server takes over, at another"
        " address or at the same one, and GTIDs are not used.",
    ),
    Key(
        "canal.auto.reset.latest.pos.mode",
        "source.auto_reset_latest",
        values.boolean,
        "What happens when the source has reported three times that the position of a"
        " client is purged. `true` moves the client to the oldest position of the"
        " other clients, or to the end of the binlog when those are purged as well:"
        " changes are lost. `false` [refuses that"
        " client](../howto/purged-positions.md).",
    ),
    Key(
        "canal.instance.standby.lag.max.seconds",
        "source.standby_lag_max_s",
        values.integer(0, INT32_MAX, "seconds"),
        "A standby that lags more than this may not take over. 0 accepts any lag.",
        ours=True,
    ),
    Key(
        "canal.instance.detecting.enable",
        "source.detecting.enable",
        values.boolean,
        "`true` probes the source periodically.",
    ),
    Key(
        "canal.instance.detecting.sql",
        "source.detecting.sql",
        values.text,
        "The statement that probes the source. Empty sends a ping of the protocol.",
    ),
    Key(
        "canal.instance.detecting.interval.time",
        "source.detecting.interval_s",
        values.seconds(1, DAY_S),
        "The time between two probes.",
    ),
    Key(
        "canal.instance.detecting.retry.threshold",
        "source.detecting.retry_threshold",
        values.integer(0, INT32_MAX),
        "The number of failures in a row that are tolerated.",
    ),
    Key(
        "canal.instance.detecting.heartbeatHaEnable",
        "source.detecting.switch_to_standby",
        values.boolean,
        "`true` switches to the [standby](../howto/standby.md) at the next failure.",
    ),
)

SOURCE_KEYS = (
    *host_keys("master"),
    unreadable_key(),
    *host_keys("standby"),
    *CONNECTION_KEYS,
)
