"""The door to sqlglot: SQL text of MySQL and MariaDB into tokens, and reading them.

Words keep their text: what is a keyword, the reader of the tokens decides, as most of
them may be names as well. Leaves out what the statements mean
(`canal_server.tablemeta`).
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
