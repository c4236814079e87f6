"""Facts of a source that is set up well, to be changed by tests."""

from __future__ import annotations

from typing import Any

from server_variables import MYSQL

from canal_server.config.schema import HostConfig, InstanceConfig, SourceConfig
from canal_server.model.cursors import ClientCursor
from canal_server.model.identity import ClientIdentity
from canal_server.model.positions import EntryPosition, LogIdentity, LogPosition
from canal_server.mysql.account_grants import parse_grants
from canal_server.mysql.binlogs import BinaryLog
from canal_server.mysql.capture_settings import CaptureFacts
from canal_server.mysql.flavour import server_info
from canal_server.source.check.checked_source import CheckedSource
from canal_server.source.check.source_facts import SourceClock, SourceFacts
from canal_server.source.read.available_positions import SourceFiles

NOW_S = 1_763_719_200
HERE = LogIdentity("db", 3306)
FILES = SourceFiles(
    tuple(BinaryLog(f"binlog.{number:06}", 1000) for number in (3, 4, 5))
)
GRANT = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO `u`@`%`"


def facts_of(
    *, variables: dict[str, str] | None = None, grants: str = GRANT, **parts: Any
) -> SourceFacts:
    """Return facts with other global variables, grants, or parts."""
    capture = CaptureFacts(
        info=server_info(MYSQL | (variables or {})),
        account=("u", "%"),
        grants=parse_grants([grants]) if grants else None,
    )
    good: dict[str, Any] = {
        "clock": SourceClock(NOW_S, 0.1),
        "tables": [("shop", "orders"), ("shop", "items"), ("hr", "people")],
        "keys": [],
        "files": FILES,
        "end_file": "binlog.000005",
        "purged": "",
        "replicas": [],
        "unlogged": [],
        "oldest_ms": (NOW_S - 3600) * 1000,
    }
    return SourceFacts(address="db:3306", capture=capture, **good | parts)


def checked_of(
    *cursors: ClientCursor,
    host: HostConfig | None = None,
    is_running: bool = False,
    is_reading: bool = False,
    destination: str = "example",
    filters: Any = None,
    **source: Any,
) -> CheckedSource:
    """Return the master of a destination, as it is configured."""
    more = {"filter": filters} if filters is not None else {}
    config = InstanceConfig(
        destination=destination, source=SourceConfig(**source), **more
    )
    return CheckedSource(
        config=config,
        role="master",
        host=host or HostConfig(),
        identity=HERE,
        cursors=cursors,
        is_running=is_running,
        is_reading=is_reading,
        host_name="here",
    )


def client_at(
    file: str,
    offset: int = 4,
    *,
    client: int = 1001,
    age_s: int = 0,
    gtid: str | None = None,
    server: LogIdentity = HERE,
) -> ClientCursor:
    """Return a client with a position."""
    position = EntryPosition(file, offset, (NOW_S - age_s) * 1000, 1, gtid)
    return ClientCursor(
        ClientIdentity("example", client, ""), LogPosition(server, position)
    )
