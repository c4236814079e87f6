"""Builds the compiled core; all else about the package is in pyproject.toml."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

from Cython import __version__ as cython_version
from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# CANAL_SANITIZE=1 builds with AddressSanitizer and UBSan for the fuzzers.
SANITIZE = os.environ.get("CANAL_SANITIZE") == "1"
COMPILE_ARGS = (
    ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    if SANITIZE
    else ["-O3", "-g0"]
)
LINK_ARGS = ["-fsanitize=address,undefined"] if SANITIZE else []
# CANAL_PROFILE=1 compiles twice with GCC: the second time, it knows which way the code
# went over recorded binlogs (tools/training). What they do not have is compiled as
# without it. Not for releases: no two builds have the same bytes.
PROFILE = os.environ.get("CANAL_PROFILE") == "1"
COUNT_ARGS = ["-fprofile-generate", "-fprofile-update=atomic"]
USE_ARGS = ["-fprofile-use", "-fprofile-partial-training", "-Wno-missing-profile"]

# Indexes of Python's sequences stay checked: hot loops use plain memory, which checks
# itself (core/wire.pxd).
DIRECTIVES = {
    "language_level": "3",
    "cdivision": True,
    "embedsignature": True,
    "freethreading_compatible": False,
}


def extensions() -> list[Extension]:
    """Find one extension per .pyx file below the package."""
    root = Path(__file__).parent
    return [
        Extension(
            ".".join(path.relative_to(root).with_suffix("").parts),
            [str(path.relative_to(root))],
            extra_compile_args=[*COMPILE_ARGS, "-Wno-unreachable-code"],
            extra_link_args=LINK_ARGS,
        )
        for path in sorted((root / "canal_server").rglob("*.pyx"))
    ]


class BuildCompiled(build_ext):
    """Translates to C when it builds only, so that an sdist has no C in it."""

    def run(self) -> None:
        """Translate what changed, on all cores, and compile it."""
        made = cythonize(
            extensions(), compiler_directives=DIRECTIVES, nthreads=os.cpu_count() or 1
        )
        sources = {each.name: each.sources for each in made}
        for extension in self.extensions:
            # Those of the command know more by now, such as their file's name.
            extension.sources = sources[extension.name]
        # An editable build does not take this from the options below.
        self.parallel = os.cpu_count()
        if PROFILE:
            self._learn()
        super().run()

    def _learn(self) -> None:
        """Compile modules that count, run them, and have the counts used."""
        temp = Path(self.build_temp).absolute()
        counts, package = f"-fprofile-dir={temp / 'counts'}", temp / "package"
        plain = [
            (each.extra_compile_args, each.extra_link_args) for each in self.extensions
        ]
        for each in self.extensions:
            each.extra_compile_args = [*each.extra_compile_args, *COUNT_ARGS, counts]
            each.extra_link_args = [*each.extra_link_args, *COUNT_ARGS]
        inplace, build_lib, compiler = self.inplace, self.build_lib, self.compiler
        self.inplace, self.build_lib, self.force = False, str(package), True
        super().run()
        self.inplace, self.build_lib, self.compiler = inplace, build_lib, compiler
        root = Path(__file__).parent
        ours = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
        shutil.copytree(
            root / "canal_server", package / "canal_server", ignore=ours,
            dirs_exist_ok=True,
        )  # fmt: skip
        subprocess.run(  # noqa: S603  # our own
            [sys.executable, root / "tools/training/train.py"],
            env=os.environ | {"PYTHONPATH": str(package)},
            check=True,
        )
        for each, (compile_args, link_args) in zip(self.extensions, plain, strict=True):
            each.extra_compile_args = [*compile_args, *USE_ARGS, counts]
            each.extra_link_args = link_args


# What `canal-server init` and `canal-server files` write.
SHIPPED = (
    # Not the whole folder: a server that runs with it has its data there.
    "conf/canal.properties",
    "conf/example/instance.properties",
    "deploy/systemd",
    "deploy/prometheus",
    "deploy/grafana",
    "deploy/helm",
    "deploy/bin",
)


class BuildPackage(build_py):
    """Adds the files that commands write, which the sources have beside the package."""

    def run(self) -> None:
        """Copy the modules, and then the files."""
        super().run()
        if self.editable_mode:
            return  # they are found where they are
        target = Path(self.build_lib, "canal_server/shipped")
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build
        for name in SHIPPED:
            source = Path(__file__).parent / name
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, target / name)


def software_bill(version: str, requirements: list[str]) -> dict[str, object]:
    """Return what is in a wheel, in the form of CycloneDX.

    Of others that is only C code that Cython writes into each module. What pip installs
    beside the wheel is listed as external, with the versions that are accepted.
    """
    ours = f"pkg:pypi/canal-server@{version}"
    cython = f"pkg:pypi/cython@{cython_version}"
    external = {}
    for each in requirements:
        name, versions = re.fullmatch(r"([\w.-]+)\s*(.*)", each).groups()
        external[f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}"] = {
            "name": name,
            "isExternal": True,
            "versionRange": "vers:pypi/" + versions.replace(",", "|"),
        }
    components = {cython: {"name": "Cython", "version": cython_version}, **external}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",  # the first one that has ranges of versions
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ours + cython)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": "canal-server",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": ours,
            }
        },
        "components": [
            {"type": "library", "bom-ref": purl, "purl": purl, **fields}
            for purl, fields in components.items()
        ],
        "dependencies": [{"ref": ours, "dependsOn": list(components)}],
    }


class BuildWheel(bdist_wheel):
    """Adds the software bill of materials, where PEP 770 has it."""

    def write_wheelfile(self, wheelfile_base: str, *args: str, **kwargs: str) -> None:
        """Write the last files of the metadata, before all of it is listed."""
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        bill = software_bill(
            self.distribution.get_version(), self.distribution.install_requires
        )
        path = Path(wheelfile_base, "sboms/canal-server.cdx.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(bill, indent=2) + "\n")


def training_needs() -> list[str]:
    """Return the dependencies of the package, with which the training runs."""
    project = Path(__file__).with_name("pyproject.toml").read_text()
    return list(tomllib.loads(project)["project"]["dependencies"])


setup(
    ext_modules=extensions(),
    cmdclass={
        "build_ext": BuildCompiled,
        "build_py": BuildPackage,
        "bdist_wheel": BuildWheel,
    },
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
    setup_requires=training_needs() if PROFILE else [],
)
