"""The page in a real browser, on a server that reads a real MySQL or MariaDB."""

from __future__ import annotations

import re

import pytest
from chromium import open_page, running_browser
from fix_pipeline import DESTINATION
from fix_store import eventually
from servers import free_port

from canal_server.client.range_client import RangedClient
from canal_server.daemon.control import ask
from canal_server.protocol.auth import stored_form

RING = 16
WRONG = {"canal.instance.dbPassword": "not this one"}


@pytest.fixture(scope="module")
def browser():
    """Give a browser."""
    with running_browser() as running:
        yield running


@pytest.fixture
def pipeline(make_pipeline, mysql_server, database, monkeypatch):
    """Give a pipeline with a small ring and a port for the page, not started."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    monkeypatch.setenv("CANAL_AUTO_SCAN", "true")
    monkeypatch.setenv("CANAL_AUTO_SCAN_INTERVAL", "1")
    settings = {
        "canal.instance.memory.buffer.size": RING,
        "canal.instance.memory.batch.mode": "ITEMSIZE",
    }
    mysql_server.execute(f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    return make_pipeline(mysql_server, database, settings)


def url_of(pipeline) -> str:
    """Return the address of the page."""
    return f"http://127.0.0.1:{ask(pipeline.conf, 'status')['http_port']}/"


def card_of(page):
    """Return the part of the page about the destination."""
    return page.locator(f"article[data-destination={DESTINATION}]")


def test_an_operator_finds_a_wrong_password(browser, pipeline):
    """He sees that a destination fails, and why; repairs it, and sees it run."""
    right = pipeline.settings["canal.instance.dbPassword"]
    pipeline.configure(WRONG)
    pipeline.start()
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_text("Access denied").wait_for()
        since = card.locator(".error").inner_text()
        assert re.search(r"\(since .* (UTC|GMT|[A-Z]{3,5})\S*\)$", since), (
            "no time zone"
        )
        page.locator("#summary").get_by_text("0 of 1 destinations ready").wait_for()
        pipeline.configure({"canal.instance.dbPassword": right})
        card.get_by_text("reading", exact=True).wait_for()
        page.locator("#summary").get_by_text("1 of 1 destinations ready").wait_for()
        assert not card.locator(".error").is_visible()


@pytest.mark.parametrize("repaired", ["settings", "password file"])
def test_an_operator_repairs_a_password_and_retries(
    browser, pipeline, monkeypatch, tmp_path, repaired
):
    """Nobody watches the folder: the button has the settings read again.

    He reads what the error means before that, on a page of this server.
    """
    monkeypatch.setenv("CANAL_AUTO_SCAN", "false")
    right = str(pipeline.settings["canal.instance.dbPassword"])
    secret = tmp_path / "password"
    secret.write_text("not this one")
    secret.chmod(0o600)
    pipeline.configure(
        WRONG
        if repaired == "settings"
        else {
            "canal.instance.dbPassword": None,
            "canal.instance.dbPassword.file": str(secret),
        }
    )
    pipeline.start()
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_text("What to do: Correct canal.instance.dbUsername").wait_for()
        card.get_by_role("link", name="More about SourceRefused").click()
        page.wait_for_url("**/messages.html#sourcerefused")
        section = page.locator("section:target")
        section.get_by_text("The name or the password is wrong.").wait_for()
        page.go_back()
        card.get_by_text("waiting for the source").wait_for()
        secret.write_text(right)
        if repaired == "settings":
            pipeline.configure({"canal.instance.dbPassword": right})
        card.get_by_role("button", name="Retry").focus()
        page.keyboard.press("Enter")
        page.get_by_text("Retry of example was requested").wait_for()
        card.get_by_text("reading", exact=True).wait_for()
        assert not card.locator(".error").is_visible()
        assert card.get_by_role("button", name="Retry").count() == 0
    assert ask(pipeline.conf, "status")["changed_settings"] == []


def test_an_operator_starts_a_failed_destination(browser, pipeline):
    """It could not start, and is not retried for a while; he need not wait."""
    pipeline.meta_file.parent.mkdir(exist_ok=True)
    pipeline.meta_file.write_text("damaged")
    pipeline.start()
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_text("failed", exact=True).wait_for()
        card.get_by_text("What to do: Restore a copy").wait_for()
        card.get_by_role("button", name="Start").wait_for()
        pipeline.meta_file.unlink()
        card.get_by_role("button", name="Start").click()
        card.get_by_text("reading", exact=True).wait_for()


def test_an_operator_cannot_start_with_a_wrong_file(browser, pipeline, monkeypatch):
    """What is wrong in the file is shown, and the destination stays as it is."""
    monkeypatch.setenv("CANAL_AUTO_SCAN", "false")
    pipeline.start()
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        card.get_by_text("stopped by an operator").wait_for()
        pipeline.configure({"canal.instance.memory.buffer.size": "many"})
        card.get_by_role("button", name="Start").click()
        page.get_by_role("alert").get_by_text("memory.buffer.size").wait_for()
        assert pipeline.status()["life"] == "stopped"


def test_where_a_client_stands(browser, pipeline):
    """The positions that it acked and was sent are those of the binlog."""
    pipeline.start()
    with pipeline.client(1001) as client, open_page(browser) as page:
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
        acked = next(pipeline.messages(client, batch_size=1000))
        client.ack(acked.id)
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (2)")
        sent = next(pipeline.messages(client, batch_size=1000))
        page.goto(url_of(pipeline))
        cells = card_of(page).locator("tr[data-id='1001'] td")
        cells.nth(3).get_by_text("1 open batch").wait_for()
        for number, message in ((2, acked), (3, sent)):
            last = message.entries[-1].header
            shown = cells.nth(number).locator(".position").text_content()
            assert shown == f"{last.logfile_name}:{last.logfile_offset}"
            assert cells.nth(number).locator(".time").text_content()
        client.ack(sent.id)
        cells.nth(3).get_by_text("nothing more").wait_for()


def test_a_delivery_whose_broker_is_away(browser, pipeline):
    """The page says that it is blocked, why, and what to do about it."""
    pytest.importorskip("confluent_kafka", reason="the extra `kafka` is missing")
    broker = f"127.0.0.1:{free_port()}"
    pipeline.main_settings |= {
        "canal.serverMode": "kafka",
        "kafka.bootstrap.servers": broker,
    }
    pipeline.configure({})
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["delivery"]["state"] == "blocked")
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_text(
            re.compile(f"Delivery to kafka at {broker} is blocked: Kafka at {broker}")
        ).wait_for()
        card.get_by_text(f"kafka at {broker}: blocked, 0 messages").wait_for()
        assert "warn" in card.locator(".state").get_attribute("class")
        more = card.locator(".notes a").first.get_attribute("href")
        assert more.endswith("#delivery-failed")
    pipeline.stop()


def test_an_operator_removes_a_ranged_subscription(browser, pipeline):
    """That of a reader which does not return; who reads one is named."""
    pipeline.start()
    with (
        RangedClient("127.0.0.1", pipeline.server_port) as client,
        open_page(browser) as page,
    ):
        at = client.subscribe(DESTINATION, "lake", rf"{pipeline.schema}\..*").cursor
        client.subscribe(DESTINATION, "trial", rf"{pipeline.schema}\..*")
        pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (1)")
        client.head(DESTINATION, "lake", at, wait_ms=30_000, query="q1")
        page.goto(url_of(pipeline))
        table = card_of(page).locator("table.subscriptions")
        lake = table.locator("tr", has_text="lake")
        lake.get_by_text("query q1").wait_for()
        assert lake.get_by_role("button").count() == 0
        trial = table.locator("tr", has_text="trial")
        trial.get_by_role("button", name="Remove").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        assert "trial" in (dialog.text_content() or "")
        dialog.get_by_role("button", name="Remove").click()
        trial.wait_for(state="detached")
        ranges = pipeline.status()["ranges"]["subscriptions"]
        assert list(ranges) == ["lake"]


def test_an_operator_sees_the_cluster(  # noqa: PLR0917  # fixtures
    browser, make_pipeline, mysql_server, database, zookeeper_root, monkeypatch
):
    """Who runs the destination, who stands by, and what becomes of it at a stop."""
    monkeypatch.setenv("CANAL_HTTP_PORT", "0")
    servers = [make_pipeline(mysql_server, database) for _ in range(2)]
    for server in servers:
        server.main_settings = {"canal.zkServers": zookeeper_root}
        server.configure({}, wiring="classpath:spring/default-instance.xml")
        server.start()
        server.process.wait_for_log("is run by")
    one, two = (f"127.0.0.1:{server.server_port}" for server in servers)
    with open_page(browser) as page:
        page.goto(url_of(servers[1]))
        card_of(page).get_by_text("standby").wait_for()
        section = page.get_by_label("Clusters")
        section.get_by_text("connected").wait_for()
        cells = section.locator("tbody td")
        cells.nth(1).get_by_text(one, exact=True).wait_for()
        assert cells.all_text_contents() == [DESTINATION, one, f"{two} (this server)"]
        servers[0].stop()
        cells.nth(1).get_by_text(f"{two} (this server)").wait_for()
        card_of(page).get_by_text(f"{two} (this server)").wait_for()


def test_an_operator_finds_and_removes_the_client_that_blocks(
    browser, pipeline, tmp_path
):
    """The client is named and marked; its subscription is removed after a question."""
    pipeline.start()
    with (
        pipeline.client(1001),
        pipeline.client(1002) as other,
        open_page(browser) as page,
    ):
        for number in range(RING):
            pipeline.source.execute(
                f"INSERT INTO {pipeline.schema}.t VALUES ({number})"
            )
        pipeline.wait_for_status(lambda status: status["blocked"])
        while message := other.get(100):
            other.ack(message.id)
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_text("blocked: waits for a client").wait_for()
        card.get_by_text("ring full, waits for client 1001").wait_for()
        row = card.locator("tr.bad")
        assert row.locator("td").first.text_content() == "1001"
        page.screenshot(path=tmp_path / "page.png")

        row.get_by_role("button", name="Unsubscribe").click()
        page.get_by_role("button", name="Cancel").click()
        assert row.count() == 1
        row.get_by_role("button", name="Unsubscribe").click()
        dialog = page.get_by_role("dialog")
        assert "client 1001" in (dialog.text_content() or "")
        dialog.get_by_role("button", name="Unsubscribe").click()
        card.locator("tr[data-id='1001']").wait_for(state="detached")
        assert pipeline.status()["clients"] == [1002]


def test_an_operator_moves_a_client(browser, pipeline):
    """He sees what a move would repeat before it is done; then the client has it."""
    pipeline.start()
    line = pipeline.process.wait_for_log("starts at .*: configured")
    start = re.search(r"starts at (\S+:\d+): configured", line)
    assert start
    pipeline.source.execute(f"INSERT INTO {pipeline.schema}.t VALUES (7)")
    with pipeline.client() as client:
        message = next(pipeline.messages(client, batch_size=1000))
        client.ack(message.id)
        client.get(1)  # answered after the ack
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card_of(page).get_by_role("button", name="Move clients").click()
        dialog = page.get_by_role("dialog")
        move = dialog.get_by_role("button", name="Move", exact=True)
        position = dialog.get_by_label("New position")
        position.fill("yesterday")
        page.keyboard.press("Enter")
        dialog.get_by_text("is not a position").wait_for()
        assert move.is_disabled()
        position.fill(start[1])
        dialog.get_by_role("button", name="Preview").click()
        dialog.get_by_text("1 transaction").wait_for()
        move.click()
        dialog.wait_for(state="hidden")
        pipeline.process.wait_for_log("an operator moved client 1001")
        card_of(page).get_by_text("reading", exact=True).wait_for()
    with pipeline.client() as client:
        again = next(pipeline.messages(client, batch_size=1000))
        assert again.entries == message.entries


def test_an_operator_sees_who_changed_a_table(browser, pipeline):
    """The history of a table has the statement, and the column that it added."""
    pipeline.start()
    pipeline.wait_for_status(lambda status: status["state"] == "running")
    table = f"{pipeline.schema}.t"
    pipeline.source.execute(f"ALTER TABLE {table} ADD COLUMN b VARCHAR(10)")
    path = f"api/v1/destinations/{DESTINATION}/tables/{table}/history"
    with open_page(browser) as page:
        page.goto(url_of(pipeline))

        def is_there():
            return "ADD COLUMN b" in page.request.get(url_of(pipeline) + path).text()

        eventually(is_there)
        card_of(page).get_by_role("button", name="Tables").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Table").fill(table)
        page.keyboard.press("Enter")
        dialog.get_by_text(f"ALTER TABLE {table} ADD COLUMN b").wait_for()
        assert "varchar(10)" in (dialog.locator(".added").first.text_content() or "")
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="hidden")


def test_stop_and_start_by_keyboard(browser, pipeline):
    """Buttons are reached by the keyboard; a stopped destination starts again."""
    pipeline.start()
    with open_page(browser) as page:
        page.goto(url_of(pipeline))
        card = card_of(page)
        card.get_by_role("button", name="Stop").focus()
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        card.get_by_text("stopped by an operator").wait_for()
        pipeline.wait_for_status(lambda status: status["life"] == "stopped")
        card.get_by_role("button", name="Start").focus()
        page.keyboard.press("Enter")
        card.get_by_text("reading", exact=True).wait_for()
    pipeline.wait_for_status(lambda status: status["running"])


def test_a_user_who_may_observe_nothing(browser, pipeline):
    """Who may only read sees no destination, and why."""
    users = pipeline.conf / "users.yml"
    users.write_text(
        f"users: {{reader: {{password: {stored_form('geheim')},"
        " read: [{destination: '*'}]}}"
    )
    users.chmod(0o600)
    with (pipeline.conf / "canal.properties").open("a") as main:
        main.write("canal.users.file = users.yml\n")
    pipeline.start()
    login = {"username": "reader", "password": "geheim"}
    with open_page(browser, http_credentials=login) as page:
        page.goto(url_of(pipeline))
        page.get_by_text("no destinations that you may observe").wait_for()
        assert page.locator("article").count() == 0


def test_users_that_change_while_the_page_is_open(browser, pipeline):
    """The page follows the rights of who looks at it, and is empty without them."""
    users = pipeline.conf / "users.yml"

    def write(name: str, right: str) -> None:
        fresh = users.with_suffix(".new")
        fresh.touch(0o600)
        fresh.write_text(
            f"users: {{{name}: {{password: {stored_form('geheim')},"
            f" observe: ['{right}']}}}}"
        )
        fresh.replace(users)

    write("ann", DESTINATION)
    with (pipeline.conf / "canal.properties").open("a") as main:
        main.write("canal.users.file = users.yml\n")
    pipeline.start()
    login = {"username": "ann", "password": "geheim"}
    with open_page(browser, http_credentials=login) as page:
        page.goto(url_of(pipeline))
        card_of(page).wait_for()
        write("ann", "other")
        page.get_by_text("no destinations that you may observe").wait_for()
        assert card_of(page).count() == 0
        write("ann", "*")
        card_of(page).wait_for()
        write("bob", "*")
        page.locator("#failure").get_by_text("canal.users.file").wait_for()
        assert card_of(page).count() == 0
        write("ann", "*")
        card_of(page).wait_for()
        page.locator("#failure").wait_for(state="hidden")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_a_phone(browser, pipeline, scheme, tmp_path):
    """On a narrow screen nothing is wider than it; no text is hard to read."""
    pipeline.start()
    phone = {"viewport": {"width": 360, "height": 720}, "color_scheme": scheme}
    with pipeline.client(1001), open_page(browser, **phone) as page:
        page.goto(url_of(pipeline))
        card_of(page).get_by_text("reading", exact=True).wait_for()
        page.screenshot(path=tmp_path / "page.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        found = page.evaluate("""() => {
            const style = getComputedStyle(document.querySelector("article"));
            return [style.color, style.backgroundColor];
        }""")
        assert contrast(*found) > 7
        page.goto(f"{url_of(pipeline)}messages.html#ring-is-full")
        page.locator("section:target").get_by_text("What to do").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours as WCAG 2 has it, 1 to 21."""

    def luminance(colour: str) -> float:
        values = [int(n) / 255 for n in colour[4:-1].split(",")]
        linear = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values
        ]
        return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_nothing_from_elsewhere(browser, pipeline):
    """The page asks no other host for anything, and runs no script of its own text."""
    pipeline.start()
    asked: list[str] = []
    with open_page(browser) as page:
        page.on("request", lambda request: asked.append(request.url))
        url = url_of(pipeline)
        answer = page.goto(url)
        assert answer
        card_of(page).get_by_text("reading", exact=True).wait_for()
    assert {each[: len(url)] for each in asked if not each.startswith("data:")} == {url}
    assert "default-src 'self'" in answer.headers["content-security-policy"]
