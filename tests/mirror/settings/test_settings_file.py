"""The file of a mirror's settings: its values, and each problem by its line."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from canal_server.doors.yaml_document import UNREAD
from canal_server.errors import ConfigError
from canal_server.mirror.settings.mirror_settings import TypeSettings
from canal_server.mirror.settings.settings_file import load, read
from canal_server.mirror.settings.table_values import Mask, TableName

if TYPE_CHECKING:
    from pathlib import Path

SECRETS = {"CANAL_PW": "secret-1", "DB_PW": "secret-2", "SALT": "secret-3"}
WHOLE = r"""
name: shop
canal:
  servers: [a:11111, "[::1]:11112"]
  destination: example
  user: reader
  password: ${CANAL_PW}
source:
  host: db
  user: canal
  password: ${DB_PW}
  ssl_mode: required
  replica: {host: copy, port: 3307}
lake:
  path: s3a://lake/of/ours/
  storage_options: {AWS_REGION: eu-central-1, AWS_SECRET_ACCESS_KEY: "${DB_PW}"}
  deletes: soft
  compact_every: 5m
  vacuum_after: 0
mask_salt: ${SALT}
tables:
  - match: shop\.users
    without: [photo]
    rename: {E-Mail: email}
    masks: {phone: {truncate: 4}, mail: hash, note: null, secret: drop, a: show}
    to: people
    format: parquet
  - match: [shop\..*, 'crm\.a{1,2}']
    exclude: shop\.tmp.*
    deletes: hard
    drift: stop
    dropped_columns: keep
copy: {connections: 8, rows_per_second: 10_000, keyless_lock: yes}
stream: {trigger: 500ms}
metrics: {port: 0, host: "::", tls_cert_file: cert.pem, tls_key_file: /etc/key.pem}
verify: {every: 24h, tables: 'shop\..*', rows_per_second: 500}
spark: {spark.sql.shuffle.partitions: 4}
"""
SMALL = r"""
name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: /lake}
tables:
  - match: shop\..*
