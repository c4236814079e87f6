"""What releases of MySQL and MariaDB can do, for programs that run on all of them.

From the manuals; what every release can that is promised is not listed.
"""

from __future__ import annotations

from typing import Final

Version = tuple[int, int, int]

NEVER: Final = (1 << 16, 0, 0)

# By feature: the first MySQL that has it, and the first MariaDB.
SINCE: Final[dict[str, tuple[Version, Version]]] = {
    "ALTER TABLE … RENAME COLUMN": ((8, 0, 0), (10, 5, 2)),
    "columns of type JSON": ((5, 7, 8), NEVER),
    "JSON as a name of a type": ((5, 7, 8), (10, 2, 7)),
    "generated columns": ((5, 7, 6), (10, 2, 1)),
    "columns of type VECTOR": ((9, 0, 0), (11, 7, 1)),
    "columns of type UUID": (NEVER, (10, 7, 0)),
    "columns of type INET6": (NEVER, (10, 5, 0)),
    "columns of type INET4": (NEVER, (10, 10, 0)),
    "compressed columns": (NEVER, (10, 3, 2)),
    "CREATE TABLE … SELECT with GTIDs": ((8, 0, 21), (10, 0, 2)),
    "binlog_row_metadata": ((8, 0, 1), (10, 5, 0)),
    "binlog_transaction_compression": ((8, 0, 20), NEVER),
    "log_bin_compress": (NEVER, (10, 2, 3)),
    "SET GLOBAL gtid_mode": ((5, 7, 6), NEVER),
    "caching_sha2_password": ((8, 0, 3), NEVER),
    "TLS 1.3": ((8, 0, 16), (10, 4, 6)),
    "sql_generate_invisible_primary_key": ((8, 0, 30), NEVER),
}
# The same of what only tools and tests ask for.
STATEMENTS: Final[dict[str, tuple[Version, Version]]] = {
    "RESET BINARY LOGS AND GTIDS": ((8, 2, 0), NEVER),
    "START REPLICA": ((8, 0, 22), (10, 5, 1)),
    "CHANGE REPLICATION SOURCE": ((8, 0, 23), NEVER),
    "REPLICA MONITOR": (NEVER, (10, 5, 9)),
    "REPLICATION MASTER ADMIN": (NEVER, (10, 5, 2)),
    "WAIT_FOR_EXECUTED_GTID_SET": ((5, 7, 5), NEVER),
    "general tablespaces": ((8, 0, 0), NEVER),
    "full_collation_name": (NEVER, (10, 10, 1)),
    # 10.2.11 has NULL instead, 10.4.20 has them; others could not be tried.
    "virtual columns in the binlog": ((5, 7, 6), (10, 4, 0)),
    "EXCHANGE PARTITION … WITHOUT VALIDATION": ((5, 7, 5), (11, 4, 1)),
    "CONVERT TABLE … TO PARTITION": (NEVER, (10, 7, 1)),
}


def has_feature(flavour: str, version: Version, feature: str) -> bool:
    """Return whether a release has a feature of the table."""
    mysql, mariadb = (SINCE | STATEMENTS)[feature]
    return version >= (mariadb if flavour == "mariadb" else mysql)
