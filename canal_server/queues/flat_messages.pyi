from collections.abc import Callable

class Route:
    topic: str
    partitions: int
    mode: int
    partition: int
    columns: tuple[str, ...]
    def __init__(
        self,
        topic: str,
        *,
        mode: int = ...,
        partitions: int = ...,
        partition: int = ...,
        columns: tuple[str, ...] = ...,
        hashed: str = ...,
    ) -> None: ...

class FlatMessages:
    def __init__(self, route_of: Callable[[str, str], Route]) -> None: ...
    def convert(
        self, batch_id: int, data: bytes | bytearray | memoryview, now_ms: int
    ) -> list[tuple[str, int, bytes]]: ...
