"""What Spark's own connectors read of tables of the lake, with CANAL_INTEROP=1.

Each is the newest one, with the Spark that it is made for; both are fetched.
`tests/interop/lake_values` has the program.
"""

from __future__ import annotations

import itertools
import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from fix_delta_streams import HERE as DELTA
from fix_delta_streams import SPARK as DELTA_SPARK
from spark_connectors import spark_program, without_own_spark
from support_paths import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

END_S = 60.0  # until Spark has ended, after it was asked to
HERE = TESTS / "interop" / "lake_values"
# By the format: what names the connector, and the Spark that it is made for.
CONNECTORS = {
    "delta": (DELTA / "pom.xml", DELTA_SPARK),
    "iceberg": (HERE / "iceberg.xml", "pyspark==4.1.4"),
}


class SparkValues:
    """Reads tables by Spark; its programs start when they are needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._numbers = itertools.count(1)

    def read(self, path: Path, form: str) -> pa.Table:
        """Return the rows of a table in a folder."""
        import pyarrow.parquet as pq  # noqa: PLC0415  # an extra

        to = self._folder / f"values-{next(self._numbers)}"
        program = self._program(form)
        assert program.stdin is not None
        assert program.stdout is not None
        asked = {"form": form, "path": str(path), "to": str(to)}
        program.stdin.write(json.dumps(asked) + "\n")
        program.stdin.flush()
        line = program.stdout.readline()
        assert line, f"Spark has ended: {(self._folder / f'{form}.log').read_text()}"
        error = json.loads(line)["error"]
        assert not error, error
        return pq.read_table(to)

    def _program(self, form: str) -> subprocess.Popen[str]:
        if form not in self._running:
            pom, spark = CONNECTORS[form]
            program = HERE / "spark_values.py"
            command = spark_program(program, pom, spark, self._folder)
            with (self._folder / f"{form}.log").open("w") as log:
                self._running[form] = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=without_own_spark(),
                )
        return self._running[form]

    def close(self) -> None:
        """End the programs."""
        for each in self._running.values():
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.close()
            try:
                each.wait(END_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
            each.stdout.close()


@pytest.fixture(scope="session")
def spark_values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkValues]:
    """Give what reads tables by Spark."""
    found = SparkValues(tmp_path_factory.mktemp("values"))
    yield found
    found.close()
