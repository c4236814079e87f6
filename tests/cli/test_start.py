"""What `canal-server start` asks of the system."""

from __future__ import annotations

import resource

from canal_server.cli.start import allow_descriptors


def test_descriptors():
    """A process that begins with few may have as many as its hard limit allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = min(before[0], 1024), before[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        allow_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
