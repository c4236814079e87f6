"""The sdist and the wheels are complete, and run where there is no compiler.

They are those from which `make test` installed the package. `make wheels` names its own
by CANAL_TEST_WHEELS: a folder with an sdist and any number of wheels; those of arm64
run in an emulator.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from arm64_debian import MACHINE, arm64_python
from fix_random import longer
from golden_form import DATA, decode_fields, load_workload
from recorded_reader import lines_of
from sbom import bill_of_wheel, check
from server_folders import Unavailable
from wheel_pythons import ROOT, interpreter, supported_versions

import canal_server
from canal_server.cli.files.shipped_files import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(os.environ.get("CANAL_TEST_WHEELS") or ROOT / "build/package").resolve()
SDISTS, WHEELS = sorted(FOLDER.glob("*.tar.gz")), sorted(FOLDER.glob("*.whl"))
WHEEL_BYTES_MAX = 8_000_000
WORKLOADS = sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))
READER = ROOT / "tests/support/process/recorded_reader.py"
PACKAGES = ("canal_server/", "pyspark_canal/")
SOURCES = (".py", ".pyi", ".pxd", ".pyx", "py.typed", ".html", ".css", ".js")
# Below the prefix of an installation: what is copied from `deploy`.
SHARED = {
    "share/man/man1/canal-server.1": "man/canal-server.1",
    "share/bash-completion/completions/canal-server": "completion/canal-server",
    "share/zsh/site-functions/_canal-server": "completion/_canal-server",
    "share/fish/vendor_completions.d/canal-server.fish": (
        "completion/canal-server.fish"
    ),
}
# What commands write, where a wheel has it and where the sdist does.
SHIPPED = "canal_server/shipped/"
SHIPPED_FOLDERS = ("conf/", *(f"deploy/{each}/" for each in KINDS))
GENERATED = ("*.c", "*.so", "*.pyc", "*__pycache__*")
# Of systems as old as the Pythons that run the wheels here.
ARM64_PLATFORMS = [f"manylinux_2_{number}_{MACHINE}" for number in range(17, 37)]

pytestmark = pytest.mark.skipif(
    not (len(SDISTS) == 1 and WHEELS),
    reason=f"{FOLDER} has no sdist with wheels: `make test` builds one of each",
)
each_wheel = pytest.mark.parametrize("wheel", WHEELS, ids=lambda path: path.name)


def sdist_files() -> dict[str, bytes]:
    """Return the files of the sdist by their paths in it."""
    with tarfile.open(SDISTS[0]) as archive:
        return {
            entry.name.partition("/")[2]: content.read()
            for entry in archive.getmembers()
            if (content := archive.extractfile(entry)) is not None
        }


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel by their paths in it."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        return {name: archive.read(name) for name in names}


def python_of(wheel: Path) -> str:
    """Return the version of Python that a wheel is for, such as 3.11."""
    tag = wheel.name.split("-")[2]
    return f"3.{tag.removeprefix('cp3')}"


def is_for_arm64(wheel: Path) -> bool:
    """Return whether a wheel is for the processors that are emulated here."""
    return wheel.stem.endswith(MACHINE)


def module_run(name: str, *arguments: str) -> str:
    """Run an installed module with the Python of the tests; returns its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-P", "-m", name, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": path},
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@dataclass
class Environment:
    """A Python with nothing but a wheel, and no program of the system on PATH."""

    python: list[str]
    pip: list[str]
    install_options: list[str] = field(default_factory=list)
    environ: dict[str, str] = field(default_factory=dict)

    def install(self, *arguments: str) -> None:
        """Run `pip install`."""
        self._run([*self.pip, "install", *self.install_options, *arguments])

    def run(self, *arguments: str) -> str:
        """Run the Python; returns its output."""
        return self._run([*self.python, *arguments])

    def _run(self, command: Sequence[str]) -> str:
        unset = {"PYTHONPATH", "CC", "MAKEFLAGS"}
        environ = {k: v for k, v in os.environ.items() if k not in unset}
        environ |= {"PATH": str(Path(self.python[-1]).parent), **self.environ}
        assert not any(shutil.which(cc, path=environ["PATH"]) for cc in ("cc", "gcc"))
        done = subprocess.run(
            command, capture_output=True, env=environ, cwd="/", text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def environment_of(wheel: Path, folder: Path) -> Environment:
    """Make an environment for a wheel, or skip with the reason."""
    version = python_of(wheel)
    if is_for_arm64(wheel):
        try:
            command = arm64_python(version).command
        except Unavailable as error:
            pytest.skip(str(error))
        target = str(folder / "packages")
        platforms = [f"--platform={each}" for each in ARM64_PLATFORMS]
        options = [f"--target={target}", "--upgrade", f"--python-version={version}"]
        return Environment(
            command,
            [sys.executable, "-m", "pip"],
            [*options, *platforms, "--only-binary=:all:"],
            {"PYTHONPATH": target},
        )
    found = interpreter(version)
    if found is None:
        pytest.skip(f"no Python {version} on this machine")
    subprocess.run([found.program, "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv/bin/python")
    return Environment([python], [python, "-m", "pip"])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """Give a folder with the messages of all recorded workloads."""
    folder: Path = tmp_path_factory.mktemp("bodies")
    for name in WORKLOADS:
        binlogs = tmp_path_factory.mktemp(name)
        (folder / name).write_bytes(decode_fields(load_workload(name), binlogs))
    return folder


def test_sdist_is_complete() -> None:
    """The sdist has all sources, settings and the licence, and no generated file."""
    files = sdist_files()
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.name.endswith(SOURCES)
    }
    assert {f for f in files if f.startswith(PACKAGES)} == expected
    others = {"pyproject.toml", "setup.py", "LICENSE"}
    others |= {"README.md", "CHANGELOG.md", "SECURITY.md"}
    settings = {str(p.relative_to(ROOT)) for p in (ROOT / "conf").rglob("*.properties")}
    deploy = ROOT / "deploy"
    copied = {str(p.relative_to(ROOT)) for p in deploy.rglob("*") if p.is_file()}
    assert others | settings | copied <= files.keys()
    assert [f for f in files if any(fnmatch(f, each) for each in GENERATED)] == []


@each_wheel
def test_wheel_is_of_the_sdist(wheel: Path) -> None:
    """A wheel has the modules of the sdist, byte by byte, and all compiled ones."""
    sources = {f: data for f, data in sdist_files().items() if f.startswith(PACKAGES)}
    compiled = {f.removesuffix(".pyx") for f in sources if f.endswith(".pyx")}
    files = wheel_files(wheel)
    others = {f: data for f, data in files.items() if not f.endswith(".so")}
    assert {f.partition(".")[0] for f in files if f.endswith(".so")} == compiled
    copied = {f: data for f, data in sources.items() if not f.endswith(".pyx")}
    copied |= {
        f"{SHIPPED}{f}": data
        for f, data in sdist_files().items()
        if f.startswith(SHIPPED_FOLDERS)
    }
    modules = {f: d for f, d in others.items() if f.startswith(PACKAGES)}
    assert modules == copied
    assert {
        f.partition("/")[0].rpartition(".")[2] for f in others.keys() - modules
    } == {
        "dist-info",
        "data",
    }
    assert any(f.endswith(".dist-info/licenses/LICENSE") for f in others)
    assert wheel.stat().st_size < WHEEL_BYTES_MAX


@each_wheel
def test_wheel_has_completion_and_man_page(wheel: Path) -> None:
    """They are where shells and man look, below the prefix of the installation."""
    files = {
        name.partition(".data/data/")[2]: data
        for name, data in wheel_files(wheel).items()
        if ".data/data/" in name
    }
    assert files == {
        target: (ROOT / "deploy" / source).read_bytes()
        for target, source in SHARED.items()
    }


@each_wheel
def test_wheel_has_bill(wheel: Path) -> None:
    """Its bill of materials is valid, and has what pip installs beside it."""
    bill = bill_of_wheel(wheel)
    check(bill)
    assert bill["metadata"]["component"]["version"] == canal_server.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    others = [each for each in bill["components"] if each.get("isExternal")]
    assert [
        each["name"] + each["versionRange"].removeprefix("vers:pypi/")
        for each in others
    ] == project["dependencies"]
    assert len(bill["components"]) == len(others) + 1  # Cython


@each_wheel
def test_compiled_modules_are_for_the_platform(wheel: Path) -> None:
    """Modules are named for their Python and processor; released ones name no folder.

    The linker commands of some Pythons have folders, in which others would search.
    """
    modules = {f: d for f, d in wheel_files(wheel).items() if f.endswith(".so")}
    suffix = f".cpython-{python_of(wheel).replace('.', '')}-"
    assert all(suffix in name for name in modules)
    if "manylinux" in wheel.name:
        processor = MACHINE if is_for_arm64(wheel) else "x86_64"
        assert all(f"{suffix}{processor}-linux-gnu.so" in name for name in modules)
        folders = [str(each).encode() for each in (Path.home(), ROOT, sys.prefix)]
        named = {n for n, d in modules.items() if any(each in d for each in folders)}
        assert named == set()


@each_wheel
def test_tag_is_what_auditwheel_finds(wheel: Path) -> None:
    """A wheel runs with the C library that its tag names."""
    if "manylinux" not in wheel.name:
        pytest.skip("a wheel for this machine only, as `make test` builds it")
    shown = module_run("auditwheel", "show", str(wheel))
    tag = wheel.stem.rpartition(".")[2]
    assert f'platform tag: "{tag}"' in " ".join(shown.split())


def test_metadata() -> None:
    """What a package index would refuse is not in any of the files."""
    module_run("twine", "check", "--strict", *map(str, [*SDISTS, *WHEELS]))


@pytest.mark.slow
@each_wheel
def test_wheel_runs(wheel: Path, tmp_path: Path, recorded: Path) -> None:
    """The client runs with the wheel alone, the server with what pip brings beside it.

    All is installed without a compiler, and reads what was recorded as it is read here.
    """
    environment = environment_of(wheel, tmp_path)
    environment.install("--no-index", "--no-deps", str(wheel))
    read = environment.run(str(READER), str(recorded))
    assert read.splitlines() == list(lines_of(recorded))

    environment.install("--only-binary=:all:", str(wheel))
    shown = environment.run("-m", "canal_server", "version")
    expected = f"canal-server {canal_server.__version__} (Python {python_of(wheel)}."
    assert shown.startswith(expected)
    binlogs = load_workload("ev_dml").binlogs
    for name, content in binlogs.items():
        (tmp_path / name).write_bytes(content)
    arguments = ["decode", *(str(tmp_path / name) for name in binlogs)]
    decoded = environment.run("-m", "canal_server", *arguments)
    assert decoded.count("\n") > 100
    assert decoded == module_run("canal_server", *arguments)
    for kind in ("systemd", "helm"):
        environment.run(
            "-m", "canal_server", "files", kind, "--to", str(tmp_path / kind)
        )
    assert (tmp_path / "systemd/canal-server.service").is_file()
    assert (tmp_path / "helm/canal-server/Chart.yaml").is_file()
    environment.run("-m", "canal_server", "init", "--conf", str(tmp_path / "conf"))
    assert (tmp_path / "conf/example/instance.properties").is_file()


@pytest.mark.slow
@pytest.mark.skipif(longer(1) < 2, reason="CANAL_TEST_LONGER=2 compiles once more")
def test_sdist_builds_the_same_wheel(tmp_path: Path) -> None:
    """The sdist makes the wheel of this Python again, whose bytes are the same."""
    ours = f"cp3{sys.version_info.minor}"
    wheels = [each for each in WHEELS if ours in each.name and not is_for_arm64(each)]
    wheel_folder = ["--no-deps", "--wheel-dir", str(tmp_path)]
    module_run("pip", "wheel", *wheel_folder, str(SDISTS[0]))
    (built,) = map(wheel_files, tmp_path.glob("*.whl"))
    for wheel in wheels:
        files = wheel_files(wheel)
        assert files.keys() == built.keys()
        # auditwheel changes a tag, and a release is linked without symbols.
        released = (".so",) if "manylinux" in wheel.name else ()
        omitted = (".dist-info/WHEEL", ".dist-info/RECORD", *released)
        differ = [name for name, data in files.items() if data != built[name]]
        assert [name for name in differ if not name.endswith(omitted)] == []


def test_python_of_wheel() -> None:
    """Each supported version has a name in wheels that leads back to it."""
    for version in supported_versions():
        tag = "cp" + version.replace(".", "")
        assert python_of(Path(f"canal_server-1-{tag}-{tag}-any.whl")) == version
