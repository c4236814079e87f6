"""Private stores that speak as Azure's and Google's: Azurite, and fake-gcs-server.

Both are kept in a folder of their own once they were fetched, by npm and by Go's tool.
Skips where these are missing, or where a server cannot be had.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fix_interop import need, run
from fix_s3 import BUCKET, wait_for
from pyarrow import fs
from servers import free_port

from canal_server.mirror.settings.mirror_settings import LakeSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fix_s3 import S3

KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "canal-server"
# The account and the key of Azurite, which its documentation has.
ACCOUNT = "devstoreaccount1"
KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBek"
    "soGMGw=="
)


@dataclass(frozen=True, kw_only=True)
class Store:
    """A running server with one bucket."""

    root: str  # of the bucket
    options: dict[str, str]  # of delta-rs

    def lake(self, name: str, **options: str) -> LakeSettings:
        """Return the settings of a lake in the bucket; `options` are others."""
        return LakeSettings(
            path=f"{self.root}/{name}", storage_options=self.options | options
        )

    def other_bucket(self) -> LakeSettings:
        """Return the settings of a lake in a bucket that does not exist."""
        return LakeSettings(
            path=self.root.replace(f"//{BUCKET}", "//other") + "/x",
            storage_options=self.options,
        )


@pytest.fixture(scope="session")
def session_environment() -> Iterator[pytest.MonkeyPatch]:
    """Give what changes the environment until all tests have ended."""
    with pytest.MonkeyPatch.context() as changes:
        yield changes


@pytest.fixture(scope="session")
def azure(
    tmp_path_factory: pytest.TempPathFactory, session_environment: pytest.MonkeyPatch
) -> Iterator[Store]:
    """Give Azurite with a container; each test uses a folder of its own."""
    npm, folder = need("npm"), tmp_path_factory.mktemp("azure")
    home = KEPT / "azurite"
    program = home / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        home.mkdir(parents=True, exist_ok=True)
        made = run(npm, "install", "--prefix", str(home), "azurite")
        if made.returncode:
            pytest.skip(f"Azurite cannot be had: {made.stderr[:200]}")
    port, log = free_port(), folder / "log"
    command = [str(program), "--blobPort", str(port), "--location", str(folder)]
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [*command, "--skipApiVersionCheck", "--silent"],
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/", popen, log)
        # delta-rs looks there for what it knows not to have all of Azure's interface.
        session_environment.setenv(
            "AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{port}"
        )
        address = f"127.0.0.1:{port}"
        fs.AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            blob_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_authority=address,
            dfs_storage_scheme="http",
        ).create_dir(BUCKET)
        yield Store(
            root=f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net",
            options={
                "azure_storage_account_key": KEY,
                "azure_storage_use_emulator": "true",
            },
        )
    finally:
        popen.kill()
        popen.wait()


@pytest.fixture(scope="session")
def google(
    tmp_path_factory: pytest.TempPathFactory, session_environment: pytest.MonkeyPatch
) -> Iterator[Store]:
    """Give fake-gcs-server with a bucket; each test uses a folder of its own."""
    tool, folder = need("go"), tmp_path_factory.mktemp("google")
    program = KEPT / "fake-gcs-server" / "fake-gcs-server"
    if not program.exists():
        package = "github.com/fsouza/fake-gcs-server@latest"
        made = subprocess.run(
            [tool, "install", package],
            env={**os.environ, "GOBIN": str(program.parent), "GOFLAGS": "-mod=mod"},
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            pytest.skip(f"fake-gcs-server cannot be had: {made.stderr[:200]}")
    port, log = free_port(), folder / "log"
    url = f"http://127.0.0.1:{port}"
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1"]
    with log.open("ab") as output:
        popen = subprocess.Popen(
            [
                *command,
                *("-port", str(port), "-public-host", f"127.0.0.1:{port}"),
                *("-external-url", url, "-filesystem-root", str(folder / "objects")),
            ],
            stdout=output,
            stderr=output,
        )
    try:
        wait_for(f"{url}/storage/v1/b", popen, log)
        request = urllib.request.Request(
            f"{url}/storage/v1/b?project=test",
            data=json.dumps({"name": BUCKET}).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
        account = folder / "account.json"
        nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        content = {"gcs_base_url": url, "disable_oauth": True, **nobody}
        account.write_text(json.dumps(content))
        session_environment.setenv("GOOGLE_SERVICE_ACCOUNT", str(account))
        yield Store(
            root=f"gs://{BUCKET}",
            options={
                "google_base_url": url,
                "google_skip_signature": "true",
                "allow_http": "true",
            },
        )
    finally:
        popen.kill()
        popen.wait()


@pytest.fixture(params=["s3", "azure", "google"])
def store(request: pytest.FixtureRequest) -> Store | S3:
    """Give each kind of store in turn."""
    found: Store | S3 = request.getfixturevalue(request.param)
    return found
