"""Changes of a table's columns that end the streams of Delta's connector.

A stream continues over additional columns only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from canal_server.messages import mirror_table_messages
from canal_server.mirror.lake.lake_table import ADDED

if TYPE_CHECKING:
    import pyarrow as pa

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
