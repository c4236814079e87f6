"""Tails on the page in a real browser, on a server that reads a real MySQL."""

from __future__ import annotations

import socket

import pytest
from chromium import open_page, running_browser
from fix_pipeline import DESTINATION

from canal_server.daemon.control import ask

PHONE = {"viewport": {"width": 360, "height": 720}}
HOSTILE = "<img src=x onerror=\"document.title='hacked'\">\n\0\x1b[31m\u202eabc"


@pytest.fixture(scope="module")
def browser():
    """Give a browser."""
    with running_browser() as running:
        yield running


@pytest.fixture
def pipeline(make_pipeline, mysql_server, database, monkeypatch):
    """Give a running pipeline with a port for the page, and a table."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    mysql_server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(100), v LONGTEXT)"
        " DEFAULT CHARSET utf8mb4"
    )
    pipeline = make_pipeline(mysql_server, database, {})
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    return pipeline


def open_tail(page, pipeline):
    """Open the dialog; returns it."""
    page.goto(f"http://127.0.0.1:{ask(pipeline.conf, 'status')['http_port']}/")
    card = page.locator(f"article[data-destination={DESTINATION}]")
    card.get_by_role("button", name="Tail").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    return dialog


def text(value: str) -> str:
    """Return a text as a literal of SQL."""
    return f"CONVERT(X'{value.encode().hex()}' USING utf8mb4)"


def test_an_operator_follows_a_table(browser, pipeline):
    """He sees why nothing comes, then changes as they come; pauses, and closes it."""
    table = f"{pipeline.schema}.t"
    source = pipeline.source
    with open_page(browser) as page:
        dialog = open_tail(page, pipeline)
        dialog.get_by_label("Table").fill(table)
        page.keyboard.press("Enter")
        state = dialog.locator("#tail-state")
        state.get_by_text(f"No change so far that '{table}' matches").wait_for()

        source.execute(f"INSERT INTO {table} VALUES (7, 'Ada', NULL)")
        source.execute(f"UPDATE {table} SET name = 'Bea' WHERE id = 7")
        source.execute(f"ALTER TABLE {table} ADD COLUMN b INT")
        changes = dialog.locator("#tail-changes > li")
        changes.nth(2).wait_for()
        insert, update, ddl = (changes.nth(number) for number in range(3))
        assert columns_of(insert) == {"id (key)": "7", "name": "Ada", "v": "NULL"}
        assert columns_of(update) == {"id (key)": "7", "name": "Ada Bea", "v": "NULL"}
        changed = update.locator(".changed")
        assert changed.count() == 1
        assert changed.locator("del").text_content() == "Ada"
        assert changed.locator("ins").text_content() == "Bea"
        assert f"update {table}" in (update.text_content() or "")
        file, _ = source.binlog_position()
        assert f"{file}:" in (update.text_content() or "")
        assert (
            ddl.locator("pre").text_content() == f"ALTER TABLE {table} ADD COLUMN b INT"
        )
        state.get_by_text("No further change").wait_for()

        dialog.get_by_role("button", name="Pause").click()
        source.execute(f"DELETE FROM {table} WHERE id = 7")
        dialog.get_by_text("paused, 1 wait").wait_for()
        assert changes.count() == 3
        dialog.get_by_role("button", name="Resume").click()
        changes.nth(3).wait_for()
        assert columns_of(changes.nth(3))["name"] == "Bea"

        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="hidden")
        pipeline.process.wait_for_log("a tail of destination example.* ended")


def columns_of(change) -> dict[str, str]:
    """Return the values of a change as they are shown, by the name of the column."""
    rows = change.locator("dl > div").all()
    return {
        row.locator("dt").text_content(): row.locator("dd").text_content()
        for row in rows
    }


def test_hostile_values(browser, pipeline):
    """Values are text: no element is made of them; long ones are cut."""
    table = f"{pipeline.schema}.t"
    with open_page(browser) as page:
        dialog = open_tail(page, pipeline)
        dialog.get_by_role("button", name="Tail", exact=True).click()
        dialog.get_by_text("No change so far").wait_for()
        pipeline.source.execute(
            f"INSERT INTO {table} VALUES (1, {text(HOSTILE)}, REPEAT('y', 1048576))"
        )
        change = dialog.locator("#tail-changes > li")
        change.wait_for()
        shown = columns_of(change)
        assert shown["name"] == (
            "<img src=x onerror=\"document.title='hacked'\">\n"
            r"\u0000\u001b[31m\u202eabc"
        )
        assert shown["v"] == f"{'y' * 500} … (1,048,576 characters)"
        assert dialog.locator("img").count() == 0
        assert page.title() == f"canal-server on {socket.gethostname()}"


def test_only_the_last_changes_are_kept(browser, pipeline):
    """The list does not grow beyond its limit, and ends with the newest."""
    table, rows = f"{pipeline.schema}.t", 450
    with open_page(browser) as page:
        dialog = open_tail(page, pipeline)
        dialog.get_by_role("button", name="Tail", exact=True).click()
        dialog.get_by_text("No change so far").wait_for()
        values = ", ".join(f"({number}, 'a', 'b')" for number in range(rows))
        pipeline.source.execute(f"INSERT INTO {table} VALUES {values}")
        dialog.get_by_text("450 received").wait_for()
        changes = dialog.locator("#tail-changes > li")
        assert changes.count() == 200
        assert columns_of(changes.last)["id (key)"] == str(rows - 1)


def test_what_is_wrong_is_shown(browser, pipeline):
    """A filter that cannot be used, and a server that ends, are named."""
    with open_page(browser) as page:
        dialog = open_tail(page, pipeline)
        dialog.get_by_label("Table").fill("shop.(")
        page.keyboard.press("Enter")
        state = dialog.locator("#tail-state")
        state.get_by_text("filter 'shop.('").wait_for()
        assert dialog.get_by_role("button", name="Pause").is_disabled()
        dialog.get_by_label("Table").fill("")
        page.keyboard.press("Enter")
        state.get_by_text("No change so far").wait_for()
        pipeline.stop()
        state.get_by_text("The server is shutting down. The tail has ended.").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone(browser, pipeline, scheme, tmp_path):
    """On a narrow screen nothing is wider than it, whatever the values are."""
    with open_page(browser, **PHONE, color_scheme=scheme) as page:
        dialog = open_tail(page, pipeline)
        dialog.get_by_role("button", name="Tail", exact=True).click()
        dialog.get_by_text("No change so far").wait_for()
        table = f"{pipeline.schema}.t"
        pipeline.source.execute(
            f"INSERT INTO {table} VALUES (1, '{'n' * 100}', REPEAT('y', 5000))"
        )
        pipeline.source.execute(f"UPDATE {table} SET name = 'short', v = NULL")
        dialog.locator("#tail-changes > li").nth(1).wait_for()
        page.screenshot(path=tmp_path / "page.png")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        for selector in ("#tail", "#tail-changes"):
            width, inner = page.locator(selector).evaluate(
                "(each) => [each.scrollWidth, each.clientWidth]"
            )
            assert width == inner, selector
