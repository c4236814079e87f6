"""Servers in containers, through `testcontainers`: the official way to run them.

CANAL_MYSQL_IMAGE and CANAL_MARIADB_IMAGE name images, several with commas between
them for several versions. Without, it is the official image that is at hand, else one
that `tools/container_image.py` made, else the official one is pulled. Tests are marked
`containers`, and skipped with the reason where no daemon answers or no image can be
had.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from servers import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from container_server import ContainerServer
    from fix_pipeline import Pipeline, Settings

FLAVOURS = ("mysql", "mariadb")


def images_of(flavour: str) -> list[str]:
    """Return the images that the environment names; empty: it names none."""
    named = os.environ.get(f"CANAL_{flavour.upper()}_IMAGE", "")
    return [name.strip() for name in named.split(",") if name.strip()]


@pytest.fixture(scope="session")
def docker_daemon() -> Iterator[Any]:
    """Give a client of the Docker daemon, or skip."""
    connected = pytest.importorskip("container_server").connected
    try:
        client = connected()
    except Unavailable as error:
        pytest.skip(str(error))
    yield client
    client.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with `container_server` for each image of each flavour."""
    if "container_server" in metafunc.fixturenames:
        metafunc.parametrize(
            "container_server",
            [
                pytest.param((flavour, image), id=image or flavour)
                for flavour in FLAVOURS
                for image in images_of(flavour) or [""]
            ],
            indirect=True,
            scope="session",
        )


@pytest.fixture(scope="session")
def container_server(
    request: pytest.FixtureRequest, docker_daemon: Any
) -> Iterator[ContainerServer]:
    """Give a running server in a container, of each image in turn."""
    from container_server import (  # noqa: PLC0415  # only where there is a daemon
        ContainerServer,
        default_image,
        provide,
    )

    flavour, image = request.param
    image = image or default_image(docker_daemon, flavour)
    with ExitStack() as running:
        try:
            provide(docker_daemon, image)
            server = ContainerServer(flavour, image)
            running.callback(server.stop)
            server.start()
        except Unavailable as error:
            pytest.skip(f"no {flavour} in a container: {error}")
        yield server


@pytest.fixture
def container_schema(container_server: ContainerServer) -> Iterator[str]:
    """Give the name of a fresh schema on the server in the container."""
    name = f"c{uuid.uuid4().hex[:12]}"
    container_server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    container_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def make_container_pipeline(
    make_pipeline: Callable[..., Pipeline],
    container_server: ContainerServer,
    container_schema: str,
) -> Callable[..., Pipeline]:
    """Give `make(settings)`: a running pipeline from the server in the container."""

    def make(settings: Settings | None = None) -> Pipeline:
        made = make_pipeline(container_server, container_schema, settings)
        made.start()
        return made

    return make


@pytest.fixture
def container_pipeline(make_container_pipeline: Callable[..., Pipeline]) -> Pipeline:
    """Give a running pipeline with the settings of most tests."""
    return make_container_pipeline()
