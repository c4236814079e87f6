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
    from collections.abc import Iterator

    from fix_s3 import S3

SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


@pytest.fixture(scope="session")
def rest_catalog(
    s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Give the options of a catalog for all tests."""
    folder = tmp_path_factory.mktemp("rest")
    classes = jars("iceberg-rest.xml", folder)
    port = free_port()
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:file:{folder / 'catalog.db'}",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": f"s3://{BUCKET}/warehouse",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            ["java", *OPTIONS, "-cp", classes, SERVER],
            stdout=output,
            stderr=output,
            env=os.environ | settings,
        ) as popen,
    ):
        try:
            uri = f"http://127.0.0.1:{port}"
            wait_for(f"{uri}/v1/config", popen, log)
            yield {"type": "rest", "uri": uri}
        finally:
            popen.kill()
