"""The image: it agrees with the chart and with Compose, and a Docker daemon runs it.

It is built of this checkout on bases of Debian's packages (tools/container_image.py),
or on those that CANAL_BUILD_IMAGE and CANAL_RUNTIME_IMAGE name. Without a Docker daemon
on this machine the tests of the built image are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import tomllib
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml
from fix_store import eventually
from received_rows import next_values
from server_folders import Unavailable

from canal_server import __version__
from canal_server.cli.files.shipped_files import KINDS
from canal_server.client import CanalClient

ROOT = Path(__file__).parents[2]
BASES = {"BUILD_IMAGE": "python-build", "RUNTIME_IMAGE": "python"}
DATA = "/var/lib/canal-server"
SECOND_NS = 1_000_000_000
STOP_SECONDS_MAX = 20  # as in docker-compose.yml
TIMEOUT_S = 60.0
# As the chart confines it.
CONFINED = {
    "read_only": True,
    "tmpfs": {"/tmp": ""},
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}

slow_with_docker = [
    pytest.mark.slow,
    pytest.mark.containers,
    pytest.mark.timeout(3600),  # the image is compiled first
]


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def arguments(name: str) -> list[str]:
    """Return the arguments of all instructions with a name."""
    return [argument for each, argument in instructions() if each == name]


def test_user():
    """The image's user is the chart's, by number, and its group as well."""
    values = yaml.safe_load((ROOT / "deploy/helm/canal-server/values.yaml").read_text())
    context = values["podSecurityContext"]
    assert arguments("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context["fsGroup"] == context["runAsGroup"]


def test_what_the_build_needs():
    """Each file that pyproject.toml names is copied into the build, and not ignored."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    files = project["tool"]["setuptools"]["data-files"].values()
    needed = {
        "pyproject.toml",
        "setup.py",
        "conf",
        "LICENSE",
        project["project"]["readme"],
        "canal_server",
        "pyspark_canal",
        "deploy/locks",
        "tools/sbom.py",
        *(path for paths in files for path in paths),
        *(f"deploy/{kind}" for kind in KINDS),  # what commands write
    }
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source
        for each in arguments("COPY")
        if not each.startswith("--from")
        for source in shlex.split(each)[:-1]
    }
    assert copied == sent
    for path in needed:
        assert copied & {path, *map(str, Path(path).parents)}, path


def test_compose():
    """Compose passes arguments that the Dockerfile has, and mounts its volume."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    server = compose["services"]["canal-1"]
    declared = {each.split("=")[0]: each.split("=")[1] for each in arguments("ARG")}
    for name, value in server["build"]["args"].items():
        assert value == f"${{CANAL_{name}:-{declared[name]}}}"
    assert arguments("VOLUME") == [DATA]
    assert server["volumes"] == [f"data-1:{DATA}"]
    assert server["ports"][0].endswith(f":{arguments('EXPOSE')[0]}")
    assert server["stop_grace_period"] == f"{STOP_SECONDS_MAX}s"
    assert f"VERSION={__version__}" in arguments("ARG")


def base_of(daemon, argument: str) -> str:
    """Return the base that is named, at hand, or made now. Raises Unavailable."""
    # Only where there is a daemon is there its client.
    from container_image import REPOSITORY, make_image  # noqa: PLC0415
    from docker.errors import ImageNotFound  # noqa: PLC0415

    named = os.environ.get(f"CANAL_{argument}") or f"{REPOSITORY}/{BASES[argument]}"
    try:
        daemon.images.get(named)
    except ImageNotFound:
        if not named.startswith(f"{REPOSITORY}/"):
            return named  # the build pulls it
        return make_image(BASES[argument])
    return named


@pytest.fixture(scope="module")
def image(docker_daemon):
    """Give the image, built of this checkout."""
    from docker.errors import BuildError  # noqa: PLC0415

    if docker_daemon.info()["Name"] != socket.gethostname():
        pytest.skip("the Docker daemon is on another machine: it has other ports")
    try:
        bases = {argument: base_of(docker_daemon, argument) for argument in BASES}
    except Unavailable as error:
        pytest.skip(f"no base for the image: {error}")
    try:
        built, _ = docker_daemon.images.build(
            path=str(ROOT),
            tag=f"canal-server-test:{uuid.uuid4().hex[:12]}",
            buildargs=bases | {"REVISION": "a-revision"},
            network_mode="host",
            rm=True,
        )
    except BuildError as error:
        lines = "".join(str(each.get("stream", each)) for each in error.build_log)
        pytest.fail(f"{error}:\n{lines[-4000:]}")
    yield built
    docker_daemon.images.remove(built.id, force=True)


class Images:
    """Containers of the image on a source, all on one volume."""

    def __init__(self, daemon, image, source, schema: str) -> None:
        self.daemon = daemon
        self.image = image
        self.volume = daemon.volumes.create()
        self.containers: list[Any] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        file, offset = source.binlog_position()
        self.environment = {
            "CANAL_IP": "127.0.0.1",
            "CANAL_PORT": str(self.port),
            "CANAL_METRICS_PULL_PORT": "-1",
            "CANAL_HTTP_PORT": "-1",
            "CANAL_INSTANCE_GLOBAL_SPRING_XML": "classpath:spring/file-instance.xml",
            "CANAL_INSTANCE_MASTER_ADDRESS": f"{source.host}:{source.port}",
            "CANAL_INSTANCE_MASTER_JOURNAL_NAME": file,
            "CANAL_INSTANCE_MASTER_POSITION": str(offset),
            "CANAL_INSTANCE_DBUSERNAME": source.user,
            "CANAL_INSTANCE_DBPASSWORD": source.password,
            "CANAL_INSTANCE_FILTER_REGEX": rf"{schema}\..*",
        }

    def run(self, **environment: str):
        """Return a running container; it is checked each second."""
        started = self.daemon.containers.run(
            self.image,
            detach=True,
            network_mode="host",  # the source listens on 127.0.0.1
            environment=self.environment | environment,
            volumes={self.volume.name: {"bind": DATA}},
            healthcheck={
                "interval": SECOND_NS,
                "timeout": int(TIMEOUT_S) * SECOND_NS,
                "start_period": SECOND_NS,
            },
            **CONFINED,
        )
        self.containers.append(started)
        return started

    def wait_for_health(self, container, expected: str) -> None:
        """Wait until the daemon shows this health."""

        def is_there() -> bool:
            container.reload()
            state = container.attrs["State"]
            assert state["Running"], container.logs().decode()
            return bool(state["Health"]["Status"] == expected)

        eventually(is_there)

    def client(self) -> CanalClient:
        """Return a client of the running container."""
        return CanalClient("127.0.0.1", self.port, "example", timeout_s=TIMEOUT_S)

    def remove(self) -> None:
        """Remove all containers and their volume."""
        for container in self.containers:
            container.remove(force=True)
        self.volume.remove()


@pytest.fixture
def images(docker_daemon, image, mysql_server, database):
    """Give what runs containers; their source has the table `red`."""
    mysql_server.execute(f"CREATE TABLE {database}.red (a INT)")
    made = Images(docker_daemon, image, mysql_server, database)
    yield made
    made.remove()


def printed(container, script: str) -> str:
    """Return what a script prints in a container, as the image's user."""
    return str(container.exec_run(["sh", "-c", script]).output, "utf-8")


