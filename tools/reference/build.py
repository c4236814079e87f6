"""Writes the pages of docs/reference that are generated from code.

Run it after a change of a setting, an option, a docstring of the client or a message;
`make docs` does so. With `--check` it writes nothing, and the exit status is 1 if a
page is not up to date.

Each module in this folder whose name ends with `_page` or `_pages` has a function
`pages()`, which returns the texts of pages by their paths.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).resolve().parent
BUILDERS = tuple(sorted(path.stem for path in FOLDER.glob("*_page*.py")))


def pages_of(builder: str) -> dict[Path, str]:
    """Return what one of the modules makes, by the paths from the root."""
    made: dict[Path, str] = importlib.import_module(f"reference.{builder}").pages()
    return made


def pages() -> dict[Path, str]:
    """Return the text of each generated page, by its path from the root."""
    return {path: text for each in BUILDERS for path, text in pages_of(each).items()}


def outdated(texts: dict[Path, str], root: Path) -> list[Path]:
    """Return the pages that are not as the code has them."""
    return [
        path
        for path, text in texts.items()
        if not (root / path).is_file() or (root / path).read_text() != text
    ]


def main() -> int:
    """Write the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    is_check = parser.parse_args().check
    texts = pages()
    stale = outdated(texts, ROOT)
    for path in stale:
        if is_check:
            print(f"{path} is not up to date; run tools/reference/build.py")
        else:
            (ROOT / path).write_text(texts[path])
            print(f"wrote {path}")
    return 1 if is_check and stale else 0


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER.parent))
    sys.exit(main())
