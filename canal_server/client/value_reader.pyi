from collections.abc import Callable
from datetime import date, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, TypeAlias

# `Any`: what `load_json` returns.
Value: TypeAlias = (
    int | Decimal | float | str | bytes | date | datetime | timedelta | Any | None
)

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
