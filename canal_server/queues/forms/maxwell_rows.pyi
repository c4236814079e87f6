from collections.abc import Callable, Collection

from canal_server.queues.table_routes import Route

class MaxwellRows:
    def __init__(
        self,
        route_of: Callable[[str, str], Route],
        *,
        output: Collection[str] = ...,
        has_keys: bool = ...,
        has_tombstones: bool = ...,
        has_headers: bool = ...,
    ) -> None: ...
    def convert(
        self, batch_id: int, data: bytes | bytearray | memoryview, now_ms: int
    ) -> list[
        tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]] | None]
    ]: ...
