from typing import Any

OPS: dict[str, int]

class TableImage:
    def __init__(
        self, meta: object, names: bytes, subject: int, plans: list[tuple[Any, ...]]
    ) -> None: ...
    @property
    def meta(self) -> object: ...
    @property
    def subject(self) -> int: ...
