"""The measurement of clients that return late, with few of them."""

from __future__ import annotations

import pytest
from late_readers import main


@pytest.mark.slow
@pytest.mark.usefixtures("mysql_server")  # where there is one
def test_two_return(capsys):
    """Both take what they lack, and their rate and the latency are shown."""
    assert main(["--clients", "2", "--rows", "6000"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "2 clients, each at another position: " in printed
    assert "commit to a client that stayed, meanwhile: median " in printed
