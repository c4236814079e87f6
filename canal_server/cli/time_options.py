"""Times, durations and numbers of changes as values of options."""

from __future__ import annotations

import argparse

from canal_server.model.moments import duration_s


def duration(text: str) -> float:
    """Parse an argument that is a duration, in seconds."""
    try:
        return duration_s(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None  # the cause adds nothing


def patience(text: str) -> float:
    """Parse an argument that is a timeout, which must not be zero."""
    seconds = duration(text)
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text}: expected more than 0, such as 5s")
    return seconds


def count(text: str) -> int:
    """Parse an argument that is a number of changes."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("expected a positive number")
    return int(text)
