"""Looks up known vulnerabilities of what the locks pin: `make audit`.

    python tools/audit.py [-s osv] [other options of pip-audit]

pip-audit asks a public service, which not every machine that runs this can reach, and
reports no vulnerabilities of what the service does not know. Hence an old version is
looked up first of which every service knows some. Without an answer the audit is
skipped, with the reason. Vulnerabilities that do not concern us are in `ACCEPTED`.

Exit status: 0 nothing is known, or the audit is skipped; 1 vulnerabilities are known.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from lock import LOCKS, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Ids that are not reported, such as "PYSEC-2026-1", each with its reason.
ACCEPTED: dict[str, str] = {}
KNOWN = "django==1.2"
# `dev.txt` has all of `server.txt`.
AUDITED = ("dev.txt", "build.txt")
SECONDS_MAX = 600

# What pip-audit reports of a package: `name`, then `version` and `vulns`, or else
# `skip_reason`.
Finding = dict[str, Any]


class NoDataError(Exception):
    """The service cannot be reached, or knows nothing."""


def look_up(files: Sequence[Path], options: Sequence[str]) -> list[Finding]:
    """Return what is known about the packages in locks. Raises NoDataError."""
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [
            *(sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps"),
            *("--format=json", f"--output={report}", "--progress-spinner=off"),
            *(f"--requirement={file}" for file in files),
            *options,
        ]
        try:
            done = subprocess.run(
                command,
                stderr=subprocess.PIPE,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NoDataError(f"no answer within {SECONDS_MAX} s") from error
        # Its status is the same for vulnerabilities and for what went wrong.
        if not report.exists():
            lines = done.stderr.strip().splitlines()
            raise NoDataError(lines[-1] if lines else f"status {done.returncode}")
        findings: list[Finding] = json.loads(report.read_text())["dependencies"]
        return findings


def check_data(options: Sequence[str]) -> None:
    """Look up what every service knows. Raises NoDataError."""
    with TemporaryDirectory() as folder:
        known = Path(folder, "known.txt")
        known.write_text(KNOWN)
        (finding,) = look_up([known], options)
    if "skip_reason" in finding:
        raise NoDataError(finding["skip_reason"])
    if not finding["vulns"]:
        raise NoDataError(f"the service knows no vulnerability of {KNOWN}")


def verdict(
    findings: Sequence[Finding], accepted: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return lines of vulnerabilities, and of packages that were not looked up."""
    known = [
        f"{each['name']} {each['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version'}"
        for each in findings
        for vulnerability in each.get("vulns", ())
        if accepted.keys().isdisjoint(
            {vulnerability["id"], *vulnerability.get("aliases", ())}
        )
    ]
    omitted = [each["skip_reason"] for each in findings if "skip_reason" in each]
    return known, omitted


def main(options: Sequence[str]) -> int:
    """Print what is known, with these options of pip-audit; returns the exit status."""
    try:
        check_data(options)
        findings = look_up([ROOT / LOCKS / name for name in AUDITED], options)
    except NoDataError as error:
        print(f"audit skipped: {error}")
        return 0
    known, omitted = verdict(findings, ACCEPTED)
    for line in omitted:
        print(f"not audited: {line}")
    for line in known:
        print(line)
    print(f"packages: {len(findings) - len(omitted)}, vulnerabilities: {len(known)}")
    if known:
        print("pin fixed versions: make lock L='--upgrade-package NAME'")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
