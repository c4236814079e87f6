"""A mirror whose tables are Iceberg tables: copied, followed, altered, killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyiceberg", reason="the extra `iceberg` is not installed")

if TYPE_CHECKING:
    from fix_mirror_process import MirrorProcess

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(0)]


def identity(mirror: MirrorProcess, table: str) -> str:
    """Return the id by which readers know a table."""
    metadata = mirror.path / mirror.pipeline.schema / table / "metadata"
    newest = (metadata / "version-hint.text").read_text()
    text = (metadata / f"v{newest}.metadata.json").read_text()
    return str(json.loads(text)["table-uuid"])


def test_tables_of_a_mirror(mirror: MirrorProcess) -> None:
    """Changes, DDL and kills leave the rows of the source, in the same tables."""
    schema = mirror.pipeline.schema
    mirror.settings["lake"] |= {"format": "iceberg"}
    mirror.source.execute(
        f"CREATE TABLE {schema}.t (id INT PRIMARY KEY, tiny TINYINT, v VARCHAR(20), "
        "d DECIMAL(12,3), at TIMESTAMP(6) NULL)",
        f"CREATE TABLE {schema}.keyless (n INT, s VARCHAR(9))",
        f"INSERT INTO {schema}.t VALUES (1, -5, 'a', 1.5, '2024-01-01 00:00:00'), "
        "(2, 7, 'b', NULL, NULL), (3, 8, NULL, -2.125, '2024-06-01 12:30:00.5')",
        f"INSERT INTO {schema}.keyless VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    )
    mirror.start()
    mirror.agree(t=("id",), keyless=())
    first = identity(mirror, "t")
    mirror.source.execute(
        f"UPDATE {schema}.t SET v = 'changed', tiny = 100 WHERE id = 2",
        f"DELETE FROM {schema}.t WHERE id = 1",
        f"INSERT INTO {schema}.t VALUES (10, 1, 'new', 0.001, NULL)",
        f"DELETE FROM {schema}.keyless LIMIT 1",
    )
    mirror.agree(t=("id",))
    mirror.kill()
    mirror.source.execute(
        f"ALTER TABLE {schema}.t ADD COLUMN more INT DEFAULT 9, RENAME COLUMN v TO w",
        f"UPDATE {schema}.t SET more = 11 WHERE id = 3",
        f"ALTER TABLE {schema}.t MODIFY tiny BIGINT",
        f"UPDATE {schema}.t SET tiny = 9000000000 WHERE id = 10",
    )
    mirror.start(wait=False)
    mirror.agree(t=("id",), keyless=())
    done = mirror.command("copy", f"{schema}.t")
    assert done.returncode == 0, done.stderr
    mirror.source.execute(f"INSERT INTO {schema}.t (id) VALUES (20)")
    mirror.agree(t=("id",))
    found = mirror.command("verify")
    assert found.returncode == 0, found.stdout + found.stderr
    assert identity(mirror, "t") == first
    mirror.stop()
