"""Fresh data folders for private servers, made once and then copied.

Leaves out the programs (`server_packages`) and the running of them (`servers`).
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from typing import TYPE_CHECKING

from server_folders import cache_folder, locked, made_atomically
from server_packages import Programs, run

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = ("admin", "admin")  # may do everything; for whoever drives the server
CANAL = ("canal", "canal")  # has the grants that the manual asks for, nothing more

# A change here makes a new template: its name holds a digest of them.
ACCOUNTS = (
    f"CREATE USER '{ADMIN[0]}'@'%' IDENTIFIED BY '{ADMIN[1]}'",
    f"GRANT ALL ON *.* TO '{ADMIN[0]}'@'%' WITH GRANT OPTION",
    f"CREATE USER '{CANAL[0]}'@'%' IDENTIFIED BY '{CANAL[1]}'",
    f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{CANAL[0]}'@'%'",
)


def template_of(programs: Programs) -> Path:
    """Return a fresh data folder to copy, made once per version of the server."""
    version = run([*programs.command(), "--version"], f"asking {programs.server}")
    recipe = "\n".join([version, *ACCOUNTS])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    template = cache_folder() / f"{programs.flavour}-data-{digest}"
    with locked(cache_folder() / f".{programs.flavour}-data.lock"):
        if not template.exists():
            with made_atomically(template) as part:
                _initialize(programs, part, is_old=_is_old(programs, version))
    return template


def _is_old(programs: Programs, version: str) -> bool:
    """Return whether a server cannot make its system tables by itself.

    MySQL can since 5.7.
    """
    found = re.search(r"Ver (\d+)\.(\d+)", version)
    is_new = found is not None and (int(found[1]), int(found[2])) >= (5, 7)
    return programs.flavour == "mariadb" or not is_new


def _initialize(programs: Programs, data: Path, *, is_old: bool) -> None:
    """Fill an empty folder with the system tables and our accounts."""
    what = f"making a data folder for {programs.flavour}"
    if not is_old:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write("".join(f"{statement};\n" for statement in ACCOUNTS))
            script.flush()
            run(
                [
                    *programs.command(),
                    f"--datadir={data}",
                    "--initialize-insecure",
                    f"--init-file={script.name}",
                    "--loose-innodb-redo-log-capacity=64M",
                ],
                what,
            )
        (data / "auto.cnf").unlink()  # each copy makes an identity of its own
        return
    scripts = [
        script.read_text()
        for part in ("system_tables", "performance_tables", "system_tables_data")
        for script in programs.share.glob(f"*_{part}.sql")  # mysql_ until 10, mariadb_
    ]
    run(
        [*programs.command(), f"--datadir={data}", "--bootstrap", "--skip-log-bin"],
        what,
        input="CREATE DATABASE mysql;\nUSE mysql;\n"
        "SET @skip_auth_anonymous=1;\nSET @auth_root_socket=NULL;\n"
        + "".join(scripts)
        + "FLUSH PRIVILEGES;\n"
        + "".join(f"{statement};\n" for statement in ACCOUNTS),
    )
    (data / "auto.cnf").unlink(missing_ok=True)
