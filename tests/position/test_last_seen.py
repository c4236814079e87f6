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
def make_place(request, path):
    """Return `make()`, which returns the storage as another process opens it."""
    if request.param == "file":
        return lambda: SeenFile(path)
    zookeeper = request.getfixturevalue("zookeeper")
    zookeeper.create(lease_path("example", zookeeper.session), ephemeral=True)
    return lambda: SeenNode(zookeeper, "example")


def test_kept(make_place):
    """What is written is read by the next one; at first there is nothing."""
    place = make_place()
    place.open(Stop())
    assert place.read() == {}
    place.write(AWAY)
    place.write(AWAY)
    place.close()
    place.close()
    place = make_place()
    place.open(Stop())
    assert place.read() == AWAY
    place.write({})
    assert place.read() == {}
    assert "answer" in place.silence
    place.close()


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"away_s": 1}', b'{"away_s": {"x": 1}}', b"\xff"]
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
    place = SeenNode(zookeeper, "example")
    place.open(Stop())
    zookeeper.create(seen_path("example"), b"{")
    assert place.read() == {}
    assert "is damaged" in caplog.text
    place.close()


def test_file_without_rights(path):
    """A file that cannot be read or written is an error that names it."""
    path.mkdir(parents=True)
    place = SeenFile(path)
    with pytest.raises(MetaStoreError, match=f"cannot read {path}"):
        place.read()
    with pytest.raises(MetaStoreError, match=f"cannot write {path}"):
        place.write(AWAY)


def test_node_without_a_lease(zookeeper):
    """A server that lost the lease writes nothing."""
    place = SeenNode(zookeeper, "example")
    place.open(Stop())
    with pytest.raises(MetaStoreError, match="cannot write"):
        place.write(AWAY)
    place.close()
    assert zookeeper.read(seen_path("example")) is None
