"""The file of a mirror's settings: its keys and their valid values.

All problems are reported at once, each with its line and column. What only the database
knows (whether a table or column exists) is checked in `selected_tables`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Final

from canal_server.doors.yaml_document import Document
from canal_server.errors import ConfigError
from canal_server.filters.table_filters import (
    compile_expression,
    doubtful_pieces,
    split_expression,
)
from canal_server.mirror.settings.lake_partitions import expressions_of
from canal_server.mirror.settings.lake_paths import path_problem
from canal_server.mirror.settings.mirror_settings import (
    SERVERS,
    SHOW,
    CanalSettings,
    CopySettings,
    LakeSettings,
    MetricsSettings,
    MirrorSettings,
    SourceSettings,
    StreamSettings,
    TableRule,
    TypeSettings,
    VerifySettings,
)
from canal_server.mirror.settings.table_values import ARRAY, LOGS, UNSIGNED, WKB, Mask
from canal_server.mysql.source_settings import (
    Access,
    Address,
    Credentials,
    KeyRetrieval,
    ServerKey,
)
from canal_server.spark.options.source_options import SUBSCRIPTION, read_options
from canal_server.tls.source_tls import TlsMode, TlsOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canal_server.doors.yaml_document import Section
    from canal_server.mirror.settings.lake_partitions import PartitionExpression
    from canal_server.passwords.password_source import Password

PORT_MAX: Final = 65535
SALT_BYTES_MIN: Final = 8
DELETES: Final = ("hard", "soft")
FORMS: Final = ("delta", "iceberg", "parquet", "json")
_TLS_MODES: Final = tuple(mode.value.lower() for mode in TlsMode)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-_]{1,253}(/.*)?", re.DOTALL)
_CONTAINER: Final = re.compile(
    r"[a-z0-9$][a-z0-9-]{1,62}@[a-z0-9]{3,24}\.dfs\.[a-z0-9.-]+(/.*)?", re.DOTALL
)
# Schemes of object stores: as all libraries know them, and what is written after them.
_S3: Final = ("s3", _BUCKET, "s3://bucket/folder")
_GOOGLE: Final = ("gs", _BUCKET, "gs://bucket/folder")
_AZURE: Final = (
    "abfss",
    _CONTAINER,
    "abfss://container@account.dfs.core.windows.net/folder",
)
_STORES: Final = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GOOGLE,
    "gcs": _GOOGLE,
    "abfs": _AZURE,
    "abfss": _AZURE,
}
_LAKE_FORMS: Final = f"a folder, {_S3[2]}, {_GOOGLE[2]} or {_AZURE[2]}"


def load(
    path: str | os.PathLike[str],
    environ: Mapping[str, str],
    *,
    has_secrets: bool = True,
) -> MirrorSettings:
    """Read a file. Raises ConfigError with a sentence for each problem.

    Without secrets, the settings cannot be used to connect to the servers.
    """
    try:
        text = Path(path).read_bytes().decode()
    except OSError as error:
        raise ConfigError([f"{path} cannot be read: {error.strerror}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{path}: not valid UTF-8"]) from None
    return read(text, os.fspath(path), environ, has_secrets=has_secrets)


def read(
    text: str, name: str, environ: Mapping[str, str], *, has_secrets: bool = True
) -> MirrorSettings:
    """Parse the text of a file with this name; otherwise like `load`."""
    document = Document(name, text, environ, has_secrets=has_secrets)
    root = document.root
    folder = Path(name).absolute().parent
    mirror = root.read("name", _name, "", required="give this mirror a unique name")
    canal = _canal(root.section("canal"))
    source = _source(root.section("source"))
    lake_section = root.section("lake")
    lake, deletes, form = _lake(lake_section, folder)
    salt = root.secret("mask_salt")
    if salt and len(salt.encode()) < SALT_BYTES_MIN:
        remedy = f"write at least {SALT_BYTES_MIN} bytes that cannot be guessed"
        root.problem("mask_salt", remedy, hidden=True)
    rules = tuple(
        _rule(section, f"{name}: {section.path}", deletes, form, salt)
        for section in root.sections("tables", "- match: shop\\..*")
    )
    _check_catalog(lake_section, lake, rules)
    settings = MirrorSettings(
        name=mirror,
        canal=canal,
        source=source,
        lake=lake,
        tables=rules,
        copy=_copy(root.section("copy")),
        stream=_stream(root.section("stream")),
        metrics=_metrics(root.section("metrics"), folder),
        verify=_verify(root.section("verify")),
        checkpoint=root.read("checkpoint", lambda path: _folder(path, folder), "")
        or f"{lake.path}/_mirror/{mirror}/checkpoint",
        spark=_spark(root),
    )
    root.finish()
    problems = document.problems()
    if problems:
        raise ConfigError(problems)
    return settings


# --------------------------------------------------------------------------------
# Sections
# --------------------------------------------------------------------------------


def _canal(section: Section) -> CanalSettings:
    servers = ",".join(section.texts("servers")) or SERVERS
    try:
        read_options({"servers": servers, "destination": "x"})
    except ConfigError as error:
        section.problem("servers", error.problems[0].partition(": ")[2])
    found = CanalSettings(
        servers=servers,
        destination=section.read(
            "destination",
            _destination,
            "",
            required="the destination's name in the server",
        ),
        user=section.text("user"),
        password=section.secret("password"),
        tls=section.truth("tls", default=False),
        tls_ca_file=section.text("tls_ca_file"),
        tls_cert_file=section.text("tls_cert_file"),
        tls_key_file=section.text("tls_key_file"),
    )
    for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
        if getattr(found, name) and not found.tls:
            section.problem(name, "has no effect without tls: true")
    section.finish()
    return found


def _source(section: Section) -> SourceSettings:
    replica = section.section("replica")
    access = _access(section, None)
    found = SourceSettings(
        access=access,
        replica=_access(replica, access) if section.has("replica") else None,
    )
    section.finish()
    if section.has("replica"):
        replica.finish()
    return found


def _access(section: Section, main: Access | None) -> Access:
    """Read the access to a server; a replica inherits missing keys from its source."""
    user, tls = "", TlsOptions()
    password: Password = ""
    connect_s, io_s = 10.0, 60.0
    if main is not None:
        user, password = main.credentials.user, main.credentials.password
        tls, connect_s, io_s = main.tls, main.connect_timeout_s, main.io_timeout_s
    required = "" if user else "an account that may read the tables"
    port = section.whole("port", 3306, 1, PORT_MAX)
    host = section.text("host", required="name the database's host")
    user = section.text("user", user, required=required)
    if section.has("password") or main is None:
        password = section.secret("password")
    section.ask("password")
    usual_key = main.server_key if main is not None else ServerKey()
    allowed = section.truth(
        "allow_public_key_retrieval",
        default=usual_key.retrieval is KeyRetrieval.ALLOWED,
    )
    mode = section.one_of("ssl_mode", _TLS_MODES, tls.mode.value.lower())
    key_password = section.secret("ssl_key_password") or tls.key_password
    return Access(
        named_by=f"{section.path}.host",
        address=Address(host, port),
        credentials=Credentials(user, password),
        tls=TlsOptions(
            TlsMode(mode.upper()),
            section.text("ssl_ca", tls.ca),
            section.text("ssl_cert", tls.cert),
            section.text("ssl_key", tls.key),
            key_password,
        ),
        server_key=ServerKey(
            section.text("server_public_key", usual_key.pinned),
            KeyRetrieval.ALLOWED if allowed else KeyRetrieval.LOOPBACK,
        ),
        connect_timeout_s=section.seconds("connect_timeout", connect_s),
        io_timeout_s=section.seconds("io_timeout", io_s),
    )


def _lake(section: Section, folder: Path) -> tuple[LakeSettings, str, str]:
    path = section.read(
        "path",
        lambda text: _lake_folder(text, folder),
        "",
        required=_LAKE_FORMS,
    )
    deletes = section.one_of("deletes", DELETES, "hard")
    form = section.one_of("format", FORMS, "delta")
    found = LakeSettings(
        path=path,
        storage_options=section.pairs("storage_options", hidden=True),
        catalog=section.pairs("catalog", hidden=True),
        change_feed=section.truth("change_feed", default=True),
        compact_every_s=section.seconds("compact_every", 600.0),
        vacuum_after_s=section.seconds("vacuum_after", 7 * 86400.0),
    )
    section.finish()
    return found, deletes, form


def _check_catalog(
    section: Section, lake: LakeSettings, rules: Sequence[TableRule]
) -> None:
    """Add a problem if Iceberg tables lack their catalog, or the reverse."""
    has_iceberg = any(rule.form == "iceberg" for rule in rules)
    if lake.catalog and not has_iceberg:
        section.problem("catalog", "has no effect without format: iceberg", hidden=True)
    if has_iceberg and lake.path.startswith(f"{_AZURE[0]}://"):
        section.problem(
            "path",
            f"{lake.path}: pyiceberg cannot write there: choose format delta, or "
            "another store",
        )
    if lake.catalog and not {"type", "py-catalog-impl"} & dict(lake.catalog).keys():
        section.problem(
            "catalog", "has no type: write {type: rest, uri: …}", hidden=True
        )
    if has_iceberg and not lake.is_local and not lake.catalog:
        section.problem(
            "catalog",
            "format iceberg needs a catalog in an object store, where two writers "
            "could replace each other's commits: write {type: rest, uri: …}",
        )


def _copy(section: Section) -> CopySettings:
    usual = CopySettings()
    connections = section.whole("connections", usual.connections, 1, 256)
    at_once = section.whole("tables_at_once", usual.tables_at_once, 1, 64)
    found = CopySettings(
        connections=connections,
        rows_per_second=section.whole("rows_per_second", usual.rows_per_second),
        chunk_rows=section.whole("chunk_rows", usual.chunk_rows, 100, 10_000_000),
        tables_at_once=min(
            at_once, connections
        ),  # each table has at least one connection
        keyless_lock=section.truth("keyless_lock", default=usual.keyless_lock),
    )
    section.finish()
    return found


def _stream(section: Section) -> StreamSettings:
    usual = StreamSettings()
    found = StreamSettings(
        trigger_s=section.seconds("trigger", usual.trigger_s),
        max_rows=section.whole("max_rows", usual.max_rows, 1),
        max_bytes=section.whole("max_bytes", usual.max_bytes),
        max_partitions=section.whole("max_partitions", usual.max_partitions, 1, 1024),
        min_partition_rows=section.whole(
            "min_partition_rows", usual.min_partition_rows, 1
        ),
        retry_timeout_s=section.seconds("retry_timeout", usual.retry_timeout_s),
        tables_at_once=section.whole("tables_at_once", usual.tables_at_once, 1, 64),
    )
    section.finish()
    return found


def _metrics(section: Section, folder: Path) -> MetricsSettings:
    usual = MetricsSettings()
    has_port = section.has("port")
    port = section.whole("port", 0, 0, PORT_MAX)
    files = {
        name: section.read(name, lambda text: str(folder / text), "")
        for name in ("tls_cert_file", "tls_key_file")
    }
    found = MetricsSettings(
        port=port if has_port else None,
        host=section.text("host", usual.host),
        **files,
    )
    if found.tls_key_file and not found.tls_cert_file:
        section.problem("tls_key_file", "has no effect without tls_cert_file")
    if not has_port:
        for name in section.names():
            if name in ("host", *files):
                section.problem(name, "has no effect without port")
    section.finish()
    return found


def _verify(section: Section) -> VerifySettings:
    usual = VerifySettings()
    found = VerifySettings(
        every_s=section.seconds("every", usual.every_s),
        tables=_expression(section, "tables"),
        rows_per_second=section.whole("rows_per_second", usual.rows_per_second),
    )
    if not section.has("every"):
        for name in section.names():
            section.problem(name, "has no effect without every")
    section.finish()
    return found


def _spark(root: Section) -> dict[str, str]:
    found = root.pairs("spark", hidden=True)
    section = root.section("spark")
    for name in found:
        if not name.startswith("spark."):
            remedy = "settings of Spark begin with spark."
            section.problem(name, remedy, hidden=True)
    return found


# --------------------------------------------------------------------------------
# Rules of tables
# --------------------------------------------------------------------------------


def _rule(
    section: Section, location: str, deletes: str, form: str, salt: str
) -> TableRule:
    match = _expression(section, "match")
    if not match and not section.has("match"):
        section.text("match", required="an expression for schema.table: shop\\..*")
    columns, without = section.texts("columns"), section.texts("without")
    if columns and without:
        section.problem(
            "without", "columns already selects the columns; remove without"
        )
    masks = _masks(section.section("masks"), salt)
    form = section.one_of("format", FORMS, form)
    rule = TableRule(
        match=match,
        exclude=_expression(section, "exclude"),
        to=section.read("to", _template, "{schema}/{table}"),
        columns=columns,
        without=without,
        rename=section.pairs("rename"),
        masks={name: each for name, each in masks.items() if each.kind != SHOW},
        shown=tuple(name for name, each in masks.items() if each.kind == SHOW),
        types=_types(section.section("types")),
        deletes=section.one_of("deletes", DELETES, deletes),
        form=form,
        partition_by=_partition_by(section, form),
        drift=section.one_of("drift", ("copy", "stop"), "copy"),
        foreign_keys=section.one_of("foreign_keys", ("warn", "reread"), "warn"),
        dropped_columns=section.one_of("dropped_columns", ("drop", "keep"), "drop"),
        migration_tables=section.one_of("migration_tables", ("skip", "mirror"), "skip"),
        location=location,
    )
    section.finish()
    return rule


def _partition_by(section: Section, form: str) -> tuple[PartitionExpression, ...]:
    # In a list in brackets, the comma of bucket(16, id) separates two items.
    text = ", ".join(section.texts("partition_by"))
    if not text:
        return ()
    if form in LOGS:
        section.problem(
            "partition_by",
            f"has no effect with format: {form}, whose files are by date: remove it",
        )
        return ()
    try:
        return expressions_of(text)
    except ValueError as error:
        section.problem("partition_by", str(error))
        return ()


def _types(section: Section) -> TypeSettings:
    usual = TypeSettings()
    found = TypeSettings(
        geometry=section.one_of("geometry", ("binary", WKB), usual.geometry),
        vector=section.one_of("vector", ("binary", ARRAY), usual.vector),
        bit64=section.one_of("bit64", ("signed", UNSIGNED), usual.bit64),
    )
    section.finish()
    return found


def _expression(section: Section, key: str) -> str:
    expression = ",".join(section.texts(key))
    try:
        compile_expression(expression)
    except ValueError as error:
        section.problem(key, str(error))
        return ""
    for doubt in doubtful_pieces(expression):
        section.problem(key, doubt)
    if expression and not split_expression(expression):
        section.problem(key, "write at least one name")
    return expression


def _masks(section: Section, salt: str) -> dict[str, Mask]:
    found = {}
    for column in section.names():
        mask = _mask(section, column, salt)
        if mask is not None:
            found[column] = mask
    return found


def _mask(section: Section, column: str, salt: str) -> Mask | None:
    if section.is_null(column):
        section.ask(column)
        return Mask("null")
    if not section.is_single(column):
        inner = section.section(column)
        length = inner.whole("truncate", 0, 1, 65_535)
        if not inner.has("truncate"):
            section.problem(column, "write hash, null, drop, {truncate: 4} or show")
        inner.finish()
        return Mask("truncate", length) if length else None
    kind = section.one_of(column, ("hash", "null", "drop", SHOW), "null")
    return Mask(kind, salt=salt if kind == "hash" else "")


# --------------------------------------------------------------------------------
# Values
# --------------------------------------------------------------------------------


def _name(text: str) -> str:
    if not SUBSCRIPTION.fullmatch(text) or text.startswith((".", "_")):
        raise ValueError(
            "write 1 to 100 of A-Z a-z 0-9 _ . -, without a leading . or _"
        )
    return text


def _destination(text: str) -> str:
    if "," in text or not text.strip():
        raise ValueError("write one destination; each needs its own mirror")
    return text


def _folder(text: str, base: Path) -> str:
    """Return a folder without a trailing slash; below `base` if relative."""
    found = _SCHEME.fullmatch(text)
    scheme = found[1].lower() if found else "file"
    if found is None or scheme == "file":
        path = os.path.normpath(base / (found[2] if found else text))
        if path == "/":
            raise ValueError("the root of the file system cannot be a lake")
        return path
    if scheme not in _STORES:
        raise ValueError(f"write {_LAKE_FORMS}")
    scheme, pattern, form = _STORES[scheme]
    rest = found[2].strip("/")
    if not pattern.fullmatch(rest):
        raise ValueError(f"write {form}")
    return f"{scheme}://{rest}"


def _lake_folder(text: str, base: Path) -> str:
    found = _folder(text, base)
    if problem := path_problem(found):
        raise ValueError(problem)
    return found


def _template(text: str) -> str:
    """Check the template of a table's folder in the lake."""
    try:
        fields = {name for _, name, *_ in Formatter().parse(text) if name is not None}
    except ValueError:
        raise ValueError("write a template such as {schema}/{table}") from None
    if not fields <= {"schema", "table"}:
        raise ValueError("only {schema} and {table} can be put in")
    if "%" in text:
        raise ValueError("write it without %, as readers of Delta tables decode it")
    if problem := path_problem(text):
        raise ValueError(problem)
    for part in text.split("/"):
        if part in ("", ".", "..") or part.startswith(("_", ".")):
            raise ValueError(
                "write the path of a folder below the lake's; none of its parts may "
                "begin with . or _"
            )
    return text