"""


def problems_of(text: str, **environ: str) -> list[str]:
    """Return the problems of a file called m.yml, without its name."""
    with pytest.raises(ConfigError) as caught:
        read(text, "/conf/m.yml", environ)
    assert all(each.startswith("/conf/m.yml:") for each in caught.value.problems)
    return [each.removeprefix("/conf/m.yml:") for each in caught.value.problems]


def test_every_key_arrives():
    """A file with every kind of value gives the settings that it says."""
    settings = read(WHOLE, "/conf/m.yml", SECRETS)

    assert settings.canal.servers == "a:11111,[::1]:11112"
    assert settings.canal.password == "secret-1"
    assert str(settings.source.access.address) == "db:3306"
    assert str(settings.source.read_from.address) == "copy:3307"
    assert settings.source.read_from.credentials.password == "secret-2"
    assert settings.source.read_from.tls.required
    assert settings.lake.path == "s3://lake/of/ours"
    assert settings.lake.storage_options["AWS_SECRET_ACCESS_KEY"] == "secret-2"
    assert (settings.lake.compact_every_s, settings.lake.vacuum_after_s) == (300, 0)
    users, others = settings.tables
    assert users.masks == {
        "phone": Mask("truncate", 4),
        "mail": Mask("hash", salt="secret-3"),
        "note": Mask("null"),
        "secret": Mask("drop"),
    }
    assert users.shown == ("a",)
    assert (users.deletes, users.form, users.to) == ("soft", "parquet", "people")
    assert (others.deletes, others.drift, others.dropped_columns) == (
        *("hard", "stop", "keep"),
    )
    assert others.match == r"shop\..*,crm\.a{1,2}"
    assert (settings.copy.connections, settings.copy.rows_per_second) == (8, 10_000)
    assert settings.copy.keyless_lock
    assert settings.stream.trigger_s == 0.5
    metrics = settings.metrics
    assert (metrics.port, metrics.host) == (0, "::")
    assert metrics.tls_cert_file == "/conf/cert.pem"
    assert metrics.tls_key_file == "/etc/key.pem"
    verify = settings.verify
    assert (verify.every_s, verify.rows_per_second) == (86_400, 500)
    assert verify.applies_to(TableName("shop", "a"))
    assert not verify.applies_to(TableName("crm", "a"))
    assert settings.spark == {"spark.sql.shuffle.partitions": "4"}
    assert settings.checkpoint == "s3://lake/of/ours/_mirror/shop/checkpoint"


CATALOG = "{type: rest, uri: 'https://c', credential: '${A}'}"


def test_the_catalog_of_iceberg_tables():
    """Its options travel with the settings, and are not shown."""
    text = SMALL.replace(
        "{path: /lake}", f"{{path: 's3://lake', format: iceberg, catalog: {CATALOG}}}"
    )
    settings = read(text, "/conf/m.yml", {"A": "secret-9"})
    assert settings.lake.catalog["credential"] == "secret-9"
    assert settings.tables[0].form == "iceberg"
    assert "secret-9" not in repr(settings)


def test_a_catalog_without_a_type():
    """It is refused: pyiceberg would guess it, and shows the address if it cannot."""
    catalog = "{uri: 'mysql://u:${A}@h/db'}"
    text = SMALL.replace(
        "{path: /lake}", f"{{path: /lake, format: iceberg, catalog: {catalog}}}"
    )
    (problem,) = problems_of(text, A="secret-9")
    assert "lake.catalog = (hidden): has no type" in problem
    assert "secret-9" not in problem


def test_where_iceberg_tables_need_a_catalog():
    """In an object store, as nothing else keeps two writers apart."""
    for path, needs in (("/lake", False), ("s3://lake", True)):
        text = SMALL.replace("{path: /lake}", f"{{path: '{path}', format: iceberg}}")
        if not needs:
            assert read(text, "/conf/m.yml", {}).lake.catalog == {}
            continue
        (problem,) = problems_of(text)
        assert "format iceberg needs a catalog in an object store" in problem
    text = SMALL.replace("{path: /lake}", f"{{path: /lake, catalog: {CATALOG}}}")
    (problem,) = problems_of(text, A="secret-9")
    assert "lake.catalog = (hidden): has no effect without format: iceberg" in problem


def test_secrets_are_not_shown():
    """No text form of the settings has a secret, and they travel with them."""
    settings = read(WHOLE, "/conf/m.yml", SECRETS)

    assert not any(secret in repr(settings) for secret in SECRETS.values())
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_first_rule_that_applies_wins():
    """A name goes to the first pattern that matches and does not exclude it."""
    settings = read(WHOLE, "/conf/m.yml", SECRETS)
    users, others = settings.tables

    assert settings.rule_of(TableName("shop", "Users")) is users
    assert settings.rule_of(TableName("crm", "aa")) is others
    assert settings.rule_of(TableName("shop", "tmp1")) is None
    assert settings.rule_of(TableName("other", "users")) is None
    assert settings.wire_filter == (
        r"shop\.users,shop\..*,crm\.a{1,2},.*\._.*_(gho|new)"
    )


@pytest.mark.parametrize(
    ("name", "to"),
    [
        ("orders", "{schema}/{table}"),
        ("_orders_gho", "_mirror/m/migrations/{schema}/{table}"),
        ("_orders_new", "_mirror/m/migrations/{schema}/{table}"),
        ("____orders_new", "_mirror/m/migrations/{schema}/{table}"),
        ("_orders_ghc", None),
        ("_orders_del", None),
        ("_orders_20261128120000_del", None),
        ("_orders_old", None),
        ("_left_gho", None),  # excluded explicitly
        ("_log_new", None),  # of a log, which has no rows to exchange
        ("_own_new", "{schema}/{table}"),  # asked for
        ("_own_old", "{schema}/{table}"),
        ("orders_new", "{schema}/{table}"),  # of nobody
        ("_gho", "{schema}/{table}"),
        ("_other_gho", None),
        ("_asked_new", "{schema}/{table}"),  # by a rule of its own
        ("_none_new", "{schema}/{table}"),  # whose table does not exist
        ("_none_old", "{schema}/{table}"),
        ("_kept_del", "{schema}/{table}"),  # is mirrored already
        ("___ours_old", None),  # of _ours
    ],
)
def test_tables_of_schema_changes(name: str, to: str | None):
    """They are left out; those with new rows are kept where no reader looks."""
    text = r"""name: m
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: lake}
tables:
- {match: 'shop\.(own|_own_.*|_asked_new)', migration_tables: mirror}
- {match: 'shop\.log', format: json}
- {match: 'shop\.(orders|left|_gho|orders_new)', exclude: 'shop\._left.*'}
- {match: 'shop\..*(asked|none|kept|ours).*'}
"""
    settings = read(text, "/conf/m.yml", {})

    names = ("orders", "left", "own", "log", "other", "asked", "kept", "_ours", name)
    present = [TableName("shop", each) for each in names]
    targets = {
        TableName("shop", "_kept_del"): "shop/_kept_del",
        TableName("shop", "_orders_new"): "_mirror/m/migrations/shop/_orders_new",
    }
    settings.note_tables((), targets)  # as without the source
    settings.note_tables(present, targets)

    rule = settings.rule_of(TableName("shop", name))
    assert (rule and rule.to) == to
    is_shadow = to is not None and to.startswith("_mirror")
    assert settings.is_shadow(TableName("shop", name)) is is_shadow


def test_tables_at_once_have_a_connection_each() -> None:
    """The connections limit how many tables are copied at once."""
    for given, expected in (
        ("connections: 1", (1, 1)),
        ("connections: 3, tables_at_once: 8", (3, 3)),
        ("connections: 9, tables_at_once: 2", (9, 2)),
    ):
        copy = read(f"{SMALL}copy: {{{given}}}", "m.yml", {}).copy
        assert (copy.connections, copy.tables_at_once) == expected


def test_defaults_and_relative_folders(tmp_path: Path):
    """Few keys are needed; a relative folder is below that of the file."""
    file = tmp_path / "m.yml"
    file.write_text(SMALL.replace("/lake", "lake/x"))
    settings = load(file, {})

    assert settings.lake.path == str(tmp_path / "lake/x")
    assert settings.canal.servers == "127.0.0.1:11111"
    assert settings.tables[0].to == "{schema}/{table}"
    assert settings.source.read_from is settings.source.access


def test_all_problems_at_once_by_their_lines():
    """Each wrong value is reported with line, column, path, value and remedy."""
    text = r"""name: a b
