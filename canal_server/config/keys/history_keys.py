"""The keys of the history of tables."""

from __future__ import annotations

from canal_server.config import history_location, values
from canal_server.config.keys.setting import Key
from canal_server.config.keys.store_keys import DATA_DIR_KEY

HOURS_MAX = 100 * 366 * 24

TABLE_META_KEYS = (
    Key(
        "canal.instance.tsdb.enable",
        "table_meta.enable",
        values.boolean,
        "`false` keeps no history: all events are read with the columns that the tables"
        " have today.",
    ),
    Key(
        history_location.DIR_KEY,
        "table_meta.dir",
        values.folder,
        "The folder of the file `tablemeta.sqlite`. Each destination needs a folder of"
        " its own.",
        default=f"`${{{DATA_DIR_KEY}}}/<destination>`",
    ),
    Key(
        # The URL may contain a password.
        history_location.URL_KEY,
        "table_meta.database",
        history_location.database,
        "Where the history is kept. Empty, or a URL that starts with `jdbc:h2:`, means"
        " that file. Otherwise it is a MySQL or MariaDB server. The options of the URL"
        " that are read are those about TLS, `sslMode` (`PREFERRED` unless set) and"
        " `useSSL`, and those about the key for a password without TLS,"
        " `allowPublicKeyRetrieval` and `serverRSAPublicKeyFile`. Servers that share"
        " destinations (`canal.zkServers`) should share the history too: without a"
        " MySQL here they start with a [warning](../howto/cluster.md).",
        secret=True,
    ),
    Key(
        history_location.USER_KEY,
        "table_meta.user",
        values.text,
        "The account on the server of `canal.instance.tsdb.url`. It needs CREATE,"
        " SELECT, INSERT, UPDATE and DELETE on the database.",
    ),
    Key(
        "canal.instance.tsdb.dbPassword",
        "table_meta.password",
        values.text,
        "The password of `canal.instance.tsdb.dbUsername`.",
        secret=True,
        has_forms=True,
        is_late=True,
    ),
    Key(
        "canal.instance.tsdb.snapshot.interval",
        "table_meta.snapshot_interval_h",
        values.integer(0, HOURS_MAX, "hours"),
        "The time between two snapshots of all tables, if any table changed. A snapshot"
        " is also written after 200 statements; with 0, only then.",
    ),
    Key(
        "canal.instance.tsdb.snapshot.expire",
        "table_meta.snapshot_expire_h",
        values.integer(0, HOURS_MAX, "hours"),
        "How long the history is kept. 0 keeps it forever.",
    ),
)
