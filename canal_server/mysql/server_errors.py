"""What a server's error means: lost, purged, refused, or merely failed.

Leaves out the reaction to it, which is up to the owner of the connection.
"""

from __future__ import annotations

import struct

from canal_server.errors import (
    BinlogPurged,
    ConnectionLost,
    SourceError,
    SourceRefused,
)
from canal_server.model.quoted import printable

ERROR_MARK = 0xFF  # first byte of an error packet
TEXT_MAX = 1_024  # characters of a server's text in an error; MySQL sends up to 512

READING_BINLOG_FAILED = 1236  # the one code for everything that ends a dump
_SAME_ID = 4052  # MariaDB's code for a replica's id in use; others send 1236
_DENIED = 1045  # at login: name or password; later: a missing privilege

# The connection is lost or about to be; the next one may work.
_LOST = frozenset(
    {
        1053,  # server shutdown in progress
        1077,  # normal shutdown
        1152,  # aborting connection
        1158, 1159, 1160, 1161,  # network read or write failed or timed out
        1184,  # aborting new connection
        1317,  # query execution was interrupted
        1927,  # connection was killed
        2002, 2003, 2005, 2006, 2013, 2014, 2055,  # of the client library
        3032,  # the server is currently in offline mode
        3169,  # session was killed
        4031,  # disconnected because of inactivity
    }
)  # fmt: skip

_GRANT = "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {account}"
_ACCOUNT = (
    "correct the user name or the password in the settings, or create the account:"
    " CREATE USER {account} IDENTIFIED BY 'its password'"
)

_PLUGIN = (
    "give account {account} the plugin caching_sha2_password (MariaDB:"
    " mysql_native_password)"
)

# The server refuses: error code to remedy.
_REFUSED = {
    1044: f"have an administrator run: {_GRANT}",
    _DENIED: _ACCOUNT,
    1095: f"have an administrator run: {_GRANT}",
    1129: "run TRUNCATE TABLE performance_schema.host_cache on the server (MariaDB:"
    " FLUSH HOSTS)",
    1130: "allow account {account} to log in from this host",
    1142: f"have an administrator run: {_GRANT}",
    1143: f"have an administrator run: {_GRANT}",
    1227: f"have an administrator run: {_GRANT}",
    1251: _PLUGIN,
    1370: f"have an administrator run: {_GRANT}",
    1698: _ACCOUNT,
    1820: "give account {account} a new password: the old one has expired",
    1862: "give account {account} a new password: the old one has expired",
    2026: "enable TLS on the server or set sslMode=DISABLED",
    2059: _PLUGIN,
    3118: "unlock account {account}",
    3159: "set sslMode=REQUIRED: the server requires TLS",
    3955: _ACCOUNT,
}

# Texts of error 1236, in lower case: MySQL's and MariaDB's, including the wording from
# before "source" and "replica".

# The requested file, offset or GTIDs are not on the server. A damaged file or an offset
# inside an event must not be listed here: an operator who chose to resume at the end
# when the position is lost would lose data that still exists.
_PURGED_TEXTS = (
    "purged",
    "could not find first log file",
    "position > file size",
    "impossible position",  # the same from MariaDB
    "which is not in the",  # from MariaDB, about a GTID, like the next two
    "could not find gtid state",
    "gtid state not found",
    "is missing the gtid",  # from MariaDB: a gap in its binlog
    "more gtids than the",  # from MySQL: its binlog was lost or reset
)
# What a server reads from the middle of an event looks damaged or too long (see below).
_AMID_TEXTS = (
    "truncated in the middle of event",
    "bogus data in log event",
    "does not correspond to the location of any binlog event",
)
_AMID = "the start position may be inside an event: choose one between transactions"
# Causes in the server's settings, not in the position.
_REFUSING_TEXTS = (
    ("binary log is not open", "set log_bin on the server and restart it"),
    ("gtid_mode", "set gtid_mode=ON on the server, or do not start by GTID"),
    ("events with the checksum", "upgrade canal-server: the checksum is unknown"),
    (
        "max_allowed_packet",
        f"{_AMID}; otherwise raise max_allowed_packet on the server",
    ),
    ("server id was not set", "set server_id on the server"),
    ("misconfigured", "see the error log of the server"),
)


