"""What reads the messages of one subscription, made when it is needed.

A reader remembers the columns of tables from message to message.
"""

from __future__ import annotations

from datetime import tzinfo
from typing import TYPE_CHECKING, Literal

from canal_server.client.change_reader import ChangeReader
from canal_server.client.value_reader import ValueOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from canal_server.client.arrow_tables import ArrowReader, Updates


class Readers:
    """The readers of a client, by the options for values. Raises ValueError."""

    def __init__(
        self,
        values: Literal["typed", "text"] = "typed",
        time_zone: tzinfo | None = None,
        load_json: Callable[[str], object] | None = None,
    ) -> None:
        if values not in {"typed", "text"}:
            raise ValueError(f'values = {values!r}: expected "typed" or "text"')
        if time_zone is not None and not isinstance(time_zone, tzinfo):
            raise ValueError(
                f"time_zone = {time_zone!r}: expected a tzinfo, such as"
                ' zoneinfo.ZoneInfo("Europe/Berlin")'
            )
        if load_json is not None and not callable(load_json):
            raise ValueError(
                f"load_json = {load_json!r}: expected a function, such as json.loads"
            )
        self._time_zone = time_zone
        self._arrow: dict[Updates, ArrowReader] = {}
        options = ValueOptions(
            as_texts=values == "text", zone=time_zone, load_json=load_json
        )
        self.changes = ChangeReader(options)

    def arrow(self, updates: Updates) -> ArrowReader:
        """Return the reader for Arrow. Raises ImportError, ValueError, ConfigError."""
        # Only programs that use Arrow need pyarrow.
        from canal_server.client.arrow_tables import ArrowReader  # noqa: PLC0415

        found = self._arrow.get(updates)
        if found is None:
            found = ArrowReader(zone=self._zone_name(), updates=updates)
            self._arrow[updates] = found
        return found

    def reset(self) -> None:
        """Forget an open transaction and numbers, as messages are read again."""
        self.changes.reset()
        for each in self._arrow.values():
            each.reset()

    def _zone_name(self) -> str:
        zone = self._time_zone
        if zone is None:
            return "UTC"
        name = getattr(zone, "key", str(zone))  # of a zoneinfo.ZoneInfo
        if name is None or name[:4] in {"UTC+", "UTC-"}:
            raise ValueError(
                f"time_zone = {zone!r}: Arrow needs a named zone, such as"
                ' zoneinfo.ZoneInfo("Europe/Berlin")'
            )
        return name
