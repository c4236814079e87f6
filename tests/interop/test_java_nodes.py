"""The nodes of a Java server are still those that were recorded of one.

`tests/e2e/test_recorded_nodes.py` compares ours with the recording. CANAL_RECORD=1
records again.
"""

from __future__ import annotations

import os

import pytest
from fix_java_server import with_java_server
from node_states import Walk, named, record, recorded

pytestmark = with_java_server

INDEX = "com.alibaba.otter.canal.parse.index"
META = "com.alibaba.otter.canal.meta"
# Has all nodes that there are: also of batches, and of the position of the parser.
ALL_NODES = {
    f"{META}.PeriodMixedMetaManager": f"{META}.MixedMetaManager",
    '<property name="period" value="${canal.zookeeper.flush.period:1000}" />': "",
    f'<bean class="{INDEX}.MemoryLogPositionManager" />': (
        f'<bean class="{INDEX}.MixedLogPositionManager">'
        '<constructor-arg ref="zkClientx" /></bean>'
    ),
}


@pytest.mark.parametrize("way", ["by_position", "by_gtid", "all_nodes"])
def test_nodes(mixed, way):
    """Path, content and life time of each node are as recorded, in each state."""
    has_all = way == "all_nodes"
    if way == "by_gtid":
        mixed.go_by_gtid()
    if has_all:
        mixed.java.replace_in_wiring(ALL_NODES)
    states = Walk(mixed.java, mixed.zookeeper, has_all=has_all).states()
    if os.environ.get("CANAL_RECORD") == "1":
        record(recorded() | {way: states})
    expected = recorded()[way]
    assert list(states) == list(expected)
    for state, nodes in states.items():
        assert named(nodes) == named(expected[state]), state
