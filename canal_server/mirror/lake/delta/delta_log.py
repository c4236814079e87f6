"""The mirror's records in commits of a Delta table: copy, position number, note.

Each record is in the same commit as the change that it describes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction

from canal_server.mirror.lake.delta.delta_layout import files_of
from canal_server.mirror.lake.file_stats import stats_json
from canal_server.mirror.lake.lake_table import NOWHERE, TIME, Size
from canal_server.mirror.settings.table_values import CopiedFile

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMITS_MAX: Final = 10_000  # of other writers, searched for the mirror's note

_APP: Final = "canal-mirror/"  # prefix of transaction ids in the Delta log
_PUBLISHED: Final = "canal-mirror-copy"  # id of the transaction that names the copy
# Prefix of ids of the transactions of rows that were exchanged with another table.
_EXCHANGED: Final = "canal-mirror-exchange/"
# Prefix of a table's description, before its first copy.
_COPY: Final = "canal-server mirror, copy "
_NOTE: Final = "canal"  # the mirror's key in a commit's metadata
_NEWEST: Final = f"max.{TIME.name}"  # of a file, in delta-rs' table of files


def description(copy_id: str) -> str:
    """Return the description of a table that is created with this copy."""
    return _COPY + copy_id


def applied(delta: DeltaTable, copy_id: str) -> int:
    """Return the position number up to which changes are applied.

    NOWHERE if the table is not this copy.
    """
    if not _is_copy(delta, copy_id):
        return NOWHERE
    version = delta.transaction_version(_APP + copy_id)
    return NOWHERE if version is None else version


def exchanged(delta: DeltaTable, copy_id: str) -> int:
    """Return the position number after the last exchange with another table.

    NOWHERE if this copy has had none.
    """
    found = delta.transaction_version(_EXCHANGED + copy_id)
    return NOWHERE if found is None else found


def version_before(delta: DeltaTable, copy_id: str, upto: int) -> int | None:
    """Return the version before the exchange up to a position number.

    None if the log no longer has it.
    """
    found = None
    for commit in delta.history(COMMITS_MAX):
        record = commit.get(_NOTE, {})
        # Upkeep repeats the record of the commit before.
        if (record.get("copy"), record.get("exchange")) == (copy_id, upto):
            found = int(commit["version"]) - 1
    return found


def _is_copy(delta: DeltaTable, copy_id: str) -> bool:
    """Check whether a copy was the last one that was published.

    Earlier versions name the copy in the description only. If they copy a table again,
    the transaction still has the copy before; the newest record shows that.
    """
    published = delta.transaction_version(_PUBLISHED)
    if published == _number_of(copy_id):
        return True
    if delta.metadata().description != description(copy_id):
        return False
    if published is None:
        return True
    record = _newest(delta)
    return record is not None and record.get("copy") == copy_id


def commit(
    copy_id: str,
    upto: int,
    note: Mapping[str, str],
    *,
    is_copy: bool = False,
    is_exchange: bool = False,
) -> CommitProperties:
    """Return what a commit records in addition to the change.

    `is_copy`: by this commit the table becomes this copy. `is_exchange`: it gets rows
    of another table.
    """
    record: dict[str, Any] = {"copy": copy_id, "upto": upto, "note": dict(note)}
    transactions = [Transaction(_APP + copy_id, upto)]
    if is_exchange:
        record["exchange"] = upto
        transactions.append(Transaction(_EXCHANGED + copy_id, upto))
    if is_copy:
        transactions.append(Transaction(_PUBLISHED, _number_of(copy_id)))
    return CommitProperties(
        custom_metadata={_NOTE: record}, app_transactions=transactions
    )


def commit_alone(delta: DeltaTable, properties: CommitProperties) -> None:
    """Commit a position number without a change of the table."""
    delta.create_write_transaction(
        [], "append", delta.schema(), commit_properties=properties
    )


def commit_of_upkeep(delta: DeltaTable) -> CommitProperties:
    """Return the record of a commit that changes no row: a repetition of the last one.

    So it is found even when the log no longer reaches back to the last change.
    """
    record = _newest(delta)
    return CommitProperties(custom_metadata={_NOTE: record} if record else None)


def position(delta: DeltaTable) -> tuple[int, dict[str, str]]:
    """Return the position number and the note of the newest change by a mirror."""
    record = _newest(delta)
    if record is not None:
        return int(record["upto"]), dict(record["note"])
    described = delta.metadata().description or ""
    if not described.startswith(_COPY):
        return NOWHERE, {}
    first = delta.transaction_version(_APP + described.removeprefix(_COPY))
    return NOWHERE if first is None else first, {}


def size(delta: DeltaTable) -> Size:
    """Return the files of a version, and the newest time in their statistics."""
    files = pa.table(delta.get_add_actions(flatten=True))
    newest_ms = 0
    if _NEWEST in files.column_names:
        newest = pc.max(files[_NEWEST]).as_py()
        newest_ms = round(newest.timestamp() * 1000) if newest is not None else 0
    names = [f"partition.{each}" for each in delta.metadata().partition_columns]
    partitions = files.group_by(names).aggregate([]).num_rows if names else 0
    commits = delta.history(1)
    return Size(
        files.num_rows,
        pc.sum(files["size_bytes"]).as_py() or 0,
        delta.version(),
        int(commits[0].get("timestamp", 0)) if commits else 0,
        newest_ms,
        partitions,
    )


def files(delta: DeltaTable) -> list[CopiedFile]:
    """Return the files of a version, with their statistics."""
    found = []
    shown = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    for file, at in zip(shown, files_of(delta), strict=True):
        ends, nulls = {}, {}
        for name, value in file.items():
            part, _, column = name.partition(".")
            if part == "min" and value is not None:
                most = file.get(f"max.{column}")
                if most is not None:
                    ends[column] = value, most
            elif part == "null_count" and value is not None:
                nulls[column] = value
        rows = file["num_records"]
        stats = stats_json(rows, ends, nulls)
        found.append(CopiedFile(at.path, at.size, rows, stats, at.partition))
    return found


def _number_of(copy_id: str) -> int:
    """Return a number that stands for a copy: transactions have nothing else."""
    return int.from_bytes(hashlib.blake2b(copy_id.encode(), digest_size=7).digest())


def _newest(delta: DeltaTable) -> dict[str, Any] | None:
    """Return the mirror's newest record, skipping commits of other writers."""
    limit = 1
    while True:
        commits = delta.history(limit)
        for record in commits:
            if _NOTE in record:
                return dict(record[_NOTE])
        if len(commits) < limit or limit >= COMMITS_MAX:
            return None
        limit *= 10
