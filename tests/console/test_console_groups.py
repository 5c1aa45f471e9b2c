"""Consoles of groups of several kinds: of a path, under TLS, and one that does not answer."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
import trustme

from dledger import EmbeddedGroup
from dledger.console.app import console_app
from dledger.console.settings import ConsoleSettings
from dledger.console.watch.watched_group import LOOK, WatchedGroup
from dledger.testing import InProcessGroup
from tests.cli.commands import SMALL, program, refusal
from tests.console.conftest import OWN, PORT, Page


def page_of(watched: WatchedGroup) -> Page:
    """A logged-in browser."""
    app = console_app(ConsoleSettings(write=True), watched, PORT, "tests")
    page = Page(app, base_url=OWN, follow_redirects=False)
    page.get("/login", params={"token": app.state.console.door.sessions.token})
    return page


def test_group_that_does_not_answer_is_told_on_each_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LOOK, "request_timeout_ms", 500)
    with InProcessGroup(1) as group:
        group.client().create_topic("t")
        watched = WatchedGroup(group.bootstrap_servers, timeout_ms=500)
        page = page_of(watched)
        assert page.get("/topics").status_code == 200
        group.kill("n0")
        watched.changed()
        watched.nodes.start()
        text = page.get("/topics").text
        assert "The group does not answer since" in text
        assert ">t</a>" in text  # as of then
        assert page.get("/topics/t/records").status_code == 503
        changed = page.form("/topics", name="u", partitions="1", type="raw")
        assert changed.status_code in {503, 504}
        watched.close()


def test_certificates_are_those_that_connections_show(
    issue: Callable[..., dict[str, str]],
) -> None:
    files = issue("127.0.0.1", "dledger://client/alice", authority=trustme.CA())
    with InProcessGroup(1, **files) as group:
        watched = WatchedGroup(group.bootstrap_servers, **files)
        text = page_of(watched).get("/certificates").text
        assert "this console" in text
        assert f">{group.bootstrap_servers}</th>" in text
        assert text.count("dledger://client/alice") == 2
        assert len(re.findall(r'<td class="n">\d+</td>', text)) == 2
        watched.close()


def test_certificate_of_another_authority_is_told(issue: Callable[..., dict[str, str]]) -> None:
    files, others = issue(authority=trustme.CA()), issue()
    with InProcessGroup(1, **files) as group:
        watched = WatchedGroup(group.bootstrap_servers, **others)
        text = page_of(watched).get("/certificates").text
        assert "certificate verify failed" in text or "does not answer" in text
        watched.close()


def opened(link: str, context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """A program that has followed the link."""
    opener = urllib.request.build_opener(
        urllib.request.HTTPCookieProcessor(CookieJar()),
        urllib.request.HTTPSHandler(context=context),
    )
    with opener.open(link) as answer:
        assert answer.status == 200
    return opener


def test_command_prints_a_link_for_each_session_and_ends_by_ctrl_c() -> None:
    with InProcessGroup(1) as group:
        words = f"console -b {group.bootstrap_servers} --port 0 --no-messages"
        with subprocess.Popen(program(words), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            link = re.fullmatch(r"console: (http://127\.0\.0\.1:\d+/login\?token=\S{43})\n", first)
            assert link
            with opened(link[1]).open(link[1].partition("login")[0]) as answer:
                assert "n0 leads" in answer.read().decode()
            second = process.stdout.readline()
            assert second.startswith("console: http://127.0.0.1:")
            assert second != first
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130


def test_console_beyond_loopback_speaks_https(issue: Callable[..., dict[str, str]]) -> None:
    authority = trustme.CA()
    files = issue("localhost", authority=authority)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with InProcessGroup(1) as group:
        words = (
            f"console -b {group.bootstrap_servers} --port 0 --host 0.0.0.0 --name localhost "
            f"--certificate {files['tls_certificate']} --key {files['tls_key']}"
        )
        with subprocess.Popen(program(words), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            link = process.stdout.readline().split()[1]
            assert link.startswith("https://localhost:")
            opener = opened(link, context)
            with opener.open(link.partition("login")[0]) as answer:
                assert "n0 leads" in answer.read().decode()
            process.terminate()
            process.wait(30)


@pytest.mark.cluster
def test_group_of_a_path_shows_what_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with EmbeddedGroup(path, replicas=1, **SMALL):
        watched = WatchedGroup(str(path))
        page = page_of(watched)
        assert "n0 leads" in page.get("/").text
        text = page.get("/settings").text
        assert "segment_bytes" in text
        assert str(SMALL["segment_bytes"]) in text
        assert "secret of its directory" in page.get("/certificates").text
        watched.close()


def test_refusals_of_the_command_name_the_way_out(tmp_path: Path) -> None:
    assert "which group?" in refusal("console")
    assert "both name the group" in refusal(f"console {tmp_path} -b 127.0.0.1:1")
    assert "there is no group in this directory" in refusal(f"console {tmp_path}")
    assert "--insecure" in refusal("console -b 127.0.0.1:1 --host 0.0.0.0")
    assert "both" in refusal(f"console -b 127.0.0.1:1 --certificate {tmp_path}/c.pem")
    missing = f"--certificate {tmp_path}/c.pem --key {tmp_path}/k.pem"
    assert "c.pem" in refusal(f"console -b 127.0.0.1:1 --port 0 {missing}")


def test_port_that_is_taken_is_told() -> None:
    with InProcessGroup(1) as group:
        port = group.bootstrap_servers.rpartition(":")[2]
        said = refusal(f"console -b {group.bootstrap_servers} --port {port}")
        assert f"cannot listen at 127.0.0.1:{port}" in said
        assert "another --port" in said
