"""Programs that use Spark with a connector of others, each in its own environment.

Leaves out the programs, and what they are asked for.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from fix_interop import need, run


def spark_program(program: Path, pom: Path, spark: str, folder: Path) -> list[str]:
    """Return the command of a program, whose arguments are a folder and the jars.

    `spark` is the requirement of PySpark, which is installed for all tests to come, and
    `pom` names the connector. Skips the test if one of them cannot be had.
    """
    maven = need("mvn")
    need("java")
    found = folder / f"{pom.parent.name}-{pom.stem}.jars"
    fetched = run(
        *(maven, "--batch-mode", "--quiet", "--file", str(pom)),
        *("dependency:build-classpath", f"-Dmdep.outputFile={found}"),
        "-Dmdep.pathSeparator=,",
    )
    if fetched.returncode:
        pytest.skip(f"{pom}: its jars cannot be had: {fetched.stdout[:200]}")
    environment = Path.home() / ".cache" / "canal-server" / spark.replace("==", "-")
    python = environment / "bin" / "python"
    if not python.exists() or run(str(python), "-P", "-c", "import pyspark").returncode:
        run(sys.executable, "-m", "venv", str(environment))
        installed = run(str(python), "-m", "pip", "install", "--quiet", spark)
        if installed.returncode:
            pytest.skip(f"{spark} cannot be had: {installed.stderr[:200]}")
    return [str(python), str(program), str(folder), found.read_text()]


def without_own_spark() -> dict[str, str]:
    """Return an environment in which a program finds its own Spark only."""
    names = ("SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH")
    return {name: text for name, text in os.environ.items() if name not in names}
