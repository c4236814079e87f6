"""The measurement of several busy destinations, with few rows."""

from __future__ import annotations

import pytest
from busy_destinations import main


@pytest.mark.slow
@pytest.mark.usefixtures("mysql_server")  # where there is one
def test_one_and_two(capsys):
    """Both counts are drained, and rates, cores and shares are shown."""
    assert main(["--counts", "1,2", "--rows", "3000", "--runs", "1"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "1 destinations: " in printed
    assert "2 destinations: " in printed
    assert "the server used " in printed
