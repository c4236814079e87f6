"""Times, durations and numbers of changes as values of options."""

from __future__ import annotations

import argparse

from canal_server.model.moments import duration_s


def duration(text: str) -> float:
    """Read an argument that is a duration, as seconds."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # says no more


def patience(text: str) -> float:
    """Read an argument that is how long an answer may take, which is never nothing."""
    seconds = duration(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0, as 5s")
    return seconds


def count(text: str) -> int:
    """Read an argument that is a number of changes."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a number from 1 on")
    return int(text)
