from canal_server.core.gtid.mariadb_sets import MariaGtidSet
from canal_server.core.gtid.mysql_sets import GtidSet

class EventPackets:
    position: int
    seen: GtidSet | MariaGtidSet | None
    excluded: GtidSet | MariaGtidSet | None
    def __init__(self, position: int) -> None: ...
    def pack(
        self, source: memoryview | bytes, target: memoryview | bytearray
    ) -> tuple[int, int]: ...
    @property
    def is_between(self) -> bool: ...
    @property
    def last_type(self) -> int: ...
    @property
    def last_time(self) -> int: ...
