from collections.abc import Iterable
from typing import Any, TypeAlias

from canal_server.core.byte_buffer import Feed
from canal_server.decoder.text.charset_text import Charset

Field: TypeAlias = tuple[str, str, int, int, str, str, Charset | None]

class ResultColumns:
    def __init__(
        self,
        fields: Iterable[Field],
        *,
        rows_max: int = ...,
        bytes_max: int = ...,
        row_bytes_max: int = ...,
    ) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def done(self) -> bool: ...
    @property
    def refusal(self) -> bytes | None: ...
    def read(self, feed: Feed) -> int: ...
    def take(self) -> list[Any]: ...
