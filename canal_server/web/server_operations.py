"""What the HTTP port asks of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from canal_server.cursor_moves.move_plan import MovePlan
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.observe.readings import Reading
    from canal_server.source.begin.seek_target import TargetText


class Operations(Protocol):
    """A running server. Methods raise CanalError to refuse, and may block a little.

    A destination that is not configured is refused with a ClientError.
    """

    def status(self) -> Mapping[str, Any]:
        """Return what `canal-server status --json` shows."""

    def readings(self) -> Sequence[Reading]:
        """Return what each destination shows now."""

    def reading(self, destination: str) -> Reading:
        """Return what one destination shows now."""

    def positions(self, destination: str) -> Mapping[str, Any]:
        """Return the positions of a destination's clients, if it runs here."""

    def subscriptions(self, destination: str) -> Mapping[str, Any]:
        """Return the ranged subscriptions of a destination, if it runs here."""

    def tables(self, destination: str) -> Sequence[str]:
        """Return the tables of a destination, as schema.table."""

    def table_changes(
        self, destination: str, table: str
    ) -> Sequence[Mapping[str, Any]]:
        """Return who changed a table, when and how, oldest first."""

    def tap(
        self, destination: str, expression: str, on_news: Callable[[], None]
    ) -> ChangeTap | None:
        """Return what follows a destination's changes, None: it does not run here.

        `on_news` is called by any thread, see ChangeTap. Raises ConfigError for a
        filter that cannot be used.
        """

    def log_levels(self) -> Mapping[str, Any]:
        """Return the levels of the log: the default, and those of destinations."""

    def set_log_level(self, level: str | None, destination: str = "") -> None:
        """Set the default, or the level of a destination; None: the default again."""

    def plan_move(
        self,
        destination: str,
        to: TargetText,
        *,
        source: str | None,
        client_ids: Collection[int] | None,
    ) -> MovePlan:
        """Return what a move of clients would do; None: of all sources, all clients."""

    def move(self, plan: MovePlan) -> None:
        """Carry a plan out."""

    def stop_destination(self, destination: str) -> None:
        """Stop a destination until it is started; returns at once."""

    def start_destination(self, destination: str) -> None:
        """Start a stopped, failed or lazy destination; returns at once."""

    def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove the subscription of a client."""
