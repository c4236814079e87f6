"""The door to sqlglot: SQL text of MySQL and MariaDB as tokens, and a reader for them.

Words keep their text: the reader of the tokens decides what is a keyword, because most
keywords may be names as well. Leaves out what the statements mean
(`canal_server.tablemeta`). Only code that parses SQL text imports it.
"""

from canal_server.doors.sqltext.sql_reader import NAME, STRING, SqlReader
from canal_server.doors.sqltext.sql_tokens import (
    Dialect,
    Kind,
    SqlTextError,
    Token,
    tokens,
)

__all__ = [
    "NAME",
    "STRING",
    "Dialect",
    "Kind",
    "SqlReader",
    "SqlTextError",
    "Token",
    "tokens",
]
