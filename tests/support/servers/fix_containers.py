"""Servers in containers where a Docker daemon answers, private processes otherwise.

Containers run through `testcontainers`. CANAL_MYSQL_IMAGE, CANAL_MARIADB_IMAGE and
CANAL_ZOOKEEPER_IMAGE name images, of the first two several with commas between them for
several versions; then there is no other way. Without, it is the official image that is
at hand, else one that `tools/container_image.py` made, else the official one is pulled.
Tests are marked `containers`.
"""

from __future__ import annotations

import os
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from servers import PrivateServer, Unavailable
from zookeepers import PrivateZooKeeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from container_server import ContainerServer, ContainerZooKeeper
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


def _in_container(
    request: pytest.FixtureRequest, name: str, image: str, make: Callable[..., Any]
) -> Any:
    """Return `make(module, image)`, started; None: private processes are to do.

    Skips when an image is named and cannot be run.
    """
    try:
        module = pytest.importorskip("container_server")
        daemon = request.getfixturevalue("docker_daemon")
        image = image or module.default_image(daemon, name)
        module.provide(daemon, image)
        return make(module, image).start()
    except (Unavailable, pytest.skip.Exception) as error:
        if images_of(name):
            pytest.skip(f"no {name} in a container: {error}")
        print(f"{name} is a process, not a container: {error}")
        return None


@pytest.fixture(scope="session")
def container_server(
    request: pytest.FixtureRequest,
) -> Iterator[ContainerServer | PrivateServer]:
    """Give a running server, of each image in turn."""
    flavour, image = request.param
    server = _in_container(
        request,
        flavour,
        image,
        lambda module, image: module.ContainerServer(flavour, image),
    )
    with ExitStack() as running:
        if server is None:
            try:
                server = PrivateServer(flavour).start()
            except Unavailable as error:
                pytest.skip(f"no {flavour}: {error}")
        running.callback(server.stop)
        yield server


@pytest.fixture
def container_zookeeper(
    request: pytest.FixtureRequest,
) -> Iterator[ContainerZooKeeper | PrivateZooKeeper]:
    """Give a running ZooKeeper of the test's own."""
    (image,) = images_of("zookeeper") or [""]
    server = _in_container(
        request,
        "zookeeper",
        image,
        lambda module, image: module.ContainerZooKeeper(image),
    )
    if server is None:
        try:
            server = PrivateZooKeeper().start()
        except Unavailable as error:
            pytest.skip(f"no ZooKeeper: {error}")
    yield server
    server.stop()


@pytest.fixture
def container_schema(
    container_server: ContainerServer | PrivateServer,
) -> Iterator[str]:
    """Give the name of a fresh schema on the server in the container."""
    name = f"c{uuid.uuid4().hex[:12]}"
    container_server.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    container_server.execute(f"DROP DATABASE {name}")


@pytest.fixture
def make_container_pipeline(
    make_pipeline: Callable[..., Pipeline],
    container_server: ContainerServer | PrivateServer,
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
