from typing import NamedTuple

from canal_server.arrow.entry_walk import EntryColumns
from canal_server.arrow.typed_rows import TypedColumns

class Held(NamedTuple):
    schema: str
    table: str
    journal: str
    position: int
    is_unlike: bool

class FoundStatement(NamedTuple):
    number: int
    journal: str
    position: int
    end: int
    schema: str
    table: str
    event_type: int
    is_ddl: bool
    sql: str
    default_schema: str
    seq: int
    time_ms: int

class Refused(NamedTuple):
    schema: str
    table: str
    problem: str
    journal: str
    position: int
    seq: int
    row: int
    time_ms: int

class TableRouter(EntryColumns):
    def __init__(self, *, epoch: int = ..., bytes_max: int = ...) -> None: ...
    @property
    def waiting(self) -> int: ...
    @property
    def tables(self) -> int: ...
    def set_table(
        self, schema: str, table: str, columns: TypedColumns | None
    ) -> None: ...
    def forget(self, schema: str, table: str) -> None: ...
    def held(self) -> Held | None: ...
    def room_made(self) -> None: ...
    def met(self) -> list[FoundStatement]: ...
    def committed_statements(self) -> list[tuple[int, int, int]]: ...
    def refused(self) -> list[Refused]: ...
