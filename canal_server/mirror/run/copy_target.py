"""The lake's table that a copy is published to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.mirror.follow.leaving import TableStoppedError
from canal_server.mirror.lake.lake_table import ADDED
from canal_server.mirror.rows.copy_positions import latest
from canal_server.mirror.state.lake_tables import NOWHERE, open_table, other_format
from canal_server.mirror.state.other_mirrors import owned_by_other
from canal_server.spark.options.offsets import version_of

if TYPE_CHECKING:
    import pyarrow as pa

    from canal_server.client.range_client import RangePosition
    from canal_server.mirror.copy.copying import Copied
    from canal_server.mirror.settings.mirror_settings import MirrorSettings
    from canal_server.mirror.settings.table_values import MirrorTable
    from canal_server.mirror.state.lake_tables import Applied, LakeTable
    from canal_server.mirror.state.state import TableState
    from canal_server.spark.options.servers import Channel

log = logging.getLogger(__name__)


def check_target(
    settings: MirrorSettings,
    table: MirrorTable,
    position: RangePosition,
    channel: Channel,
    copy_id: str,
) -> None:
    """Raise if a foreign table would be replaced, or a log's order lost.

    `copy_id` is the last copy of the table, empty before the first one.
    """
    lake = open_table(settings, table)
    upto = lake.position()[0] if lake.exists() else 0
    if upto == NOWHERE:
        raise TableStoppedError(
            f"{lake} was not made by a mirror: move it away, or choose "
            "another folder (`to` of its rule), then run `canal-server mirror copy`"
        )
    check_owner(settings, table, lake, copy_id)
    problem = other_format(settings, table)
    if problem:
        raise TableStoppedError(f"{problem}, then run `canal-server mirror copy`")
    # Data in a table is replaced; data in a log stays.
    if not table.is_log or version_of(position) >= upto:
        return
    end = latest(settings, channel)  # a position without GTIDs is older
    if version_of(end) < upto:
        raise TableStoppedError(
            f"{lake} ends at _seq {upto}, but new changes would start at "
            f"{version_of(end)} and count as older: canal-server has lost its data "
            "and restarted its epochs, or reads another binlog; move "
            "the log away, or choose another folder (`to` of its rule), then run "
            "`canal-server mirror copy`"
        )


def check_owner(
    settings: MirrorSettings, table: MirrorTable, lake: LakeTable, copy_id: str
) -> None:
    """Raise if another mirror of the lake has written the table.

    When a copy starts, and again before it is published: two first copies may overlap.
    """
    problem = owned_by_other(settings, table, lake, copy_id)
    if problem:
        raise TableStoppedError(f"{problem}, then run `canal-server mirror copy`")


def kept_columns(schema: pa.Schema, table: MirrorTable) -> tuple[str, ...]:
    """Return the columns of the lake that the source has dropped."""
    own = {name for column in table.columns for name in column.targets}
    own |= {each.name for each in table.partitions}
    return tuple(name for name in schema.names if name not in own | ADDED)


def log_copied(state: TableState, copied: Copied, done: Applied | None) -> None:
    """Log what a copy has changed; None: its files are those of the table."""
    how = f"got the rows of {state.origin.source}" if state.origin else "copied"
    if done is None:
        log.info(
            "%s: %s, %d rows in %d files",
            state.source,
            how,
            copied.rows,
            len(copied.files),
        )
    else:
        log.info(
            "%s: %s, %d rows; in the lake, %d were added or changed, and %d deleted",
            state.source,
            how,
            copied.rows,
            *done,
        )
