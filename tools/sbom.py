"""Lists what is shipped as software bills of materials, in CycloneDX's JSON.

    python tools/sbom.py wheel FILE.whl > wheel.cdx.json
    python tools/sbom.py environment PYTHON [--debian FOLDER] > server.cdx.json

The bill of a wheel is that in it (setup.py). That of an environment has all packages
which this Python imports, and the Python itself; of an image also the packages of its
Debian: FOLDER has its os-release and dpkg's file `status`. Each bill is checked against
the schema before it is printed; the same environment makes the same bill.

Exit status: 0 the bill is printed, 1 it cannot be made or is not valid.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).parents[1]
# What all readers of bills know by now.
SPECIFICATION = "1.6"
# Prints the version of canal-server and that of the Python.
VERSIONS = """
import importlib.metadata, platform
print(importlib.metadata.version("canal-server"), platform.python_version())
"""

Bill = dict[str, Any]


class BillError(Exception):
    """A bill cannot be made, or is not valid."""


def bill_of_wheel(wheel: Path) -> Bill:
    """Return the bill that is in a wheel of ours. Raises BillError."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/sboms/canal-server.cdx.json"):
                bill: Bill = json.loads(archive.read(name))
                return bill
    raise BillError(f"{wheel} has no bill of materials")


def bill_of_environment(python: Path) -> Bill:
    """Return the bill of what a Python imports. Raises BillError."""
    made = _output(
        *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
        *("--spec-version", SPECIFICATION, "--pyproject", str(ROOT / "pyproject.toml")),
        str(python),
    )
    bill: Bill = json.loads(made)
    ours, of_python = _output(str(python), "-c", VERSIONS).split()
    # The version is not in pyproject.toml.
    bill["metadata"]["component"] |= {
        "version": ours,
        "purl": f"pkg:pypi/canal-server@{ours}",
    }
    bill["components"].append(
        _component("platform", "python", of_python, "pkg:generic/python")
    )
    return bill


def debian_components(folder: Path) -> list[Bill]:
    """Return the installed packages of a Debian: of its os-release and `status`."""
    release = dict(
        re.findall(
            r'^(\w+)="?([^"\n]*)', (folder / "os-release").read_text(), re.MULTILINE
        )
    )
    distribution = f"{release['ID']}-{release['VERSION_ID']}"
    components = []
    for paragraph in (folder / "status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            package, version = fields["Package"], fields["Version"]
            qualifiers = f"?arch={fields['Architecture']}&distro={distribution}"
            purl = f"pkg:deb/{release['ID']}/{quote(package)}"
            made = _component("library", package, version, purl, qualifiers)
            components.append(made)
    return components


def check(bill: Bill) -> None:
    """Check a bill against the schema of its version. Raises BillError."""
    schema = JsonStrictValidator(SchemaVersion.from_version(bill["specVersion"]))
    problem = schema.validate_str(json.dumps(bill))
    if problem is not None:
        raise BillError(f"the bill is not valid CycloneDX: {problem}")


def _component(
    kind: str, name: str, version: str, purl: str, qualifiers: str = ""
) -> Bill:
    """Return a component; its package URL is its reference, too."""
    purl = f"{purl}@{quote(version)}{qualifiers}"
    return {
        "type": kind,
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }


def _output(*command: str) -> str:
    """Return what a command prints. Raises BillError."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise BillError(f"{' '.join(command)} failed with status {done.returncode}")
    return done.stdout


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    kinds.add_parser("wheel").add_argument("path", type=Path)
    environment = kinds.add_parser("environment")
    environment.add_argument("path", type=Path)
    environment.add_argument("--debian", type=Path, metavar="FOLDER")
    options = parser.parse_args()

    try:
        if options.kind == "wheel":
            bill = bill_of_wheel(options.path)
        else:
            bill = bill_of_environment(options.path)
            if options.debian:
                bill["components"] += debian_components(options.debian)
        check(bill)
    except BillError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(bill, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
