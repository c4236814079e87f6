"""Reads where the table history is kept: a JDBC URL and the name of a component set.

Both are keys of the Java server: one selects its database, the other its SQL.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from canal_server.config import values
from canal_server.config.problems import find
from canal_server.config.schema import MysqlDatabase, SslMode, Wiring

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from canal_server.config.problems import Problems
    from canal_server.config.schema import InstanceConfig, TableMetaConfig
    from canal_server.config.substitution import Lookup

SPRING_KEY = "canal.instance.tsdb.spring.xml"
DIR_KEY = "canal.instance.tsdb.dir"
URL_KEY = "canal.instance.tsdb.url"
USER_KEY = "canal.instance.tsdb.dbUsername"

URL_REMEDY = (
    "leave it empty to use a file in canal.instance.tsdb.dir, or write"
    " jdbc:mysql://host:port/database"
)
EMBEDDED = "jdbc:h2:"
DATABASE_CHARACTERS_MAX = 64
NAMED_MAX = 5  # destinations in a warning

# Component sets of the Java server, and whether they are for MySQL.
COMPONENT_SETS = {"h2-tsdb.xml": False, "mysql-tsdb.xml": True}


@values.reader("`jdbc:mysql://host:port/database?options`")
def database(value: str) -> MysqlDatabase | None:
    """Parse `jdbc:mysql://host:port/database?options`; None for the embedded database.

    Only the options for TLS and for the public key have an effect.
    """
    if value.lower().startswith(EMBEDDED):
        return None
    found = re.fullmatch(
        r"jdbc:mysql://(?P<address>[^/?#]*)/(?P<database>[^/?#]*)(\?(?P<options>.*))?",
        value,
        re.IGNORECASE,
    )
    if not found:
        raise ValueError(f"not the URL of a MySQL database; {URL_REMEDY}")
    if "," in found["address"]:
        raise ValueError("contains several servers; write one host:port")
    if "@" in found["address"]:
        raise ValueError(
            f"contains an account; set {USER_KEY} and canal.instance.tsdb.dbPassword"
            " instead"
        )
    name = unquote(found["database"])
    if not 0 < len(name) <= DATABASE_CHARACTERS_MAX:
        raise ValueError(f"contains no database name; {URL_REMEDY}")
    options = found["options"] or ""
    key, retrieval = _public_key(options)
    return MysqlDatabase(
        values.address(found["address"]),
        name,
        _ssl_mode(options),
        server_public_key=key,
        allow_public_key_retrieval=retrieval,
    )


def _public_key(options: str) -> tuple[Path | None, bool | None]:
    """Parse the options for the public key, which have the names of Connector/J."""
    key, retrieval = None, None
    for name, value in parse_qsl(options):
        word = name.lower()
        if word == "serverrsapublickeyfile":
            key = values.folder(value)
            if not (key.is_absolute() and os.access(key, os.R_OK)):
                raise ValueError(
                    f"cannot read {name} {value}; set the absolute path of a PEM file"
                )
        if word == "allowpublickeyretrieval":
            retrieval = values.boolean(value)
    return key, retrieval


def _ssl_mode(options: str) -> SslMode:
    mode = SslMode.PREFERRED
    for name, value in parse_qsl(options):
        word = name.lower()
        if word in ("user", "password"):
            raise ValueError(
                f"contains an account; set {USER_KEY} and"
                " canal.instance.tsdb.dbPassword instead"
            )
        if word == "usessl":
            mode = SslMode.REQUIRED if values.boolean(value) else SslMode.DISABLED
        if word == "sslmode":
            return values.ssl_mode(value)
    return mode


def check(
    config: TableMetaConfig, lookup: Lookup, problems: Problems, file: str
) -> None:
    """Report contradicting settings; `file` is the one in which a key is missing."""
    if not config.enable:
        return

    def note(key: str, wrong: str) -> None:
        found = find(lookup, key, problems)
        # A URL may contain a password.
        problems.add(
            found.origin if found else file,
            key,
            found.text if found else "",
            wrong,
            secret=key == URL_KEY,
        )

    selects_mysql = _component_set(lookup, problems)
    if selects_mysql is False and config.database is not None:
        note(
            SPRING_KEY,
            f"a component set for a file, but {URL_KEY} is a MySQL URL; write"
            " classpath:spring/tsdb/mysql-tsdb.xml, or remove one of the two",
        )
    # A URL that cannot be parsed has been reported already.
    url = find(lookup, URL_KEY, problems, secret=True)
    is_mysql = url is not None and not url.text.lower().startswith(EMBEDDED)
    if selects_mysql and not is_mysql:
        note(
            URL_KEY,
            f"not a MySQL URL, but {SPRING_KEY} is the component set for one; write"
            " jdbc:mysql://host:port/database, or set h2-tsdb.xml there",
        )
    if config.database is not None and not config.user:
        note(USER_KEY, f"no account for the MySQL server of {URL_KEY}; set one")


def check_folders(
    instances: Sequence[InstanceConfig], file: str, problems: Problems
) -> None:
    """Report destinations that would write the same file."""
    first: dict[Path, str] = {}
    for instance in instances:
        config = instance.table_meta
        if not config.enable or config.database is not None:
            continue
        other = first.setdefault(config.dir, instance.destination)
        if other != instance.destination:
            problems.add(
                file,
                DIR_KEY,
                str(config.dir),
                f"the same folder for {other} and {instance.destination}; use"
                " ${canal.instance.destination} in the path",
            )


def shared_hints(instances: Sequence[InstanceConfig], file: str) -> list[str]:
    """Return a warning if servers of a cluster keep separate table histories."""
    alone = [
        each.destination
        for each in instances
        if each.position.wiring is Wiring.ZOOKEEPER
        and each.table_meta.enable
        and each.table_meta.database is None
    ]
    if not alone:
        return []
    names = ", ".join(alone[:NAMED_MAX])
    if len(alone) > NAMED_MAX:
        names += f" and {len(alone) - NAMED_MAX} more"
    return [
        (
            f"{file}: canal.zkServers shares {names} with other servers, but {URL_KEY}"
            " is not a MySQL URL, so each server keeps the table history in its own"
            " file: a server that takes over for the first time does not know the"
            " columns from before a DDL statement and may stop with a TableMetaError;"
            f" set {URL_KEY} = jdbc:mysql://host:port/database on all servers"
        )
    ]


def _component_set(lookup: Lookup, problems: Problems) -> bool | None:
    """Return whether the component set is for MySQL; None if none is set."""
    found = find(lookup, SPRING_KEY, problems)
    if found is None:
        return None
    selects_mysql = COMPONENT_SETS.get(found.text.replace(":", "/").rpartition("/")[2])
    if selects_mysql is None:
        problems.add(
            found.origin,
            SPRING_KEY,
            found.text,
            "unknown component set; leave it empty, or write"
            f" classpath:spring/tsdb/{' or '.join(COMPONENT_SETS)}",
        )
    return selects_mysql
