from typing import TypedDict

from canal_server.model.positions import LogIdentity

class RecordFields(TypedDict):
    begin: int
    end: int
    offset: int
    ordinal: int
    time: int
    subject: int
    rows: int
    event_length: int
    kind: int
    event_type: int
    flags: int

class Block:
    @property
    def file(self) -> str: ...
    @property
    def file_number(self) -> int: ...
    @property
    def source(self) -> LogIdentity | None: ...
    @property
    def member(self) -> int: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def size_of(self, first: int, stop: int) -> int: ...
    def slice(self, first: int, stop: int) -> memoryview: ...
    def record(self, i: int) -> RecordFields: ...
    def last_boundary(self, first: int, stop: int) -> int: ...
    def first_behind(self, first: int, stop: int, offset: int, ordinal: int) -> int: ...
    def position(
        self, i: int
    ) -> tuple[str, int, int, int, str, LogIdentity | None]: ...
    def count_until(
        self, first: int, stop: int, time: int
    ) -> tuple[int, int, bool]: ...

class BlockPool:
    def __init__(self, block_size: int = ..., spare_max: int = ...) -> None: ...
    def of_member(self, member: int) -> BlockPool: ...
    @property
    def block_size(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def spare_max(self) -> int: ...

class BlockWriter:
    block: Block
    def __init__(self, pool: BlockPool, file: str, file_number: int) -> None: ...
    def append(
        self,
        entry: bytes,
        kind: int,
        *,
        offset: int = 0,
        ordinal: int = 0,
        time: int = 0,
        subject: int = 0,
        rows: int = 0,
        event_length: int = 0,
        event_type: int = 0,
        flags: int = 0,
    ) -> int: ...
