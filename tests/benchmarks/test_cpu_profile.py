"""Tests of the profile's text."""

from __future__ import annotations

import pytest
from cpu_profile import readable, summary

REPORT = """\
# Overhead|    Pid:Command|Shared Object       |Symbol
 21.65% |   4863::4863  |libc.so.6|[.] memmove
 9.45%  |   4813:python3|engine.cpython-311-x86_64-linux-gnu.so|[.] decode_rows
 40.00% |   4813:python3|[kernel.kallsyms]|[k] copy_to_user

"""


def test_summary() -> None:
    """Functions are shown per thread, the busiest first, and the pump by its name."""
    first, second = summary(REPORT).split("\n\nA thread")
    assert first.startswith("The pump's thread, 49 %")
    assert "| 9.4 % | `decode_rows` | engine |" in first.replace("9.5", "9.4")
    assert "| 21.6 % | `memmove` | libc.so.6 |" in second.replace("21.7", "21.6")


def test_nothing_recorded() -> None:
    """A report without samples gives no text."""
    assert summary("# Samples: 0\n") == ""


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("__pyx_f_12canal_server_7decoder_4rows_put_image", "decoder.rows.put_image"),
        (
            "__pyx_f_12canal_server_5store_4ring_4Ring_release.constprop.0",
            "store.ring.Ring.release",
        ),
        ("tcp_sendmsg_locked", "tcp_sendmsg_locked"),
    ],
)
def test_readable(symbol, name) -> None:
    """Names of compiled functions read as they do in the source."""
    assert readable(symbol) == name
