from collections.abc import Iterable

from canal_server.arrow.entry_walk import EntryColumns

class TypedColumns(EntryColumns):
    def __init__(
        self,
        schema: str,
        table: str,
        fields: Iterable[tuple[str, str, int, int]],
        *,
        updates: str = ...,
        split_keys: bool = ...,
        zero_is_null: bool = ...,
        zone: Iterable[tuple[int, int]] = ...,
        missing: Iterable[str] = ...,
        epoch: int = ...,
        rows_max: int = ...,
        bytes_max: int = ...,
    ) -> None: ...
    def set_missing(self, names: Iterable[str]) -> None: ...
    def compare(self, known: Iterable[tuple[str, bool]] | None) -> None: ...
