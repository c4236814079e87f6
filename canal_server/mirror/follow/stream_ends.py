"""Changes of a table's columns that end the streams of Delta's connector.

A stream continues over additional columns only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages.mirror import mirror_table_messages
from canal_server.mirror.lake.lake_table import ADDED
from canal_server.mirror.lake.reshape import Reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from canal_server.mirror.lake.steps import Step
    from canal_server.mirror.settings.table_values import MirrorTable

log = logging.getLogger(__name__)


def warn_of_ends(table: MirrorTable, before: pa.Schema, after: pa.Schema) -> None:
    """Log why streams that read a table cannot continue, if they cannot.

    Nobody reads logs of changes by these streams, nor the mirror's own tables.
    """
    if table.form != "delta" or table.target.startswith("_"):
        return
    reasons = []
    for field in before:
        if field.name in ADDED:
            continue
        index = after.get_field_index(field.name)
        if index < 0:
            reasons.append(f"column {field.name} disappears")
        elif after.field(index).type != field.type:
            kind = after.field(index).type
            reasons.append(f"column {field.name} is {kind} instead of {field.type}")
    if reasons:
        text = ", ".join(reasons)
        mirror_table_messages.MIRROR_TABLE_ENDS_STREAMS.log(log, table.source, text)


def warn_of_ends_by(
    table: MirrorTable, before: pa.Schema | None, steps: Sequence[Step]
) -> None:
    """Log the same before steps change the columns of a table, if it exists.

    UnlikeError for steps that do not fit.
    """
    if table.form == "delta" and before is not None:
        warn_of_ends(table, before, Reshape(before, steps).schema)
