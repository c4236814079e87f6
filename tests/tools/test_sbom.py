"""Bills of materials: valid CycloneDX, and complete."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import Distribution, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sbom import ROOT, BillError, check, debian_components

METADATA = "*.dist-info/METADATA"
SITE_PACKAGES = sysconfig.get_path("purelib")
PROGRAM = ROOT / "tools/sbom.py"
STATUS = """\
Package: libssl3
Status: install ok installed
Architecture: amd64
Description: libraries
 Version: no field, but a line of the description
Version: 3.0.17-1~deb12u2

Package: removed
Status: deinstall ok config-files
Architecture: all
Version: 1.0

Package: g++
Status: hold ok installed
Architecture: amd64
Version: 4:12.2.0-3
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program."""
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """Give a folder that describes a Debian."""
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "os-release").write_text('NAME="Debian"\nVERSION_ID="12"\nID=debian\n')
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Give a Python in whose environment are the server's packages by their metadata.

    All that the tests need besides would cost a minute.
    """
    root = tmp_path / "environment"
    venv.create(root)
    (packages,) = root.glob("lib/python*/site-packages")
    missing, copied = ["canal-server"], set()
    while missing:
        name = canonicalize_name(missing.pop())
        if name in copied:
            continue
        copied.add(name)
        # Not the one that a build leaves in the project's folder.
        (metadata, *_) = Distribution.discover(name=name, path=[SITE_PACKAGES])
        (file,) = (each for each in metadata.files or () if each.match(METADATA))
        folder = Path(str(metadata.locate_file(file))).parent
        shutil.copytree(folder, packages / folder.name)
        required = map(Requirement, metadata.requires or ())
        missing += [
            each.name
            for each in required
            if each.marker is None or each.marker.evaluate({"extra": ""})
        ]
    return root / "bin/python"


@pytest.mark.slow
def test_environment(environment: Path, debian: Path) -> None:
    """The bill of a Python has all packages of the server, Python, and a Debian's.

    A second one has the same bytes.
    """
    arguments = ["environment", str(environment), "--debian", str(debian)]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert run(*arguments).stdout == done.stdout

    bill = json.loads(done.stdout)
    check(bill)
    ours = bill["metadata"]["component"]
    assert ours["purl"] == f"pkg:pypi/canal-server@{version('canal-server')}"
    urls = {each["purl"] for each in bill["components"]}
    server = ("pymysql", "cryptography", "sqlglot", "uvicorn", "h11", "cffi")
    assert {f"pkg:pypi/{name}@{version(name)}" for name in server} <= urls
    assert f"pkg:generic/python@{platform.python_version()}" in urls
    assert "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12" in urls

    graph = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    required = {each.partition("==")[0] for each in graph[ours["bom-ref"]]}
    assert {"PyMySQL", "starlette"} <= required
    assert "h11" not in required  # uvicorn requires it


def test_debian(debian: Path) -> None:
    """Installed packages are listed, with names and versions as in a package URL."""
    assert [each["purl"] for each in debian_components(debian)] == [
        "pkg:deb/debian/libssl3@3.0.17-1~deb12u2?arch=amd64&distro=debian-12",
        "pkg:deb/debian/g%2B%2B@4%3A12.2.0-3?arch=amd64&distro=debian-12",
    ]


def test_invalid() -> None:
    """A bill that the schema refuses is an error."""
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [{}]}
    with pytest.raises(BillError, match="not valid CycloneDX"):
        check(bill)


def test_wheel_without_bill(tmp_path: Path) -> None:
    """A wheel without a bill is named, and nothing is printed."""
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", "")
    done = run("wheel", str(wheel))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{wheel} has no bill of materials\n"
