from typing import NamedTuple

class JsonLines(NamedTuple):
    text: bytes
    changes: int
    whole: bool

def json_lines(
    data: bytes | bytearray | memoryview, *, marks: bool = ..., limit: int = ...
) -> JsonLines: ...
