"""For how long clients were disconnected, in a file and in a node of ZooKeeper."""

from __future__ import annotations

import pytest

from canal_server.errors import MetaStoreError
from canal_server.model.znodes import lease_path, seen_path
from canal_server.position.last_seen import FILE_NAME, SeenFile, SeenNode
from canal_server.runtime.lifecycle import Stop

AWAY = {1001: 0.5, 1002: 301.25}


@pytest.fixture
def path(tmp_path):
    """Return the folder of the file."""
    return tmp_path / "example" / FILE_NAME


@pytest.fixture(params=["file", "node"])
def make_shelf(request, path):
    """Return `make()`, which returns the storage as another process opens it."""
    if request.param == "file":
        return lambda: SeenFile(path)
    zookeeper = request.getfixturevalue("zookeeper")
    zookeeper.create(lease_path("example", zookeeper.session), ephemeral=True)
    return lambda: SeenNode(zookeeper, "example")


def test_kept(make_shelf):
    """What is written is read by the next one; at first there is nothing."""
    shelf = make_shelf()
    shelf.open(Stop())
    assert shelf.read() == {}
    shelf.write(AWAY)
    shelf.write(AWAY)
    shelf.close()
    shelf.close()
    shelf = make_shelf()
    shelf.open(Stop())
    assert shelf.read() == AWAY
    shelf.write({})
    assert shelf.read() == {}
    assert "answer" in shelf.silence
    shelf.close()


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"[]", b'{"away_s": 1}', b'{"away_s": {"x": 1}}', b"\xff"),
        *(b"[" * 200_000, b'{"away_s": ' * 100_000),
    ],
)
def test_damaged_file(path, caplog, content):
    """A damaged file counts as none, and is logged."""
    path.parent.mkdir()
    path.write_bytes(content)
    assert SeenFile(path).read() == {}
    assert f"{path} is damaged" in caplog.text


def test_damaged_node(zookeeper, caplog):
    """A damaged node counts as none, and is logged."""
    zookeeper.create(lease_path("example", zookeeper.session), ephemeral=True)
    shelf = SeenNode(zookeeper, "example")
    shelf.open(Stop())
    zookeeper.create(seen_path("example"), b"{")
    assert shelf.read() == {}
    assert "is damaged" in caplog.text
    shelf.close()


def test_file_without_rights(path):
    """A file that cannot be read or written is an error that names it."""
    path.mkdir(parents=True)
    shelf = SeenFile(path)
    with pytest.raises(MetaStoreError, match=f"cannot read {path}"):
        shelf.read()
    with pytest.raises(MetaStoreError, match=f"cannot write {path}"):
        shelf.write(AWAY)


def test_node_without_a_lease(zookeeper):
    """A server that lost the lease writes nothing."""
    shelf = SeenNode(zookeeper, "example")
    shelf.open(Stop())
    with pytest.raises(MetaStoreError, match="cannot write"):
        shelf.write(AWAY)
    shelf.close()
    assert zookeeper.read(seen_path("example")) is None
