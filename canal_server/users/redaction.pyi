from collections.abc import Callable

from canal_server.users.rights import ColumnRule

MASK: bytes

class Redaction:
    def __init__(
        self,
        shows: Callable[[str, str], bool],
        column_rule: Callable[[str, str, str], ColumnRule] | None = None,
    ) -> None: ...
    def apply(self, data: bytes | bytearray | memoryview) -> bytes: ...
