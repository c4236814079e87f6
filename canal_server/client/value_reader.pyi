from collections.abc import Callable
from datetime import tzinfo
from typing import Any

class ValueOptions:
    def __init__(
        self,
        *,
        as_texts: bool = False,
        zone: tzinfo | None = None,
        load_json: Callable[[str], Any] | None = None,
    ) -> None: ...

class ColumnPlan:
    @property
    def name(self) -> str: ...
    @property
    def mysql_type(self) -> str: ...
    def __init__(self, name: str, mysql_type: str, sql_type: int) -> None: ...
