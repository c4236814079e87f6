"""The keys of the transaction buffer, the event store and the cursors."""

from __future__ import annotations

from pathlib import Path

from canal_server.config import values
from canal_server.config.keys.setting import Key
from canal_server.config.schema import MIB
from canal_server.config.values import INT32_MAX

SLOTS_MAX = 2**24  # of a ring; each costs some bytes also when it is empty
DATA_DIR_KEY = "canal.file.data.dir"
DATA_DIR_DEFAULT = Path("../conf")

STORE_KEYS = (
    Key(
        "canal.instance.transaction.size",
        "buffer.transaction_size",
        values.power_of_two(SLOTS_MAX),
        "The number of entries that are buffered per transaction. A longer transaction"
        " is delivered in parts.",
    ),
    Key(
        "canal.instance.transaction.bytes.max",
        "buffer.memory_bytes_max",
        values.integer(64 * 1024, INT32_MAX, "bytes"),
        "The size that is buffered per transaction. A larger transaction is delivered"
        " in parts.",
        ours=True,
    ),
    Key(
        "canal.instance.memory.buffer.size",
        "store.buffer_size",
        values.power_of_two(SLOTS_MAX),
        "The number of entries, or of memory units, that the ring holds.",
    ),
    Key(
        "canal.instance.memory.buffer.memunit",
        "store.memunit",
        values.integer(1, INT32_MAX, "bytes"),
        "The size of a memory unit.",
    ),
    Key(
        "canal.instance.memory.batch.mode",
        "store.batch_mode",
        values.batch_mode,
        "What the size of the ring and of a batch counts. `MEMSIZE` counts memory"
        " units, `ITEMSIZE` counts entries.",
    ),
    Key(
        "canal.instance.memory.rawEntry",
        "store.raw_entry",
        values.boolean,
        "`true` counts an entry with its own size, `false` with six times the size of"
        " its event.",
    ),
    Key(
        "canal.instance.memory.block.bytes.max",
        "store.block_bytes_max",
        values.integer(1 * MIB, 2**40, "bytes"),
        "The memory that the ring may use, in either batch mode;"
        " [memory](../explanation/memory.md).",
        ours=True,
    ),
    Key(
        "canal.instance.get.ddl.isolation",
        "store.ddl_isolation",
        values.boolean,
        "`true` delivers each DDL statement in a separate batch.",
    ),
    Key(
        "canal.instance.get.linger.ms",
        "store.linger_ms",
        values.integer(0, 60_000, "milliseconds"),
        "How long a `get` that has entries waits for a fuller batch. 0 waits until the"
        " batch is full or the timeout of the `get` is over.",
        ours=True,
    ),
    Key(
        "canal.instance.ranged.memory.bytes",
        "store.ranged_bytes_max",
        values.integer(0, 2**40, "bytes"),
        "How much of the newest entries an instance with ranged subscriptions keeps in"
        " memory for them. Older entries are read from the source again.",
        ours=True,
    ),
    Key(
        "canal.instance.clients.max",
        "store.clients_max",
        values.integer(1, 65_536),
        "The maximum number of clients that may be subscribed at the same time. Further"
        " clients are refused. Stored subscriptions are kept.",
        ours=True,
    ),
    Key(
        "canal.instance.cursor.pin.seconds",
        "store.pin_seconds",
        values.integer(-1, INT32_MAX, "seconds"),
        "How long a full ring waits for"
        " [a client that disconnected](../howto/lagging-clients.md). -1 waits"
        " forever, as the Java server does. A group always waits.",
        ours=True,
    ),
)

POSITION_KEYS = (
    Key(
        DATA_DIR_KEY,
        "position.data_dir",
        values.folder,
        "The folder for cursors, with one folder per destination, and for the control"
        " socket.",
        default=f"`{DATA_DIR_DEFAULT}`",
    ),
    Key(
        "canal.file.flush.period",
        "position.flush_period_ms",
        values.integer(1, INT32_MAX, "milliseconds"),
        "The time between two writes of cursors to files.",
    ),
    Key(
        "canal.zkServers",
        "position.zookeeper_servers",
        values.zookeeper_servers,
        "The servers of ZooKeeper, for `default-instance.xml` and groups. The port may"
        " be omitted (2181), the path must exist. Lists that are separated by"
        " semicolons are one list. canal-servers with the same value"
        " [share their destinations](../howto/cluster.md). The value must be empty with"
        " other component sets: servers would share destinations but not their cursors,"
        " and a takeover would lose changes.",
    ),
    Key(
        "canal.zookeeper.flush.period",
        "position.zookeeper_flush_period_ms",
        values.integer(1, INT32_MAX, "milliseconds"),
        "The time between two writes of cursors to ZooKeeper.",
    ),
    Key(
        "canal.zookeeper.session.timeout.ms",
        "position.zookeeper_session_timeout_ms",
        values.integer(200, INT32_MAX, "milliseconds"),
        "After this time without a heartbeat, ZooKeeper ends the session of a server"
        " and another server may take over its destinations. A server that has no"
        " answer for two thirds of this time [stops them](../howto/cluster.md) itself."
        " ZooKeeper limits the value to its `minSessionTimeout` (2 ticks unless set)"
        " and `maxSessionTimeout` (20 ticks, 40 s unless set).",
        ours=True,
    ),
    Key(
        "canal.zookeeper.takeover.delay.ms",
        "position.zookeeper_takeover_delay_ms",
        values.integer(0, INT32_MAX, "milliseconds"),
        "How long a server waits before it takes over from a Java server. It takes over"
        " from another canal-server as soon as that one, or its session, has ended. The"
        " server that ran a destination last takes it back at once.",
        ours=True,
    ),
)
