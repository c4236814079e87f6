"""Reporting a ring that stays full: when, for which clients, and how often."""

from __future__ import annotations

import logging

import pytest

from canal_server.store.stall import REPORT_AFTER_S, REPORT_AGAIN_S, StallNotice

START = 1000.0


@pytest.fixture
def messages(caplog):
    """Return a function that returns the lines logged since its last call."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return lines


def test_names_who_must_ack(messages):
    """A long wait is logged with its length and the client that holds the entries."""
    notice = StallNotice("example")
    notice.begin(START)
    assert notice.due_s(START) == REPORT_AFTER_S
    assert notice.due_s(START + REPORT_AFTER_S + 1) == 0
    notice.report([9999], START + 11)
    (line,) = messages()
    assert "example" in line
    assert "11 s" in line
    assert "client 9999 must ack" in line
    assert line.endswith(
        "canal-server unsubscribe --destination example --client-id 9999`"
    )


def test_names_a_few_of_many(messages):
    """However many clients hold the entries, the line stays short."""
    notice = StallNotice("example")
    notice.begin(START)
    notice.report(range(1, 101), START + 10)
    (line,) = messages()
    assert "clients 1, 2, 3, 4, 5 and 95 more must ack" in line
    assert "`canal-server unsubscribe --destination example --client-id 1`" in line


def test_the_server_s_own_client(messages):
    """It is never one to unsubscribe; other clients are named as before."""
    notice = StallNotice("example")
    notice.users[1001] = "the delivery to kafka"
    notice.begin(START)
    notice.report([1001], START + 11)
    (line,) = messages()
    assert "the ring is full until the delivery to kafka acks" in line
    assert "unsubscribe" not in line
    notice.report([1001, 7], START + 22)
    first, second = messages()
    assert "the delivery to kafka" in first
    assert "client 7 must ack" in second
    assert second.endswith("--client-id 7`")


def test_says_that_nobody_is_subscribed(messages, caplog):
    """Without clients a full ring is not an error: no warning."""
    notice = StallNotice("example")
    notice.begin(START)
    notice.report((), START + 10)
    assert caplog.records[0].levelno == logging.INFO
    assert "no client is subscribed" in messages()[0]


def test_a_wait_is_logged_once_in_a_while(messages):
    """The same clients are named again only after minutes, others at once."""
    notice = StallNotice("example")
    notice.begin(START)
    notice.report([1], START + 10)
    assert notice.due_s(START + 10) == REPORT_AFTER_S
    notice.report([1], START + 20)
    assert len(messages()) == 1
    notice.report([1, 2], START + 30)
    assert len(messages()) == 1
    notice.report([1, 2], START + 30 + REPORT_AGAIN_S)
    assert len(messages()) == 1


def test_the_end_of_a_logged_wait_is_logged(messages):
    """The end of a reported wait is logged; short waits are not mentioned."""
    notice = StallNotice("example")
    notice.begin(START)
    notice.end(START + 1)
    assert messages() == []
    notice.begin(START)
    notice.report([1], START + 10)
    messages()
    notice.end(START + 42)
    assert messages() == ["destination example: resumed reading after 42 s"]
