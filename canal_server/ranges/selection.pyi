from collections.abc import Iterable
from typing import Final, TypeAlias

from canal_server.core.table_ids import TableIds
from canal_server.ports import Span, TablePredicate

CUTS_MAX: Final[int]

# file, offset, begin of the transaction or 0, rows, bytes, its end, time of that (s)
Cut: TypeAlias = tuple[str, int, int, int, int, int, int]
FileOffset: TypeAlias = tuple[int, int]

class RangeWalk:
    @property
    def size(self) -> int: ...
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def has_found(self) -> bool: ...
    @property
    def pending(self) -> bool: ...
    def __init__(
        self,
        table_filter: TablePredicate,
        table_ids: TableIds,
        start: FileOffset,
        end: FileOffset | None = None,
        *,
        begin: FileOffset | None = None,
        max_rows: int = 0,
        max_bytes: int = 0,
        cut_rows: int = 0,
        picks: bool = False,
    ) -> None: ...
    def walk(self, spans: Iterable[Span]) -> bool: ...
    def take(self) -> tuple[tuple[memoryview, ...], int]: ...
    def found_cuts(self) -> list[Cut]: ...
