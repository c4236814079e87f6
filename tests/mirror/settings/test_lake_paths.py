"""Names of folders in the lake, and paths that not every engine can read."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("yaml", reason="the extra `mirror` is not installed")

from canal_server.mirror.settings.lake_paths import (
    NAME_MAX,
    as_folder,
    as_former_folder,
    checkpoint_warning,
    path_problem,
    path_warnings,
)
from canal_server.mirror.settings.settings_file import read

SETTINGS = """name: shop
canal: {destination: example}
source: {host: db, user: canal}
lake: {path: '%s'}
tables: [{match: a, to: '%s'}]
"""
LETTERS = "aZ0_-.$~!% éßøñ日本🎉e\u0301'#?\x7f"


def test_a_folder_is_plain_and_unique():
    """Names of any letters give different folders of safe characters."""
    rng = random.Random(7)
    names = {"".join(rng.choices(LETTERS, k=rng.randint(1, 64))) for _ in range(5000)}
    names |= {letter * length for letter in LETTERS for length in (63, 64)}
    folders = {name: as_folder(name) for name in names}
    assert len(set(folders.values())) == len(names)
    for name, folder in folders.items():
        assert folder.isascii(), name
        assert not folder.startswith((".", "_")), name
        assert not set(folder) & set("%#?+ /'"), name
        assert len(folder) <= NAME_MAX, name


@pytest.mark.parametrize(
    ("name", "folder", "former"),
    [
        ("orders", "orders", "orders"),
        ("_a b", "!5Fa!20b", "!5Fa!20b"),
        ("café", "caf!C3!A9", "café"),
        ("a€", "a!E2!82!AC", "a!E2!82!AC"),
        ("日" * 64, f"{'!E6!97!A5' * 20}!!d73fcaa7c8eafd4d", "日" * 64),
    ],
)
def test_the_name_of_a_folder(name: str, folder: str, former: str):
    """Only letters and digits of ASCII are kept, earlier those of all scripts."""
    assert (as_folder(name), as_former_folder(name)) == (folder, former)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/lake/my data", ""),
        ("/lake/100%", ""),
        ("/lake/a%20b", "decode %20"),
        ("/lake/[1]", "cannot write to a path with '['"),
        ("/lake/a\tb", r"cannot write to a path with '\t'"),
        ("/lake/a\\b", r"cannot write to a path with '\\'"),
    ],
)
def test_a_path_that_cannot_be_a_lake(path: str, problem: str):
    """Where delta-rs cannot write, or would write elsewhere, is a problem."""
    found = path_problem(path)
    assert problem in found if problem else not found


@pytest.mark.parametrize(
    ("path", "to", "warnings"),
    [
        ("/srv/lake-1/a_b.c=d", "{schema}/{table}", []),
        ("s3://bucket/lake", "x/{schema}_{table}", []),
        ("abfss://lake@shop.dfs.core.windows.net/a-b", "{table}", []),
        (
            "/srv/café au lait",
            "{table}",
            ["lake.path: /srv/café au lait has é a space"],
        ),
        ("/srv/a#b?", "{table}", ["lake.path: /srv/a#b? has # ?"]),
        ("s3://bucket/a+b", "{table}", ["lake.path: s3://bucket/a+b has +"]),
        ("/srv", "größe/{table}", ["m.yml: tables[0]: to: größe/t has ö ß"]),
    ],
)
def test_a_path_that_some_engines_cannot_read(path: str, to: str, warnings: list[str]):
    """Characters that are decoded, or that end a path in URLs, are reported."""
    found = path_warnings(read(SETTINGS % (path, to), "m.yml", {}))
    assert [each.partition(": some")[0] for each in found] == warnings


@pytest.mark.parametrize(
    ("path", "more", "warns"),
    [
        ("s3://bucket/lake", "", True),
        ("gs://bucket/lake", "", True),
        ("s3://bucket/lake", "checkpoint: /shared/shop\n", False),
        ("s3://bucket/lake", "spark: {spark.jars.packages: x}\n", False),
        ("s3://bucket/lake", "spark: {spark.sql.shuffle.partitions: 4}\n", True),
        ("/lake", "", False),
    ],
)
def test_a_checkpoint_that_spark_cannot_write(path: str, more: str, warns: bool):
    """Spark alone has no access to S3, where the checkpoint is with the lake."""
    found = checkpoint_warning(read(SETTINGS % (path, "{table}") + more, "m.yml", {}))
    assert bool(found) == warns
    scheme = path.partition("/")[0]
    assert not warns or found.startswith(
        f"checkpoint: Spark has no access to {scheme}//"
    )
