"""Reads where the table history is kept: a JDBC URL and the name of a component set.

Both are the original's, which is told its database by one and its SQL by the other.
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
    "leave it empty for a file in canal.instance.tsdb.dir, or write"
    " jdbc:mysql://host:port/database"
)
EMBEDDED = "jdbc:h2:"
DATABASE_CHARACTERS_MAX = 64
NAMED_MAX = 5  # destinations in a warning

# Component sets of the original: whether they are those of a MySQL.
COMPONENT_SETS = {"h2-tsdb.xml": False, "mysql-tsdb.xml": True}


def database(value: str) -> MysqlDatabase | None:
    """Read `jdbc:mysql://host:port/database?options`; None for the embedded one.

    Of the options those about TLS and about the key for a password count.
    """
    if value.lower().startswith(EMBEDDED):
        return None
    found = re.fullmatch(
        r"jdbc:mysql://(?P<address>[^/?#]*)/(?P<database>[^/?#]*)(\?(?P<options>.*))?",
        value,
        re.IGNORECASE,
    )
    if not found:
        raise ValueError(f"not the URL of a MySQL data base; {URL_REMEDY}")
    if "," in found["address"]:
        raise ValueError("names several servers; write one host:port")
    if "@" in found["address"]:
        raise ValueError(
            f"holds an account; write {USER_KEY} and canal.instance.tsdb.dbPassword"
            " instead"
        )
    name = unquote(found["database"])
    if not 0 < len(name) <= DATABASE_CHARACTERS_MAX:
        raise ValueError(f"names no data base; {URL_REMEDY}")
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
    """Read which key a password without TLS is for, as Connector/J calls it."""
    key, retrieval = None, None
    for name, value in parse_qsl(options):
        word = name.lower()
        if word == "serverrsapublickeyfile":
            key = values.folder(value)
            if not (key.is_absolute() and os.access(key, os.R_OK)):
                raise ValueError(
                    f"cannot read {name} {value}; name a PEM file, with its whole path"
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
                f"holds an account; write {USER_KEY} and"
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
    """Note settings that contradict each other; `file` is where one is missing."""
    if not config.enable:
        return

    def note(key: str, wrong: str) -> None:
        found = find(lookup, key, problems)
        # A URL may hold a password.
        problems.add(
            found.origin if found else file,
            key,
            found.text if found else "",
            wrong,
            secret=key == URL_KEY,
        )

    wants_mysql = _component_set(lookup, problems)
    if wants_mysql is False and config.database is not None:
        note(
            SPRING_KEY,
            f"the set for a file, but {URL_KEY} names a MySQL; write"
            " classpath:spring/tsdb/mysql-tsdb.xml, or take one of the two out",
        )
    # A URL that cannot be read is a problem already.
    url = find(lookup, URL_KEY, problems, secret=True)
    is_mysql = url is not None and not url.text.lower().startswith(EMBEDDED)
    if wants_mysql and not is_mysql:
        note(
            URL_KEY,
            f"names no MySQL, but {SPRING_KEY} is the set for one; write"
            " jdbc:mysql://host:port/database, or h2-tsdb.xml there",
        )
    if config.database is not None and not config.user:
        note(USER_KEY, f"no account for the MySQL of {URL_KEY}; name one")


def check_folders(
    instances: Sequence[InstanceConfig], file: str, problems: Problems
) -> None:
    """Note destinations that would write the same file."""
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
                f"the folder of {other} and of {instance.destination}; put"
                " ${canal.instance.destination} into its path",
            )


def shared_hints(instances: Sequence[InstanceConfig], file: str) -> list[str]:
    """Return a warning of a cluster whose servers keep a history each."""
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
            " names no MySQL, so each server keeps the table history in a file of its"
            " own: one that takes over for the first time does not know the columns"
            " from before a DDL statement, and may stop with a TableMetaError; set"
            f" {URL_KEY} = jdbc:mysql://host:port/database on all of them"
        )
    ]


def _component_set(lookup: Lookup, problems: Problems) -> bool | None:
    """Tell whether the set is for a MySQL; None when none is named."""
    found = find(lookup, SPRING_KEY, problems)
    if found is None:
        return None
    wants_mysql = COMPONENT_SETS.get(found.text.replace(":", "/").rpartition("/")[2])
    if wants_mysql is None:
        problems.add(
            found.origin,
            SPRING_KEY,
            found.text,
            "not a known component set; leave it empty, or write"
            f" classpath:spring/tsdb/{' or '.join(COMPONENT_SETS)}",
        )
    return wants_mysql
