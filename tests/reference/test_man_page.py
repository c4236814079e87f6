"""The man page is valid for groff and man, and reads as the help does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from reference import man_page
from reference.command_page import help_of, parsers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / man_page.PAGE


def run(*command: str):
    """Run a program; skips the test if there is none."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]} on this machine")
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C.UTF-8", "MANWIDTH": "1000", "PATH": "/usr/bin:/bin"},
    )


def test_groff_has_no_warnings():
    """All macros and escapes are known, and no line needs to be broken badly."""
    done = run("groff", "-ww", "-man", "-Tutf8", "-z", str(PAGE))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_man_shows_it():
    """1. man reads it without a warning; 2. all that the help says is there."""
    done = run("man", "-l", "--warnings", "-E", "UTF-8", "-P", "cat", str(PAGE))
    assert (done.returncode, done.stderr) == (0, "")
    shown = " ".join(re.sub(".\b", "", done.stdout).split())
    for parser in parsers():
        for action in parser._actions:
            if action.option_strings and action.dest not in ("help", "version"):
                assert f"{action.option_strings[-1]} " in shown
                # man keeps no quotes of code, and spaces as it likes.
                text = help_of(parser, action).replace("`", "").replace("…", "...")
                assert " ".join(text.split()) in shown


def test_texts_read_the_same():
    """What means something to roff is escaped."""
    assert man_page.paragraph("a\\b -c 'd' `e-f`") == (
        "a\\eb \\-c \\(aqd\\(aq \\fBe\\-f\\fR"
    )
    assert man_page.paragraph(".PP") == "\\&.PP"
