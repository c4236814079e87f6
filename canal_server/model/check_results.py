"""What a check before the start found: whether something holds, and what mends it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"  # the server works, an operator should know
    FAIL = "fail"  # the server does not work, or clients lose changes
    SKIP = "skip"  # nothing could be checked


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One thing that must hold.

    `check` is its name for programs, `subject` the destination or the part of the
    server that was checked. `remedy` is a statement or a key, empty if nothing is to be
    done. Each text is a clause without a full stop.
    """

    check: str
    outcome: Outcome
    text: str
    remedy: str = ""
    subject: str = ""

    @property
    def message(self) -> str:
        """Return what was found, and the remedy."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text

    def of(self, subject: str) -> CheckResult:
        """Return the same result about a subject."""
        return replace(self, subject=subject)


def ok(check: str, text: str) -> CheckResult:
    """Return that something holds."""
    return CheckResult(check, Outcome.OK, text)


def warn(check: str, text: str, remedy: str = "") -> CheckResult:
    """Return that something holds, but should be changed."""
    return CheckResult(check, Outcome.WARN, text, remedy)


def fail(check: str, text: str, remedy: str = "") -> CheckResult:
    """Return that something does not hold."""
    return CheckResult(check, Outcome.FAIL, text, remedy)


def skip(check: str, what: str, why: str) -> CheckResult:
    """Return that something was not checked, and why."""
    return CheckResult(check, Outcome.SKIP, f"cannot check {what}: {why}")
