from collections.abc import Callable

from canal_server.queues.table_routes import Route

class AvroRows:
    def __init__(
        self,
        route_of: Callable[[str, str], Route],
        *,
        name: str,
        id_of: Callable[[str, bool, str, str], int],
        version: str = ...,
        decimals: str = ...,
        has_keys: bool = ...,
        has_tombstones: bool = ...,
        has_headers: bool = ...,
    ) -> None: ...
    def convert(
        self, batch_id: int, data: bytes | bytearray | memoryview, now_ms: int
    ) -> list[
        tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]] | None]
    ]: ...
