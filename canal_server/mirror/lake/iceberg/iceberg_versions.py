"""The versions of one Iceberg table: finds the newest, and commits the next one.

Leaves out what a commit contains (`iceberg_writes`, `iceberg_copies`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    ValidationError,
)

from canal_server.errors import CanalError, LakeError
from canal_server.mirror.lake.iceberg import iceberg_commit, iceberg_upkeep
from canal_server.mirror.lake.iceberg.iceberg_catalog import identifier_of, open_catalog
from canal_server.mirror.lake.iceberg.iceberg_columns import columns_of, planned
from canal_server.mirror.lake.iceberg.iceberg_commit import Commit, Manifests
from canal_server.mirror.lake.lake_errors import lake_error, unusable
from canal_server.mirror.lake.lake_table import (
    NOWHERE,
    OtherCopyError,
    UnusableTableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

    from canal_server.mirror.lake.iceberg.iceberg_columns import Column
    from canal_server.mirror.lake.iceberg.iceberg_commit import Change

T = TypeVar("T")

TRIES: Final = 5  # of a commit that conflicts with another writer's
_SHOWN: Final = ("type", "warehouse")  # options whose values are no secrets


class Versions:
    """The versions of one table; for one thread at a time."""

    def __init__(
        self,
        path: str,
        target: str,
        catalog: Mapping[str, str] | None = None,
        store: Mapping[str, str] | None = None,
    ) -> None:
        """Set the folder, or its URL, and the options of a catalog, if there is one.

        `store`: pyiceberg's properties of the object store, if there is none.
        """
        self.path = path
        self.target = target
        self.name = identifier_of(target)
        self.options = dict(catalog or {})
        self.manifests = Manifests()
        self._store = dict(store or {})
        self._opened: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """What records the newest version."""
        if self._opened is None:
            self._opened = open_catalog(self.path, self.options, self._store)
        return self._opened

    def newest(self) -> Table | None:
        """Return the table's current version; None if it does not exist."""
        try:
            return self.existing()
        except NoSuchTableError:
            return None

    def existing(self) -> Table:
        """Return the table's current version.

        UnusableTableError if it is in another folder: if it was moved, or if a catalog
        has the table of another lake under this name. A vacuum would take its files for
        unknown ones, and a copy would replace the other's rows.
        """
        table = self.catalog.load_table(self.name)
        location = table.metadata.location.rstrip("/")
        if location == self.path:
            return table
        if self.options:
            raise UnusableTableError(
                f"table {'.'.join(self.name)} of the catalog is in {location}: write "
                "lake.path as it was when the table was made, or if another lake has "
                "this name in the catalog, choose another folder (`to` of its rule)"
            )
        raise UnusableTableError(
            f"it was made in {location}, and its files name each other by that "
            "folder: move it back, or move it away and copy the table again"
        )

    def published(self, copy_id: str) -> Table:
        """Return the table's current version, which must be the given copy."""
        table = self.newest()
        is_copy = table is not None and (
            iceberg_commit.applied(table.metadata, copy_id) != NOWHERE
        )
        if table is None or not is_copy:
            raise OtherCopyError.of(copy_id)
        return table

    def files(self, table: Table) -> list[DataFile]:
        """Return the data files of the table's current version."""
        return self.manifests.files(table)

    def commit(self, table: Table, change: Change, record: Mapping[str, str]) -> None:
        """Commit on top of a version; CommitFailedException if it is not the newest."""
        expired = iceberg_upkeep.too_many(table)
        commit = Commit(table, self.manifests)
        try:
            commit.run(change, record, expired)
        except CommitFailedException:
            commit.discard()
            raise

    @contextmanager
    def as_lake_error(self, what: str) -> Iterator[None]:
        """Raise LakeError with the table's name for errors of the lake.

        Its text has no value of the catalog's options: any may be a secret, or have one
        in it.
        """
        try:
            with self._as_lake_error(what):
                yield
        except LakeError as error:
            shown = without_values(str(error), self.options)
            if shown == str(error):
                raise
            raise type(error)(shown) from None

    @contextmanager
    def _as_lake_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except LakeError as error:
            raise lake_error(f"cannot {what} {self}", error) from error
        except (FileNotFoundError, ValidationError) as error:
            # A file that the metadata names is missing, or the metadata is broken.
            raise unusable(f"cannot {what} {self}", error) from error
        except (
            OSError,
            pa.ArrowException,
            CommitFailedException,
            CommitStateUnknownException,
            NoSuchTableError,
            RESTError,
        ) as error:
            raise lake_error(f"cannot {what} {self}", error) from error
        except Exception as error:
            # An error of ours is that of a stop, and no failure.
            if not self.options or isinstance(error, CanalError):
                raise
            # A catalog's own library raises what it likes. Errors of thrift cannot be
            # raised through a context manager, and are the context of a TypeError.
            shown = (isinstance(error, TypeError) and error.__context__) or error
            text = f"cannot {what} {self}: {type(shown).__name__}: {shown}"
            raise LakeError(text) from error

    def __str__(self) -> str:
        return f"the lake's table {self.target} ({self.path})"


def without_values(text: str, options: Mapping[str, str]) -> str:
    """Return a text without the values of options that may be, or have, a secret."""
    values = {each for key, each in options.items() if key not in _SHOWN}
    for value in tuple(values):
        with suppress(ValueError):
            parts = urlsplit(value)
            values |= {parts.password or "", parts.query}
    for value in sorted(filter(None, values), key=len, reverse=True):
        text = text.replace(value, "…")
    return text


def tried(commit: Callable[[], T]) -> T:
    """Commit; retries if another writer was faster.

    The next try sees its commit, and has nothing to do if that was the same change.
    """
    for _ in range(TRIES - 1):
        with suppress(CommitFailedException):
            return commit()
    return commit()


def current_columns(table: Table) -> list[Column]:
    """Return the columns of a version."""
    return columns_of(table.metadata.schema())


def planned_columns(table: Table | None, schema: pa.Schema) -> list[Column]:
    """Return the columns that a table, or a new one, gets for a schema."""
    if table is None:
        return planned([], 0, schema)
    return planned(current_columns(table), table.metadata.last_column_id, schema)
