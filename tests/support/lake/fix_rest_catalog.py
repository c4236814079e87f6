"""A private server of Iceberg's REST catalog, from Maven, with tables in S3.

It is that of Iceberg's own tests; its names are in an SQLite file.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest
from fix_s3 import BUCKET, OPTIONS, SECRET, USER, jars, wait_for
from servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fix_s3 import S3

SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


class RestCatalogProcess:
    """A catalog as a process, which is started again and again on its names."""

    def __init__(self, folder: Path, s3: S3) -> None:
        """Set the folder of its files, and the store of its tables."""
        self._classes = jars("iceberg-rest.xml", folder)
        self._log = folder / "rest-catalog.log"
        port = free_port()
        self._uri = f"http://127.0.0.1:{port}"
        self._settings = {
            "CATALOG_REST_PORT": str(port),
            "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'rest-catalog.db'}",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            # Started on a file that it made before, it never ends one of its queries:
            # SQLite lets no other connection write then.
            "CATALOG_CLIENTS": "1",
            "CATALOG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
            "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
            "CATALOG_S3_ENDPOINT": s3.endpoint,
            "CATALOG_S3_PATH__STYLE__ACCESS": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> dict[str, str]:
        """Return the options of a catalog."""
        return {"type": "rest", "uri": self._uri}

    def start(self) -> None:
        """Start it, at the same address as before; returns when it answers."""
        with self._log.open("ab") as output:
            self._popen = subprocess.Popen(
                ["java", *OPTIONS, "-cp", self._classes, SERVER],
                stdout=output,
                stderr=output,
                env=os.environ | self._settings,
            )
        wait_for(f"{self._uri}/v1/config", self._popen, self._log)

    def kill(self) -> None:
        """Kill it, as a machine that goes away does."""
        popen, self._popen = self._popen, None
        if popen is not None:
            popen.kill()
            popen.wait()


@pytest.fixture(scope="session")
def rest_catalog(
    s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Give the options of a catalog for all tests."""
    process = RestCatalogProcess(tmp_path_factory.mktemp("rest"), s3)
    try:
        process.start()
        yield process.options
    finally:
        process.kill()


@pytest.fixture
def own_rest_catalog(tmp_path: Path) -> Iterator[Callable[[S3], RestCatalogProcess]]:
    """Give `own_rest_catalog(s3)`: a catalog of the test's own, which runs."""
    made: list[RestCatalogProcess] = []

    def make(s3: S3) -> RestCatalogProcess:
        made.append(RestCatalogProcess(tmp_path, s3))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.kill()
