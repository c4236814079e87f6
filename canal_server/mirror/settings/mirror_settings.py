"""The settings of a mirror, as values that can be pickled and show no secret.

Leaves out the file that they are read from (`settings_file`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from canal_server.filters.table_filters import compile_expression
from canal_server.mirror.settings.migrations import (
    FOLDER,
    SHADOWS_FILTER,
    SKIP,
    helper_of,
)
from canal_server.mirror.settings.table_values import LOGS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from canal_server.mirror.settings.lake_partitions import PartitionExpression
    from canal_server.mirror.settings.table_values import Mask, TableName
    from canal_server.mysql.source_settings import Access

LOOPBACK: Final = "127.0.0.1"
SERVERS: Final = f"{LOOPBACK}:11111"
SHOW: Final = "show"  # instead of a mask: the column needs none


@lru_cache(maxsize=1000)
def _matcher(expression: str, default: bool) -> Callable[[str], bool]:
    return compile_expression(expression, default=default)


def _matches(expression: str, text: str, default: bool) -> bool:
    return _matcher(expression, default)(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CanalSettings:
    """Where changes come from: servers, the destination, an account."""

    destination: str
    servers: str = SERVERS
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """The database. Rows are copied from `replica`, if it is set."""

    access: Access
    replica: Access | None = None

    @property
    def read_from(self) -> Access:
        """The server from which rows are copied."""
        return self.replica or self.access


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Where the copies are stored, and how they are maintained."""

    path: str  # of a folder, or the URL of one in an object store
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    catalog: dict[str, str] = field(default_factory=dict, repr=False)  # of Iceberg
    change_feed: bool = True
    compact_every_s: float = 600.0  # 0: never
    vacuum_after_s: float = 7 * 86400.0  # 0: never

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of the file system."""
        return "://" not in self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSettings:
    """The lake's values of types that the stream has in the form of MySQL."""

    geometry: str = "binary"  # or wkb, with the SRID in a column beside it
    vector: str = "binary"  # or array, of FLOAT
    bit64: str = "signed"  # or unsigned: a decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRule:
    """How the tables of a pattern are mirrored."""

    match: str
    exclude: str = ""
    to: str = "{schema}/{table}"
    columns: tuple[str, ...] = ()  # only these; empty: all
    without: tuple[str, ...] = ()
    rename: dict[str, str] = field(default_factory=dict)
    masks: dict[str, Mask] = field(default_factory=dict)  # by the column's name
    shown: tuple[str, ...] = ()  # columns that explicitly need no mask
    types: TypeSettings = TypeSettings()
    deletes: str = "hard"  # or soft
    form: str = "delta"  # or iceberg, parquet, json
    partition_by: tuple[PartitionExpression, ...] = ()
    drift: str = "copy"  # or stop: the reaction to DDL that cannot be followed
    dropped_columns: str = "drop"  # or keep
    migration_tables: str = SKIP  # or mirror: tables of online schema changes
    foreign_keys: str = "warn"  # or reread: for rows that they change without an event
    location: str = ""  # in the file, for later error messages

    def applies_to(self, name: TableName) -> bool:
        """Check whether the table matches and is not excluded."""
        return _matches(self.match, str(name), True) and not self.excludes(name)

    def excludes(self, name: TableName) -> bool:
        """Check whether the rule leaves the table out explicitly."""
        return _matches(self.exclude, str(name), False)

    @property
    def follows_migrations(self) -> bool:
        """Whether online schema changes of its tables are followed in the lake."""
        return self.migration_tables == SKIP and self.form not in LOGS


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySettings:
    """How tables are copied; the limits bound the load on the database."""

    connections: int = 4
    rows_per_second: int = 0  # of all connections; 0: no limit
    chunk_rows: int = 100_000
    tables_at_once: int = 2
    keyless_lock: bool = False

    @property
    def connections_each(self) -> int:
        """The number of connections per table, with all tables at work."""
        return max(1, self.connections // self.tables_at_once)

    @property
    def rows_per_connection(self) -> int:
        """The rows that one connection may read per second; 0: no limit."""
        if not self.rows_per_second:
            return 0
        each = self.rows_per_second // self.tables_at_once // self.connections_each
        return max(1, each)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How changes are followed; options of Spark's source keep their meaning there."""

    trigger_s: float = 0.0
    max_rows: int = 200_000
    max_bytes: int = 128 << 20
    max_partitions: int = 8
    min_partition_rows: int = 25_000
    retry_timeout_s: float = 60.0
    tables_at_once: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """The port for Prometheus; PEM files."""

    port: int | None = None  # None: there is none; 0: any free one
    host: str = LOOPBACK
    tls_cert_file: str = ""  # empty: no TLS
    tls_key_file: str = ""  # empty: in `tls_cert_file`


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """How a running mirror compares its tables with the source."""

    every_s: float = 0.0  # 0: never
    tables: str = ""  # an expression; empty: all
    rows_per_second: int = 10_000  # read from the database; 0: no limit

    def applies_to(self, name: TableName) -> bool:
        """Check whether a table is compared."""
        text = f"{name.schema}.{name.table}"
        return self.every_s > 0 and _matches(self.tables, text, True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """All settings of a mirror."""

    name: str
    canal: CanalSettings
    source: SourceSettings
    lake: LakeSettings
    tables: tuple[TableRule, ...]
    copy: CopySettings = CopySettings()
    stream: StreamSettings = StreamSettings()
    metrics: MetricsSettings = MetricsSettings()
    verify: VerifySettings = VerifySettings()
    checkpoint: str = ""  # where Spark stores the stream's progress
    spark: dict[str, str] = field(default_factory=dict, repr=False)
    # Tables with names of online schema changes that are like any others, because the
    # tables of their names do not exist (`note_tables`).
    standalone: set[TableName] = field(default_factory=set, compare=False, repr=False)

    @property
    def wire_filter(self) -> str:
        """The table filter by which the server selects changes."""
        matches = [rule.match for rule in self.tables]
        if any(rule.follows_migrations for rule in self.tables):
            matches.append(SHADOWS_FILTER)
        return ",".join(dict.fromkeys(matches))

    @property
    def folder(self) -> str:
        """The mirror's own folder, below the lake's root."""
        return f"_mirror/{self.name}"

    @property
    def migrations_folder(self) -> str:
        """Where the new rows of online schema changes are until the end of these."""
        return f"{self.folder}/{FOLDER}"

    def rule_of(self, name: TableName) -> TableRule | None:
        """Return how a table is mirrored; None: it is not.

        The first rule that matches it says so. A table with the new rows of an online
        schema change is mirrored like the table that it will replace, in a folder of
        the mirror's own (`is_shadow`), unless its own rule asks for it.
        """
        own, helper = self._matching(name), helper_of(name)
        if (
            helper is None
            or name in self.standalone
            or (own is not None and own.migration_tables != SKIP)
        ):
            return own
        base = self._matching(helper.base)
        if base is None or base.migration_tables != SKIP:
            return own
        if not (helper.is_shadow and base.follows_migrations) or base.excludes(name):
            return None
        return replace(base, to=f"{self.migrations_folder}/{{schema}}/{{table}}")

    def note_tables(
        self, present: Iterable[TableName], targets: Mapping[TableName, str]
    ) -> None:
        """Note which tables only have a name like those of online schema changes.

        `present` are the tables of the source; `targets` the folders of those that are
        mirrored already, which stay as they are.
        """
        names = {*present, *targets}
        for name in names:
            target = targets.get(name, "")
            is_mirrored = target and not target.startswith(f"{self.migrations_folder}/")
            helper = helper_of(name)
            if helper is not None and (is_mirrored or not helper.is_of(names)):
                self.standalone.add(name)
            else:
                self.standalone.discard(name)

    def note_created(self, name: TableName, mirrored: Container[TableName]) -> None:
        """Note whether a new table belongs to an online schema change.

        `mirrored` are the tables whose changes are followed, or will be.
        """
        helper = helper_of(name)
        if helper is not None and not helper.is_of(mirrored):
            self.standalone.add(name)
        else:
            self.standalone.discard(name)

    def is_left_out(self, name: TableName) -> bool:
        """Check whether a table is not mirrored because of its name alone.

        It is one of an online schema change, and a rule would match it.
        """
        return self._matching(name) is not None and self.rule_of(name) is None

    def is_shadow(self, name: TableName) -> bool:
        """Check whether a table only has the new rows of an online schema change."""
        rule = self.rule_of(name)
        return rule is not None and rule.to.startswith(f"{self.migrations_folder}/")

    def _matching(self, name: TableName) -> TableRule | None:
        return next((rule for rule in self.tables if rule.applies_to(name)), None)
