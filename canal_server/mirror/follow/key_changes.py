"""Foreign keys of a running mirror: warns of them, or reads their children again.

::

    KeyWatch ──► keys ──► Rereading ◄── suspects ── Recheck
                             │  ▲                      ▲
                             ▼  └── ChangeStream       └── tables that join
                            lake

Leaves out how each part works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from canal_server.mirror.follow.foreign_keys import KeyWatch
from canal_server.mirror.follow.recheck import Recheck
from canal_server.mirror.follow.reread import Rereading
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.follow.foreign_keys import HiddenKey, Keys
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.runtime.lifecycle import Stop


class KeyChanges:
    """Handles foreign keys; for one thread, except for the stream's callbacks."""

    def __init__(
        self, settings: MirrorSettings, stop: Stop, stream: ChangeStream
    ) -> None:
        self._stream = stream
        self._reached = 0  # number of a position, which the stream's own is before
        self._watch = KeyWatch(settings, stop, self._use)
        self._recheck = Recheck(
            settings,
            stop,
            table_of=self._table,
            position=self._position,
            suspect=self._suspect,
        )
        self._rereading = Rereading(
            settings, stop, stream.follower, self._recheck.request
        )
        stream.rereading = self._rereading

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that last."""
        return self._watch.warnings

    def begin(self, keys: Iterable[HiddenKey]) -> None:
        """Set the keys at the start of the mirror."""
        self._watch.begin(keys)

    def poll(self) -> None:
        """Check for new keys, and read rows again while the stream is idle."""
        self._watch.poll(self._stream.statements)
        self._recheck.poll()
        self._stream.settle()

    @property
    def is_settled(self) -> bool:
        """Whether no rows wait to be compared or read again."""
        return not (self._recheck.is_busy or self._rereading.is_waiting)

    @property
    def awaits_stream(self) -> bool:
        """Whether rows are compared only when the stream is further."""
        return self._recheck.awaits_stream

    def reached(self, position: RangePosition) -> None:
        """Record that the stream has ended with everything before a position.

        Its own position is older if the last changes were of other tables.
        """
        self._reached = version_of(position)

    def close(self) -> None:
        """End the threads; the stop was requested before."""
        self._watch.close()
        self._recheck.close()

    def _use(self, before: Keys, now: Keys) -> None:
        """Use other keys. Tables are compared for changes before that."""
        used = {each.key for each in now if not each.why_not}
        with self._stream.joining:
            self._rereading.use(each.key for each in now if each.key in used)
        # The stream may still have changes from before a key was dropped.
        others = used ^ {each.key for each in before if not each.why_not}
        self._recheck.request(
            each.child for each in (*before, *now) if each.key in others
        )

    def _table(self, name: TableName) -> tuple[MirrorTable, tuple[str, ...]] | None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is None:
                return None
            return follower.table, self._rereading.columns_of(follower)

    def _position(self) -> int:
        feed = self._stream.feed
        return max(self._reached, 0 if feed is None else version_of(feed.position))

    def _suspect(self, name: TableName, keys: pa.Table) -> None:
        self._rereading.suspect(name, keys)
