"""What is wrong with a column of a typed row, for whoever can mend it."""

from __future__ import annotations

from canal_server.decoder.arrow_put import KINDS

_NAMES = {number: name for name, number in KINDS.items()}


def unreadable(column: str, mysql_type: str, kind: int, shown: str) -> str:
    """Say that a value is none of the kind that is wanted."""
    wanted = _NAMES[kind]
    if wanted in ("text", "binary"):
        return (
            f"{column}: it is {mysql_type or 'of an unknown type'} here, and cannot be "
            f"read as {wanted}: begin the stream anew with its new type"
        )
    kind_here = mysql_type or "type unknown"
    return f"{column} ({kind_here}): the value {shown!r} cannot be read as {wanted}"


def not_logged(column: str) -> str:
    """Say that a row lacks a column."""
    return (
        f"{column} is not in the row's image: typed columns need whole rows, set "
        "binlog_row_image = FULL on the server (for its sessions, too); if the column "
        "was dropped, begin the stream anew with the table's new columns"
    )


def without_members(column: str, mysql_type: str) -> str:
    """Say that the labels of an ENUM or a SET cannot be told."""
    return (
        f"{column}: the members of its type ({mysql_type}) are not known; "
        "binlog_row_metadata = FULL on the server makes it tell them"
    )
