"""Foreign keys of a running mirror: warned of, or their children read again.

::

    KeyWatch ──► keys ──► Rereading ◄── suspects ── Recheck
                             │  ▲                      ▲
                             ▼  └── ChangeStream       └── tables that join
                            lake

Leaves out how each of them does it.
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

    from canal_server.mirror.follow.foreign_keys import HiddenKey, Keys
    from canal_server.mirror.follow.micro_batches import ChangeStream
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable, TableName
    from canal_server.runtime.lifecycle import Stop


class KeyChanges:
    """Looks after foreign keys; but for what the stream calls, for one thread."""

    def __init__(
        self, settings: MirrorSettings, stop: Stop, stream: ChangeStream
    ) -> None:
        self._stream = stream
        self._watch = KeyWatch(settings, stop, self._use)
        self._recheck = Recheck(
            settings,
            stop,
            table_of=self._table,
            place=self._place,
            suspect=self._suspect,
        )
        self._rereading = Rereading(settings, stop, stream.follower, self._recheck.want)
        stream.rereading = self._rereading

    @property
    def warnings(self) -> tuple[str, ...]:
        """What lasts."""
        return self._watch.warnings

    def begin(self, keys: Iterable[HiddenKey]) -> None:
        """Take the keys that are there when the mirror begins."""
        self._watch.begin(keys)

    def turn(self) -> None:
        """Look for other keys, and for rows to be read again while nothing comes."""
        self._watch.turn(self._stream.statements)
        self._recheck.turn()
        self._stream.settle()

    def close(self) -> None:
        """End; the stop is requested before."""
        self._watch.close()
        self._recheck.close()

    def _use(self, before: Keys, now: Keys) -> None:
        """Read again for other keys. What was before that is compared."""
        used = {each.key for each in now if not each.why_not}
        with self._stream.joining:
            self._rereading.use(each.key for each in now if each.key in used)
        # Behind a key that went, there may be changes in the stream yet.
        others = used ^ {each.key for each in before if not each.why_not}
        self._recheck.want(each.child for each in (*before, *now) if each.key in others)

    def _table(self, name: TableName) -> tuple[MirrorTable, tuple[str, ...]] | None:
        with self._stream.joining:
            follower = self._stream.follower(name)
            if follower is None:
                return None
            return follower.table, self._rereading.columns_of(follower)

    def _place(self) -> int:
        feed = self._stream.feed
        return 0 if feed is None else version_of(feed.place)

    def _suspect(self, name: TableName, keys: pa.Table) -> None:
        self._rereading.suspect(name, keys)
