"""What the HTTP port asks of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from canal_server.cursor_moves.move_plan import MovePlan
    from canal_server.instance.change_tap import ChangeTap
    from canal_server.instance.instance_metrics import Received
    from canal_server.model.positions import EntryPosition
    from canal_server.observe.readings import Reading
    from canal_server.runtime.lifecycle import Stop
    from canal_server.source.begin.seek_target import TargetText


class Schemas(Protocol):
    """The table histories of a server. Methods raise CanalError, and may take long.

    `at` is a position, a time in ms, or None: the end of the history. `source` is the
    name or address of a source of a group; None: the only one.
    """

    def tables(self, destination: str) -> Sequence[str]:
        """Return the tables of a destination, as schema.table."""

    def table_changes(
        self,
        destination: str,
        table: str,
        *,
        source: str | None,
        since_ms: int | None,
    ) -> Sequence[Mapping[str, Any]]:
        """Return who changed a table, when and how, oldest first."""

    def table(
        self,
        destination: str,
        table: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
    ) -> Mapping[str, Any]:
        """Return one table at a moment, with its statement."""

    def show(
        self,
        destination: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
        tables: Sequence[str],
        all_: bool,
        offset: int,
        limit: int,
    ) -> Mapping[str, Any]:
        """Return some tables at a moment; `next` is the offset of those that follow."""

    def show_sql(
        self,
        destination: str,
        *,
        at: EntryPosition | int | None,
        source: str | None,
        tables: Sequence[str],
        all_: bool,
    ) -> str:
        """Return the same tables as statements, all of them."""

    def export(
        self, destination: str, *, at: EntryPosition | int | None, source: str | None
    ) -> str:
        """Return the tables at a moment as a document, without passwords."""

    def verify(
        self, destination: str, *, tables: Sequence[str], source: str | None, stop: Stop
    ) -> Mapping[str, Any]:
        """Compare the end of a history with the source, which is asked, until a stop.

        `equal` says whether nothing differs.
        """


class Operations(Protocol):
    """A running server. Methods raise CanalError to refuse, and may block a little.

    A destination that is not configured is refused with a ClientError.
    """

    @property
    def schemas(self) -> Schemas:
        """Return what answers about table histories."""

    def status(self) -> Mapping[str, Any]:
        """Return what `canal-server status --json` shows."""

    def clusters(self) -> Mapping[str, Any]:
        """Return the address of this server, and the clusters that it is in."""

    def readings(self) -> Sequence[Reading]:
        """Return what each destination shows now."""

    def received(self) -> Mapping[str, Received]:
        """Return how much each destination that runs here has received."""

    def reading(self, destination: str) -> Reading:
        """Return what one destination shows now."""

    def positions(self, destination: str) -> Mapping[str, Any]:
        """Return the positions of a destination's clients, or those that are stored."""

    def subscriptions(self, destination: str) -> Mapping[str, Any]:
        """Return a destination's ranged subscriptions, or those that are stored."""

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
        """Start a stopped, failed or lazy destination, or retry its source or delivery.

        Its file of settings is read again. Returns at once.
        """

    def unsubscribe(self, destination: str, client_id: int) -> None:
        """Remove the subscription of a client."""

    def remove_subscription(self, destination: str, name: str) -> None:
        """Remove a ranged subscription that no query reads."""
