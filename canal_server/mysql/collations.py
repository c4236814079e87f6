"""Names of collations by id, which is how the binlog records them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.errors import SourceError
from canal_server.mysql.server_answers import reads_answers

if TYPE_CHECKING:
    from canal_server.mysql.control_connection import ControlConnection

# In one row: each destination asks when it starts, and hundreds of rows take longer.
_LENGTH = "SET SESSION group_concat_max_len = 1048576"
_IDS = "SELECT GROUP_CONCAT(ID, ' ', COLLATION_NAME) FROM information_schema.COLLATIONS"
# MariaDB since 10.10: collations for several character sets have an id only together
# with a character set.
_FULL_IDS = """SELECT GROUP_CONCAT(ID, ' ', FULL_COLLATION_NAME)
  FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"""


@reads_answers("its collations")
def collation_names(connection: ControlConnection) -> dict[int, str]:
    """Return all collations of a server. Raises SourceError."""
    connection.query(_LENGTH)
    rows = []
    if connection.is_mariadb:
        try:
            rows = connection.query(_FULL_IDS)
        except SourceError as error:
            if not connection.is_open:
                raise
            del error  # an older server has no such column
    rows = rows or connection.query(_IDS)
    found = str(rows[0][0]).split(",")
    return {int(number): name for number, _, name in (x.partition(" ") for x in found)}