def source_error(
    errno: int,
    text: str,
    *,
    address: str,
    user: str = "",
    host: str = "%",
    logged_in: bool = True,
    position: str = "",
) -> SourceError:
    """Return the error to raise for an error that a server reports.

    `errno` is the server's or PyMySQL's code; `address`, `user` and `position` (the
    start of a dump) are for the message. The text is the server's.
    """
    shown = printable(text.strip().rstrip("."), TEXT_MAX)
    message = f"{address}: {shown} (error {errno})"
    if errno == READING_BINLOG_FAILED:
        message += f", requested start {position}" if position else ""
        return _dump_error(text, message)
    if errno == _SAME_ID:
        return _same_id(message, errno)
    if errno in _LOST:
        return ConnectionLost(message, errno=errno)
    if errno in _REFUSED:
        # A missing privilege to register as a replica is reported like a wrong
        # password.
        remedy = _REFUSED[1227 if errno == _DENIED and logged_in else errno].format(
            account=account_text(user or "canal", host)
        )
        return SourceRefused(f"{message}; {remedy}", errno=errno)
    return SourceError(message, errno=errno)


def account_text(user: str, host: str = "%") -> str:
    """Return an account as statements name it, with its host."""
    name, where = (
        each.replace("\\", "\\\\").replace("'", "''") for each in (user, host)
    )
    return f"'{name}'@'{where}'"


def is_missing_privilege(errno: int) -> bool:
    """Return whether a server refuses a logged-in account what a GRANT would allow."""
    return errno == _DENIED or _GRANT in _REFUSED.get(errno, "")


def _same_id(message: str, errno: int) -> ConnectionLost:
    """Return the error for an id that another replica has: the position is valid."""
    return ConnectionLost(
        f"{message}; two replicas use one id: give each instance its own"
        " canal.instance.mysql.slaveId",
        errno=errno,
    )


def _dump_error(text: str, message: str) -> SourceError:
    low = text.lower()
    if "same server_uuid" in low or "same server_id" in low:
        return _same_id(message, READING_BINLOG_FAILED)
    if any(part in low for part in _PURGED_TEXTS):
        return BinlogPurged(
            f"{message}; the binlog of this server does not contain that position: it"
            " was purged, or belongs to another server",
            errno=READING_BINLOG_FAILED,
        )
    for part, remedy in _REFUSING_TEXTS:
        if part in low:
            return SourceRefused(f"{message}; {remedy}", errno=READING_BINLOG_FAILED)
    if any(part in low for part in _AMID_TEXTS):
        message = f"{message}; {_AMID}, or the file is damaged"
    return SourceError(message, errno=READING_BINLOG_FAILED)


def is_refusal(error: Exception) -> bool:
    """Return whether a server reports that it has nothing to read at a position.

    A refused or broken connection, or a server that is too busy, proves nothing about
    the position: a retry may find it.
    """
    return (
        isinstance(error, SourceError)
        and not isinstance(error, ConnectionLost)
        and error.errno == READING_BINLOG_FAILED
    )


def parse_error_packet(payload: bytes | memoryview) -> tuple[int, str]:
    """Return code and text of an error packet, given without its header.

    Raises ValueError when it is not an error packet::

        ff | errno u16 | ['#' sqlstate[5]] | text up to the end
    """
    data = bytes(payload)
    if len(data) < 3 or data[0] != ERROR_MARK:  # noqa: PLR2004  # marker and code
        raise ValueError(f"not an error packet: {data[:16].hex()}")
    (errno,) = struct.unpack_from("<H", data, 1)
    text = data[9:] if data[3:4] == b"#" else data[3:]
    return errno, text.decode("utf-8", "replace")


def error_of_packet(
    payload: bytes | memoryview, *, address: str, user: str = "", position: str = ""
) -> SourceError:
    """Return the error for an error packet of the dump stream.

    `position` is the start of the dump, for the text; empty when unknown. Bytes that
    are not an error packet become a ConnectionLost that shows them.
    """
    try:
        errno, text = parse_error_packet(payload)
    except ValueError as error:
        return ConnectionLost(f"{address}: {error}")
    return source_error(errno, text, address=address, user=user, position=position)
