"""What a server's error means for us: lost, purged, refused, or merely failed.

Leaves out what is done about it: that is for whoever holds the connection.
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
TEXT_MAX = 1_024  # characters of a server's words in an error; MySQL sends up to 512

READING_BINLOG_FAILED = 1236  # the one number for all that ends a dump
_DENIED = 1045  # at login: by name or password; later: for want of a right

# The connection is gone or about to go; the next one may work.
_LOST = frozenset(
    {
        1053,  # server shutdown in progress
        1077,  # normal shutdown
        1152,  # aborting connection
        1158, 1159, 1160, 1161,  # network read or write failed or took too long
        1184,  # aborting new connection
        1317,  # query execution was interrupted
        1927,  # connection was killed
        2002, 2003, 2005, 2006, 2013, 2014, 2055,  # the client library's
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

# The server refuses: number to remedy.
_REFUSED = {
    1044: f"let an administrator run: {_GRANT}",
    _DENIED: _ACCOUNT,
    1095: f"let an administrator run: {_GRANT}",
    1129: "run TRUNCATE TABLE performance_schema.host_cache on the server (MariaDB:"
    " FLUSH HOSTS)",
    1130: "let account {account} log in from this host",
    1142: f"let an administrator run: {_GRANT}",
    1143: f"let an administrator run: {_GRANT}",
    1227: f"let an administrator run: {_GRANT}",
    1251: _PLUGIN,
    1370: f"let an administrator run: {_GRANT}",
    1698: _ACCOUNT,
    1820: "give account {account} a new password: the old one has expired",
    1862: "give account {account} a new password: the old one has expired",
    2026: "switch TLS on at the server or set sslMode=DISABLED",
    2059: _PLUGIN,
    3118: "unlock account {account}",
    3159: "set sslMode=REQUIRED: the server wants TLS",
    3955: _ACCOUNT,
}

# Texts behind 1236, in lower case: MySQL's and MariaDB's, also their words from before
# "source" and "replica".

# The file, the offset or the GTIDs that we ask for are not on the server. A damaged
# file or an offset amid an event must not be here: who has asked to go on at the end
# when the place is gone would lose what is still there.
_GONE_TEXTS = (
    "purged",
    "could not find first log file",
    "position > file size",
    "impossible position",  # the same of MariaDB
    "which is not in the",  # MariaDB's, of a GTID, as the next two
    "could not find gtid state",
    "gtid state not found",
    "is missing the gtid",  # MariaDB's: a hole in its binlog
    "more gtids than the",  # MySQL's: its binlog was lost or begun anew
)
# What a server reads from the middle of an event looks damaged; or too long, see below.
_AMID_TEXTS = (
    "truncated in the middle of event",
    "bogus data in log event",
    "does not correspond to the location of any binlog event",
)
_AMID = (
    "the position to begin at may not be the beginning of an event: take one between "
    "transactions"
)
# Settings of the server, not a place in the binlog.
_REFUSING_TEXTS = (
    ("binary log is not open", "set log_bin on the server and restart it"),
    ("gtid_mode", "set gtid_mode=ON on the server, or do not start by GTID"),
    ("events with the checksum", "upgrade: the server's checksums are unknown here"),
    ("max_allowed_packet", f"{_AMID}; else raise max_allowed_packet on the server"),
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
    place: str = "",
) -> SourceError:
    """Return the error to raise for an error that a server reports.

    `errno` is the server's number or PyMySQL's, `address`, `user` and `place` (where a
    dump was to begin) are for the message. The text is the server's own.
    """
    shown = printable(text.strip().rstrip("."), TEXT_MAX)
    told = f"{address}: {shown} (error {errno})"
    if errno == READING_BINLOG_FAILED:
        told += f", asked to begin at {place}" if place else ""
        return _dump_error(text, told)
    if errno in _LOST:
        return ConnectionLost(told, errno=errno)
    if errno in _REFUSED:
        # Registering as a replica without the right to is answered as a wrong
        # password is.
        remedy = _REFUSED[1227 if errno == _DENIED and logged_in else errno].format(
            account=account_text(user or "canal", host)
        )
        return SourceRefused(f"{told}; {remedy}", errno=errno)
    return SourceError(told, errno=errno)


def account_text(user: str, host: str = "%") -> str:
    """Return an account as statements name it, with the host that it belongs to."""
    name, where = (
        each.replace("\\", "\\\\").replace("'", "''") for each in (user, host)
    )
    return f"'{name}'@'{where}'"


def is_for_want_of_a_right(errno: int) -> bool:
    """Tell whether a server that logged us in refuses what a GRANT would allow."""
    return errno == _DENIED or _GRANT in _REFUSED.get(errno, "")


def _dump_error(text: str, told: str) -> SourceError:
    low = text.lower()
    if "same server_uuid" in low or "same server_id" in low:
        # Another replica came with our id: the place in the binlog is as good as
        # before.
        return ConnectionLost(
            f"{told}; two replicas use one id: give each instance its own "
            "canal.instance.mysql.slaveId",
            errno=READING_BINLOG_FAILED,
        )
    if any(part in low for part in _GONE_TEXTS):
        return BinlogPurged(
            f"{told}; the binlog of this server does not hold that position: it was"
            " purged, or is another server's",
            errno=READING_BINLOG_FAILED,
        )
    for part, remedy in _REFUSING_TEXTS:
        if part in low:
            return SourceRefused(f"{told}; {remedy}", errno=READING_BINLOG_FAILED)
    if any(part in low for part in _AMID_TEXTS):
        told = f"{told}; {_AMID}, or the file is damaged"
    return SourceError(told, errno=READING_BINLOG_FAILED)


def is_refusal(error: Exception) -> bool:
    """Tell whether a server says that it has nothing to read at a place.

    A connection that was refused or broke, or a server that is too busy, says nothing
    about the place: asked again it may well be there.
    """
    return (
        isinstance(error, SourceError)
        and not isinstance(error, ConnectionLost)
        and error.errno == READING_BINLOG_FAILED
    )


def parse_error_packet(payload: bytes | memoryview) -> tuple[int, str]:
    """Return number and text of an error packet, given without its header.

    Raises ValueError when it is none::

        ff | errno u16 | ['#' sqlstate[5]] | text up to the end
    """
    data = bytes(payload)
    if len(data) < 3 or data[0] != ERROR_MARK:  # noqa: PLR2004  # mark and number
        raise ValueError(f"not an error packet: {data[:16].hex()}")
    (errno,) = struct.unpack_from("<H", data, 1)
    text = data[9:] if data[3:4] == b"#" else data[3:]
    return errno, text.decode("utf-8", "replace")


def error_of_packet(
    payload: bytes | memoryview, *, address: str, user: str = "", place: str = ""
) -> SourceError:
    """Return the error that an error packet of the dump stream stands for.

    `place` is where the dump was to begin, for the text; empty when that is not known.
    Bytes that are no error packet become a ConnectionLost that shows them.
    """
    try:
        errno, text = parse_error_packet(payload)
    except ValueError as error:
        return ConnectionLost(f"{address}: {error}")
    return source_error(errno, text, address=address, user=user, place=place)