canal: {servers: 'x:y:z', user: u}
sorce: {}
source: {host: db, user: u, port: 99999, ssl_mode: require}
lake:
  path: ftp://x
  format: detla
  compact_every: 10
tables:
  - match: 'shop\.(.*'
    to: ../{schema}
    mask: {}
  - masks: {a: hsh, b: {truncate: 0}, c: {length: 3}}
    columns: [a]
    without: [b]
copy: [1]
"""
    found = problems_of(text)
    positions = [each.partition(": ")[0] for each in found]

    assert positions == sorted(positions, key=lambda each: [*map(int, each.split(":"))])
    assert found[0].startswith("1:7: name = 'a b': write 1 to 100 of")
    assert (
        "2:8: canal.destination is missing: the destination's name in the server"
        in found
    )
    assert any("canal.servers" in each and "not an address" in each for each in found)
    assert "3:1: sorce is not known; did you mean source?" in found
    assert "4:35: source.port = '99999': write a number from 1 to 65535" in found
    assert any(each.endswith("did you mean required?") for each in found)
    assert (
        "6:9: lake.path = 'ftp://x': write a folder, s3://bucket/folder, "
        "gs://bucket/folder or abfss://container@account.dfs.core.windows.net/folder"
    ) in found
    assert (
        "7:11: lake.format = 'detla': write delta, iceberg, parquet or json; did you"
        in (" ".join(found))
    )
    assert any("8:18: lake.compact_every = '10': write a number" in p for p in found)
    assert any(p.startswith("10:12: tables[0].match = ") for p in found)
    assert any(p.startswith("11:9: tables[0].to = '../{schema}'") for p in found)
    assert "12:5: tables[0].mask is not known; did you mean masks?" in found
    assert any("tables[1].match is missing" in each for each in found)
    assert any("tables[1].masks.a = 'hsh'" in each for each in found)
    assert any("tables[1].masks.b.truncate = '0'" in each for each in found)
    assert any("tables[1].masks.c.length is not known" in each for each in found)
    assert any("tables[1].without = …: columns already" in each for each in found)
    assert "16:7: copy: write keys with values" in found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("/lake", "/data/my%20lake", "decode %20"),
        ("match: ", "to: 'a%2Fb/{table}'\n    match: ", "write it without %"),
    ],
)
def test_folders_that_readers_of_delta_tables_do_not_find(old, new, expected):
    """They decode what looks encoded, and then look for files in another folder."""
    (found,) = problems_of(SMALL.replace(old, new))
    assert expected in found


def test_types():
    """Each kind of type has its own form; the default is the one of the stream."""
    text = SMALL.replace("match: ", "types: {%s}\n    match: ")
    (usual,) = read(SMALL, "m.yml", {}).tables
    assert usual.types == TypeSettings()
    (rule,) = read(text % "geometry: wkb, vector: array", "m.yml", {}).tables
    assert rule.types == TypeSettings(geometry="wkb", vector="array", bit64="signed")
    found = problems_of(text % "geometry: wkt, bit64: 1, json: x")
    assert "types.geometry = 'wkt'" in found[0]
    assert "types.bit64 = '1'" in found[1]
    assert "types.json is not known" in found[2]


def test_what_asks_the_lake_alone_needs_no_secrets():
    """Missing secrets are not a problem for commands that only read the lake."""
    text = SMALL.replace("user: canal", "user: canal, password: '${NOT_THERE}'")
    text = text.replace("{path: /lake}", "{path: /lake, storage_options: {a: '${B}'}}")
    text += "mask_salt: ${NEITHER}\n"
    text = text.replace(r"match: shop\..*", r"{match: shop\..*, masks: {mail: hash}}")
    settings = read(text, "m.yml", {"B": "b"}, has_secrets=False)
    assert settings.source.access.credentials.password == UNREAD
    assert settings.lake.storage_options == {"a": "b"}
    with pytest.raises(ConfigError, match="the environment variable B is not set"):
        read(text, "m.yml", {}, has_secrets=False)


def test_secrets_stay_out_of_problems():
    """A problem with a secret shows neither the secret nor other variables."""
    text = SMALL.replace("user: canal", "user: canal, password: '${NOT_THERE}'")
    text += "mask_salt: s3cr3t\nspark: {bad: s3cr3t}\n"
    found = problems_of(text)

    assert (
        "source.password = (hidden): the environment variable NOT_THERE is not set"
        in (" ".join(found))
    )
    assert not any("s3cr3t" in each for each in found)
    assert len(found) == 3


def test_only_secrets_come_from_the_environment():
    """A host from the environment is an error: it must be written."""
    found = problems_of(SMALL.replace("host: db", "host: '${HOST}'"), HOST="db")
    (problem,) = found
    assert problem.startswith("4:16: source.host = '${HOST}': only secrets may come")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not valid YAML"),
        ("- a", "1:1: the document: write keys with values"),
        ("name: x\nname: y", "2:1: name is a duplicate of the key in line 1"),
        (SMALL.replace("- match", "match"), "write a list, a dash before each"),
        ("name: &a [*a]", "name = …: write a single value"),
        ("", "name is missing"),
        ("a: {b: ${C}}", "put ${NAME} in quotes inside braces"),
        ("x: \x07", "not valid YAML"),
    ],
)
def test_what_is_no_settings_at_all(text: str, problem: str):
    """A text that is not YAML, or of another form, is reported with its line."""
    assert any(problem in each for each in problems_of(text))


def test_a_file_that_cannot_be_read(tmp_path: Path):
    """A missing file, and one that is not text, are reported without a traceback."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "m.yml", {})
    (tmp_path / "m.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        load(tmp_path / "m.yml", {})


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ("{port: 70000}", "metrics.port = '70000': write a number from 0 to 65535"),
        ("{host: a}", "metrics.host = 'a': has no effect without port"),
        (
            "{port: 1, tls_key_file: k}",
            "metrics.tls_key_file = 'k': has no effect without tls_cert_file",
        ),
        ("{ports: 1}", "metrics.ports is not known; did you mean port?"),
    ],
)
def test_a_port_for_metrics_that_is_not_valid(metrics, problem):
    """A value that cannot be, or that has no effect, is a problem with its remedy."""
    (found,) = problems_of(f"{SMALL}metrics: {metrics}\n")
    assert found.endswith(f": {problem}")


def test_no_port_for_metrics():
    """Without the setting there is no port."""
    assert read(SMALL, "/conf/m.yml", {}).metrics.port is None


@pytest.mark.parametrize(
    ("verify", "problem"),
    [
        ("{tables: .*}", "verify.tables = '.*': has no effect without every"),
        ("{each: 1h}", "verify.each is not known"),
    ],
)
def test_a_schedule_that_is_not_valid(verify, problem):
    """A value that has no effect is a problem."""
    found = problems_of(f"{SMALL}verify: {verify}\n")
    assert any(problem in each for each in found)


def test_no_schedule():
    """Without the setting no table is compared."""
    verify = read(SMALL, "/conf/m.yml", {}).verify
    assert not verify.applies_to(TableName("shop", "a"))
