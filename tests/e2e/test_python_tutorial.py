"""The program of docs/tutorial/python.md, as it is there, killed at will."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fix_daemon import child_environ
from fix_pipeline import UNIT_S
from fix_random import longer
from load import Load

PAGE = Path(__file__).parents[2] / "docs/tutorial/python.md"
COLUMNS = "id, title, price"


def program_of(pipeline, postgres):
    """Return the program with the addresses of the test in place of the page's."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(program.splitlines()) <= 35
    source = pipeline.source
    target = postgres.url.replace("postgresql+psycopg", "postgresql")
    for there, here in (
        ("postgresql://shop:secret@127.0.0.1:5432/shop", target),
        ('"127.0.0.1", 11111', f'"127.0.0.1", {pipeline.server_port}'),
        (r"shop\.book", rf"{pipeline.schema}\.book"),
        ('host="127.0.0.1", port=3306', f'host="{source.host}", port={source.port}'),
        ('user="canal"', f'user="{source.user}"'),
        ('password="a password"', f'password="{source.password}"'),
        ('database="shop"', f'database="{pipeline.schema}"'),
    ):
        assert program.count(there) == 1
        program = program.replace(there, here)
    return program


class Book:
    """Writes to the table; a `load` writes with it."""

    def __init__(self, pipeline, rng):
        self._source, self._rng = pipeline.source, rng
        self.name = f"{pipeline.schema}.book"
        self._next = 1

    def write(self, transactions):
        """Execute so many transactions of all kinds."""
        with self._source.connect(autocommit=False) as connection:
            for _ in range(transactions):
                with connection.cursor() as cursor:
                    for _ in range(self._rng.randint(1, 5)):
                        cursor.execute(self._statement())
                connection.commit()

    def _statement(self):
        number, self._next = self._next, self._next + 1
        other = self._rng.randint(1, number)
        return self._rng.choice(
            (
                f"INSERT INTO {self.name} (title, price) VALUES ('näme {number}', 1.5)",
                f"UPDATE {self.name} SET price = price + 1 WHERE id <= {other}",
                f"DELETE FROM {self.name} WHERE id = {other}",
                f"UPDATE IGNORE {self.name} SET id = id + 1000000 WHERE id = {other}",
            )
        )


def test_the_load_of_the_page(source_server, database):
    """The procedure that keeps the table busy runs, whatever ids come first."""
    (text,) = re.findall(
        r"DELIMITER //\n(CREATE .*?) //\n", PAGE.read_text(), re.DOTALL
    )
    assert text.count("20000") == 1
    source_server.execute(
        f"CREATE TABLE {database}.book (id INT AUTO_INCREMENT PRIMARY KEY,"
        " title VARCHAR(100), price DECIMAL(8,2))",
        text.replace("shop.", f"{database}.").replace("20000", "150"),
        f"CALL {database}.busy()",
    )
    (found,) = source_server.execute(
        f"SELECT COUNT(*), MIN(id), MAX(id) FROM {database}.book"
    )
    assert tuple(map(int, found)) == (100, 51, 150)


@pytest.mark.slow
def test_the_tables_are_equal_in_the_end(pipeline, postgres, rng, tmp_path):
    """Rows from before, changes of all kinds and a TRUNCATE arrive, despite kills."""
    book = Book(pipeline, rng)
    pipeline.source.execute(
        f"CREATE TABLE {book.name} (id INT AUTO_INCREMENT PRIMARY KEY,"
        " title VARCHAR(100), price DECIMAL(8,2))"
    )
    postgres.execute(
        "CREATE TABLE book (id int PRIMARY KEY, title varchar(100), price numeric(8,2))"
    )
    book.write(20)
    program = tmp_path / "follow.py"
    program.write_text(program_of(pipeline, postgres))
    with Load(book, pause_s=0.02):
        for number in range(longer(4)):
            process = start(program)
            time.sleep(rng.uniform(0.3, 1.5))
            process.kill()
            process.wait()
            if number == 1:
                pipeline.source.execute(f"TRUNCATE TABLE {book.name}")
    process = start(program)
    try:
        expected = list(
            pipeline.source.execute(f"SELECT {COLUMNS} FROM {book.name} ORDER BY id")
        )
        give_up_at = time.monotonic() + 6 * UNIT_S
        while (found := rows_of(postgres)) != expected:
            assert process.poll() is None, "the program ended by itself"
            assert time.monotonic() < give_up_at, (found[:5], expected[:5])
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def start(program: Path) -> subprocess.Popen[bytes]:
    """Run the program."""
    return subprocess.Popen([sys.executable, str(program)], env=child_environ())


def rows_of(postgres) -> list[tuple[object, ...]]:
    """Return the rows of the target."""
    return list(postgres.execute(f"SELECT {COLUMNS} FROM book ORDER BY id"))
