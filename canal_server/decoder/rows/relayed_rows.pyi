from collections.abc import Callable

from canal_server.decoder.rows.row_layout import TableLayout

class Renderer:
    def __init__(self, layout_of: Callable[[bytes], TableLayout]) -> None: ...
    def render(
        self, data: bytes | bytearray | memoryview, bytes_max: int
    ) -> tuple[int, memoryview]: ...
