from collections.abc import Callable

from canal_server.queues.table_routes import Route

class FlatMessages:
    def __init__(self, route_of: Callable[[str, str], Route]) -> None: ...
    def convert(
        self, batch_id: int, data: bytes | bytearray | memoryview, now_ms: int
    ) -> list[tuple[str, int, bytes]]: ...
