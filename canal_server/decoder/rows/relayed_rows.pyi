from collections.abc import Callable

from canal_server.decoder.rows.row_layout import TableImage

class Renderer:
    def __init__(self, image_of: Callable[[bytes], TableImage]) -> None: ...
    def render(
        self, data: bytes | bytearray | memoryview, bytes_max: int
    ) -> tuple[int, memoryview]: ...
