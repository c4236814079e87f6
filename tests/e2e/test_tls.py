"""TLS from settings to clients: a real source, iterating clients, commands."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fix_pipeline import DESTINATION

from canal_server import cli
from canal_server.client import AsyncCanalClient, CanalClient
from canal_server.client.range_client import RangedClient
from canal_server.config.schema import TlsConfig

ROWS = 3000


@pytest.fixture
def pipeline(make_pipeline, source_server, database, authority):
    """Give a running pipeline whose server accepts TLS alone."""
    source_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b TEXT)")
    config = authority.server()
    pipeline = make_pipeline(source_server, database, {})
    with (pipeline.conf / "canal.properties").open("a") as main:
        main.write(
            f"canal.tls.certFile = {config.cert_file}\n"
            f"canal.tls.keyFile = {config.key_file}\n"
            "canal.tls.required = true\n"
        )
    pipeline.start()
    return pipeline


def insert(pipeline) -> None:
    """Insert rows, some of them large, in transactions of some."""
    for start in range(0, ROWS, 100):
        rows = ",".join(
            f"({n}, REPEAT('x', {(n % 97) * 40}))" for n in range(start, start + 100)
        )
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES {rows}")


def options(pipeline, authority) -> dict[str, Any]:
    """Return the options of a client."""
    return {
        "port": pipeline.server_port,
        "destination": DESTINATION,
        "tls": True,
        "tls_ca_file": authority.ca_file,
    }


def test_iterating_clients(pipeline, authority):
    """A client that blocks and one of asyncio receive all rows, in order."""
    insert(pipeline)
    found = []
    with CanalClient(**options(pipeline, authority), client_id=1) as client:
        for change in client:
            if change.after is None:
                continue
            found += [(change.after["a"], len(change.after["b"]))]
            if len(found) == ROWS:
                break
    assert found == [(n, (n % 97) * 40) for n in range(ROWS)]

    async def run():
        numbers = []
        expected = options(pipeline, authority)
        async with AsyncCanalClient(**expected, client_id=2) as client:
            await client.connect()
            await client.subscribe()
            await asyncio.to_thread(
                pipeline.source.execute, f"DELETE FROM {pipeline.schema}.t"
            )
            async for change in client:
                if change.before is None:
                    continue
                numbers.append(change.before["a"])
                if len(numbers) == ROWS:
                    return numbers
        return None

    assert asyncio.run(run()) == list(range(ROWS))


def test_ranged_reads(pipeline, authority):
    """A range is read over TLS as over clear text."""
    expected = options(pipeline, authority)
    destination = expected.pop("destination")
    with RangedClient(**expected) as client:
        start = client.subscribe(destination, "lake").cursor
        insert(pipeline)
        end = client.head(destination, "lake", start, wait_ms=10_000).end
        assert sum(map(len, client.read(destination, "lake", start, end))) > 10_000


def test_commands(pipeline, authority, capsys):
    """With the conf folder, commands use TLS by themselves; else with options."""
    insert(pipeline)
    own = ["--conf", str(pipeline.conf), "--port", str(pipeline.server_port)]
    cert, key = authority.issue("somebody")
    for where in (
        own,
        [
            *("--port", str(pipeline.server_port), "--destination", DESTINATION),
            *("--tls", "--tls-ca-file", str(authority.ca_file)),
        ],
        [*own, "--tls-ca-file", str(authority.ca_file)],
        [*own, "--tls-cert-file", str(cert), "--tls-key-file", str(key)],
    ):
        arguments = [*where, "--json", "--count", "1", "--from", "oldest"]
        status = cli.main(["tail", *arguments])
        printed = capsys.readouterr()
        assert status == 0, printed.err
        assert json.loads(printed.out.splitlines()[0])
    assert cli.main(["tail", *own, "--tls-cert-file", str(authority.ca_file)]) == 2
    assert f"--tls-cert-file {authority.ca_file}: " in capsys.readouterr().err
    status = cli.main(["tail", "--port", str(pipeline.server_port), "--count", "1"])
    assert status == 1
    assert "clear text is not accepted" in capsys.readouterr().err


def test_certificates_of_the_guide(serve, tmp_path):
    """The commands of docs/howto/tls.md make files that servers and clients accept."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl: apt-get install openssl")
    guide = (Path(__file__).parents[2] / "docs/howto/tls.md").read_text()
    _, block, _ = guide.split("    ```\n", 2)
    subprocess.run(["bash", "-e"], input=block, text=True, cwd=tmp_path, check=True)
    tls = TlsConfig(cert_file=tmp_path / "server.pem", key_file=tmp_path / "server.key")
    server = serve(tls=tls)
    with CanalClient(
        "127.0.0.1", server.port, tls=True, tls_ca_file=tmp_path / "ca.pem"
    ) as client:
        client.connect()
