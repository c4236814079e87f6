"""The memory of a tree of processes has all that descend from its root."""

from __future__ import annotations

import os
import subprocess
import sys

from tree_memory import TreeMemory, memory_of, tree_of

CHILD = """
import subprocess, sys
held = bytearray(b"x") * (64 << 20)
grandchild = subprocess.Popen(["sleep", "60"])
print(grandchild.pid, flush=True)
sys.stdin.read()
grandchild.kill()
grandchild.wait()
"""


def test_tree() -> None:
    """Children of children are there, and what they hold counts."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin
        assert child.stdout
        grandchild = int(child.stdout.readline())
        assert {os.getpid(), child.pid, grandchild} <= tree_of(os.getpid())
        assert tree_of(child.pid) == {child.pid, grandchild}
        with TreeMemory(child.pid) as memory:
            memory.look()
        assert memory.highest > 64 << 20
        assert sum(memory.parts.values()) == memory.highest
        child.stdin.close()
    assert memory_of(child.pid) == 0
