"""Builds the compiled core; all else about the package is in pyproject.toml."""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# CANAL_SANITIZE=1 builds with AddressSanitizer and UBSan for the fuzzers.
SANITIZE = os.environ.get("CANAL_SANITIZE") == "1"
COMPILE_ARGS = (
    ["-O1", "-g", "-fsanitize=address,undefined", "-fno-omit-frame-pointer"]
    if SANITIZE
    else ["-O3", "-g0"]
)
LINK_ARGS = ["-fsanitize=address,undefined"] if SANITIZE else []

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
        super().run()


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildCompiled},
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
