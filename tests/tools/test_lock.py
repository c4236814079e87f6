"""The locks hold what pyproject.toml requires, each version with its hashes."""

from __future__ import annotations

import re
import tomllib

import pytest
from lock import LOCKS, ROOT, build_requirements
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheel_pythons import supported_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIRED = {
    "server": PROJECT["dependencies"],
    "dev": [*PROJECT["dependencies"], *EXTRAS["dev"]],
    "build": build_requirements(),
}
# Extras that others install; the tests need all of them. `mirror` includes `spark`.
OWN = "canal-server"
OTHER_EXTRAS = [
    each
    for name, requirements in EXTRAS.items()
    if name != "dev"
    for each in requirements
    if Requirement(each).name != OWN
]
# What PEP 508's markers see of the systems that the locks are for.
SYSTEMS = [
    {
        "python_version": version,
        "python_full_version": f"{version}.9",
        "platform_machine": machine,
    }
    for version in supported_versions()
    for machine in ("x86_64", "aarch64")
]

each_lock = pytest.mark.parametrize("name", REQUIRED)
each_system = pytest.mark.parametrize(
    "system", SYSTEMS, ids=lambda system: "-".join(system.values())
)


def text_of(name: str) -> str:
    """Return a lock without its comments, an entry per line."""
    text = (ROOT / LOCKS / f"{name}.txt").read_text()
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")


def pinned(lock: str, system: dict[str, str]) -> dict[str, list[str]]:
    """Return the versions that a lock has for a system, by name."""
    versions: dict[str, list[str]] = {}
    for line in lock.splitlines():
        entry = Requirement(line.partition(" --hash")[0])
        if entry.marker is None or entry.marker.evaluate(system):
            (only,) = entry.specifier
            assert only.operator == "==", line
            versions.setdefault(canonicalize_name(entry.name), []).append(only.version)
    return versions


def unsatisfied(
    required: list[str], lock: str, system: dict[str, str]
) -> list[tuple[str, list[str]]]:
    """Return the requirements without one version in their range, and what is there."""
    versions = pinned(lock, system)
    found = [(each, versions.get(canonicalize_name(Requirement(each).name), []))
             for each in required]  # fmt: skip
    return [
        (each, there)
        for each, there in found
        if len(there) != 1 or not Requirement(each).specifier.contains(there[0])
    ]


@each_lock
@each_system
def test_requirements(name: str, system: dict[str, str]) -> None:
    """Each requirement has one version, which is in its range: else run `make lock`."""
    assert unsatisfied(REQUIRED[name], text_of(name), system) == []


@each_system
def test_extras(system: dict[str, str]) -> None:
    """The versions of the tests are in the ranges of all extras, too."""
    assert unsatisfied(OTHER_EXTRAS, text_of("dev"), system) == []


@pytest.mark.parametrize("lock", ["", "pymysql==1.0 --hash=sha256:0"])
def test_unsatisfied(lock: str) -> None:
    """A requirement is found that has no version, or one that is too old."""
    assert len(unsatisfied(["PyMySQL>=1.2.4"], lock, SYSTEMS[0])) == 1


@each_system
def test_same_versions(system: dict[str, str]) -> None:
    """The tests run with the versions that the server is shipped with."""
    server, dev = (pinned(text_of(name), system) for name in ("server", "dev"))
    assert server.items() <= dev.items()


@each_lock
def test_hashes(name: str) -> None:
    """Each entry has hashes, and names no host, from which alone it could be had."""
    text = text_of(name)
    assert "://" not in text
    assert "--index" not in text
    for line in text.splitlines():
        assert re.fullmatch(
            r"[^ ]+==[^ ]+( ;.*?)?( +--hash=sha256:[0-9a-f]{64})+ *", line
        )


def test_image() -> None:
    """Nothing but the wheel is installed into the image that is in no lock."""
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    commands = re.findall(r"\binstall --no-cache-dir ([^&\n]*)", dockerfile)
    assert len(commands) == 3
    used = [each.split()[-1] for each in commands if "--require-hashes" in each]
    assert used == [f"{LOCKS}/build.txt", f"{LOCKS}/server.txt"]
    (other,) = (each for each in commands if "--require-hashes" not in each)
    assert other.split() == ["--no-deps", "/wheels/*.whl"]
    assert "--no-build-isolation" in dockerfile
