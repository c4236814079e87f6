from typing import Any

def add_fixed(
    hashes: Any, validity: Any | None, values: Any | None, width: int, offset: int
) -> None: ...
def add_bytes(
    hashes: Any,
    validity: Any | None,
    offsets: Any | None,
    values: Any | None,
    offset: int,
) -> None: ...
