from typing import Any

from canal_server.decoder.text.time_zone import Zone

OPS: dict[str, int]

class Shape:
    def __init__(self, data: bytes) -> None: ...

class TableLayout:
    def __init__(
        self,
        meta: object,
        names: bytes,
        table_ordinal: int,
        plans: list[tuple[Any, ...]],
        shape: Shape | None = ...,
        zone: Zone | None = ...,
    ) -> None: ...
    @property
    def meta(self) -> object: ...
    @property
    def table_ordinal(self) -> int: ...
