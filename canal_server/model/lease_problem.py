"""Why the right to run a destination cannot be had from anybody."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseProblem:
    """What is wrong, with the remedy, and since when, in ms since 1970."""

    text: str
    since_ms: int
