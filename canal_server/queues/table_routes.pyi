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