@pytest.fixture
def running(images):
    """Give a container that is healthy."""
    started = images.run()
    images.wait_for_health(started, "healthy")
    return started


class TestBuilt:
    """The built image, with the rights that the chart leaves it."""

    pytestmark = slow_with_docker

    def test_serves(self, images, running, mysql_server, database):
        """It serves a client and ends cleanly; the next one continues on its volume."""
        with images.client() as client:
            client.subscribe()
            mysql_server.execute(f"INSERT INTO {database}.red VALUES (1)")
            assert next_values(client, "a", TIMEOUT_S) == [1]
            client.ack()
            mysql_server.execute(f"INSERT INTO {database}.red VALUES (2)")
            assert next_values(client, "a", TIMEOUT_S) == [2]
            # It is killed if it needs longer.
            running.stop(timeout=STOP_SECONDS_MAX)
        assert running.wait()["StatusCode"] == 0
        assert b"received SIGTERM, shutting down" in running.logs()
        images.wait_for_health(images.run(), "healthy")
        with images.client() as client:
            client.subscribe()
            assert next_values(client, "a", TIMEOUT_S) == [2]

    def test_unhealthy(self, images):
        """A destination that fails makes it unhealthy, with the reason."""
        failing = images.run(CANAL_INSTANCE_DBPASSWORD="wrong")
        images.wait_for_health(failing, "unhealthy")
        last = failing.attrs["State"]["Health"]["Log"][-1]
        assert last["ExitCode"] == 5
        assert "example" in last["Output"]
        assert "Access denied" in last["Output"]

    def test_user(self, running):
        """Its user is no root and has a name; the volume is of this user alone."""
        assert printed(running, "id -u; id -g; id -un") == "10001\n10001\ncanal\n"
        owner = printed(running, f"stat --format='%u %g %a' {DATA}")
        assert owner == "10001 10001 700\n"
        assert "Read-only" in printed(running, "touch /etc/canal-server/new")

    def test_holds_what_it_runs_alone(self, running):
        """There is no compiler, no pip, no test, no source of a compiled module."""
        assert printed(running, "command -v cc gcc ld strip") == ""
        names = "-name pip -o -name tests -o -name '*.pyx' -o -name '*.c'"
        assert printed(running, f"find /opt/canal-server {names}") == ""
        for folder in ("/src", "/tools", "/wheels"):
            assert "No such file" in printed(running, f"ls {folder}")
        # A health check would compile them again each time.
        compiled = printed(running, "find /opt/canal-server -name 'start.*.pyc'")
        assert "canal_server/cli/__pycache__" in compiled

    def test_bill_of_materials(self, running):
        """It has what is in the image: the server, its packages, Python and Debian."""
        path = "/opt/canal-server/share/sbom/image.cdx.json"
        bill = json.loads(printed(running, f"cat {path}"))
        assert bill["metadata"]["component"]["version"] == __version__
        kinds = {each["purl"].partition("/")[0] for each in bill["components"]}
        assert kinds == {"pkg:pypi", "pkg:generic", "pkg:deb"}

    def test_labels(self, image):
        """Its version and revision can be read from outside."""
        prefix = "org.opencontainers.image"
        assert image.labels[f"{prefix}.version"] == __version__
        assert image.labels[f"{prefix}.revision"] == "a-revision"
        assert image.labels[f"{prefix}.licenses"] == "Apache-2.0"
