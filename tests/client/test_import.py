"""What `import canal_server.client` loads, in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

FOREIGN = {
    "asyncio", "kazoo", "sqlglot", "pymysql", "pyarrow", "sqlite3", "cryptography",
    "prometheus_client", "sqlalchemy", "zstandard", "javaproperties",
}  # fmt: skip
# Of ours, beside the client: what it is made of.
OWN = {
    "arrow", "client", "core", "decoder", "errors", "messages", "model", "protocol",
    "runtime",
}  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads."""
    program = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True
    )
    return set(json.loads(done.stdout))


def test_only_what_a_client_needs() -> None:
    """Neither libraries of the server nor its stages are loaded."""
    loaded = loaded_by("import canal_server.client")
    assert not FOREIGN & loaded
    parts = {name.split(".")[1] for name in loaded if name.startswith("canal_server.")}
    assert parts <= OWN
    # Of the decoder only texts of character sets, for bytes in them.
    deeper = {name for name in loaded if name.startswith("canal_server.decoder.")}
    assert all(name.startswith("canal_server.decoder.text") for name in deeper)


def test_the_client_of_asyncio_is_loaded_when_asked_for() -> None:
    """Its name is there, and loads asyncio."""
    assert "asyncio" in loaded_by("from canal_server.client import AsyncCanalClient")


def test_a_name_that_is_not_there() -> None:
    """Another name is an error as for any module."""
    import canal_server.client  # noqa: PLC0415

    assert not hasattr(canal_server.client, "AsyncClient")
    assert all(
        hasattr(canal_server.client, name) for name in canal_server.client.__all__
    )
