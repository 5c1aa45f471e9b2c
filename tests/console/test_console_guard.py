"""Who may come in: hosts, origins, sessions, forms; and the headers of every answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from dledger.console.access.guard import FORM_BYTES
from dledger.console.access.sessions import MOST_SESSIONS, SESSION_S, Sessions
from dledger.console.settings import ConsoleSettings
from dledger.environment import Environment
from dledger.errors import ConfigError
from tests.console.conftest import OWN, Page

PATHS = (
    "/",
    "/topics",
    "/topics/t",
    "/topics/t/records",
    "/groups",
    "/settings",
    "/users",
    "/acls",
    "/quotas",
    "/audit",
    "/nowhere",
)


class Clock(Environment):
    """A machine whose time is set by the test."""

    at_ms = 1000

    def now_ms(self) -> int:  # type: ignore[override]
        return self.at_ms


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_a_session(open_console: Callable[..., Page], path: str) -> None:
    answer = open_console(logged_in=False).get(path)
    assert answer.status_code == 401
    assert answer.text.startswith("You are not logged in here")


def test_link_opens_one_session_and_no_second_one(open_console: Callable[..., Page]) -> None:
    page = open_console(logged_in=False)
    sessions = page.app.state.console.door.sessions
    links: list[str] = []
    sessions.announce(links.append)
    token = sessions.token
    assert page.head("/login", params={"token": token}).status_code == 405  # a mere look
    assert page.get("/login", params={"token": token}).status_code == 200
    assert page.get("/").status_code == 200
    assert page.get("/login", params={"token": token}).status_code == 401
    assert links == [token, sessions.token]
    assert sessions.token != token


def test_cookie_is_for_this_site_alone_and_no_script(open_console: Callable[..., Page]) -> None:
    page = open_console(logged_in=False)
    token = page.app.state.console.door.sessions.token
    cookie = page.get("/login", params={"token": token}).headers["set-cookie"].lower()
    name, _, value = cookie.partition(";")[0].partition("=")
    assert name == "dledger-console-7080"
    assert len(value) == 43  # 256 bits
    for flag in ("httponly", "samesite=strict", "path=/", f"max-age={SESSION_S}"):
        assert flag in cookie
    assert "secure" not in cookie


@pytest.mark.parametrize("token", ["", "x", "é" * 43, "a" * 43])
def test_other_tokens_open_nothing(open_console: Callable[..., Page], token: str) -> None:
    page = open_console(logged_in=False)
    assert page.get("/login", params={"token": token}).status_code == 401
    assert page.get("/").status_code == 401


def test_session_ends_by_time_and_by_logging_out(writer: Page) -> None:
    assert writer.form("/logout").status_code == 200
    assert writer.get("/").status_code == 401
    clock = Clock()
    sessions = Sessions(clock)
    cookie = sessions.log_in(sessions.token)
    assert cookie is not None
    clock.at_ms += 1000 * SESSION_S - 1
    assert sessions.find(cookie) is not None
    clock.at_ms += 1
    assert sessions.find(cookie) is None


def test_sessions_are_not_kept_without_end() -> None:
    sessions = Sessions()
    cookies = [sessions.log_in(sessions.token) or "" for _ in range(MOST_SESSIONS + 1)]
    assert sessions.find(cookies[0]) is None
    assert all(sessions.find(cookie) for cookie in cookies[1:])


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7080", "127.0.0.1", "127.0.0.1:7081", "10.0.0.1:7080", ""],
)
def test_name_that_was_pointed_here_is_no_host(page: Page, host: str) -> None:
    """DNS rebinding: the browser takes it for the site of another name."""
    assert page.get("/", headers={"Host": host}).status_code == 421
    assert page.get("/static/console.css", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:7080", "LOCALHOST:7080", "[::1]:7080"])
def test_names_of_loopback_are_hosts(open_console: Callable[..., Page], host: str) -> None:
    page = open_console(logged_in=False)
    assert page.get("/static/console.css", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:7081", "https://127.0.0.1:7080"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_request_from_another_origin_is_refused(writer: Page, origin: str, method: str) -> None:
    headers = {"Origin": origin}
    assert writer.request(method, "/topics", headers=headers).status_code == 403


def test_cross_site_request_is_refused_but_a_link_leads_here(page: Page) -> None:
    for site in ("cross-site", "same-site"):
        sent = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}
        assert page.get("/topics", headers=sent).status_code == 403
        assert page.get("/", headers=sent | {"Sec-Fetch-Mode": "navigate"}).status_code == 200
        assert page.post("/topics", headers=sent | {"Origin": OWN}).status_code == 403


POSTS = (
    "/logout",
    "/leader",
    "/topics",
    "/topics/t/partitions",
    "/topics/t/delete",
    "/groups/g/reset",
    "/users/g/remove",
    "/users/g/tokens/k/revoke",
    "/acls",
    "/acls/remove",
    "/quotas",
    "/quotas/remove",
)


@pytest.mark.parametrize("path", POSTS)
def test_form_without_its_token_or_origin_changes_nothing(writer: Page, path: str) -> None:
    fields = {"name": "forged", "partitions": "1", "type": "raw", "confirm": "t"}
    fields |= {"effect": "allow", "principal": "User:x", "operation": "admin"}
    fields |= {"resource_type": "cluster", "resource": "", "force": "on"}
    fields |= {"entity": "User:x", "quota": "requests", "value": "1"}
    ours = {"Origin": OWN}
    assert writer.post(path, data=fields, headers=ours).status_code == 403
    wrong = fields | {"csrf": "x" * 43}
    assert writer.post(path, data=wrong, headers=ours).status_code == 403
    session = next(iter(writer.app.state.console.door.sessions._open.values()))
    right = fields | {"csrf": session.csrf}
    assert writer.post(path, data=right).status_code == 403  # no browser leaves the origin out
    assert writer.post(path, json=right, headers=ours).status_code == 415
    assert "forged" not in writer.get("/topics").text
    group = writer.app.state.console.group.looking
    assert not group.acls()
    assert not group.quotas()


def test_every_route_that_changes_something_is_among_the_forms(writer: Page) -> None:
    posts = {
        route.path.replace("{name}", "t" if "topics" in route.path else "g").replace("{token}", "k")
        for route in writer.app.routes
        if "POST" in (getattr(route, "methods", None) or ())
    }
    assert posts == set(POSTS)


@pytest.mark.parametrize("path", sorted({*POSTS} - {"/logout"}))
def test_console_that_reads_refuses_every_form(page: Page, path: str) -> None:
    answer = page.form(path, name="t", partitions="2", type="raw", confirm="t", node="n0", to="0")
    assert answer.status_code == 403
    assert "Start it with --write" in answer.text


def test_form_and_address_have_a_limit(writer: Page) -> None:
    assert writer.form("/topics", name="x" * FORM_BYTES).status_code == 413
    assert writer.get("/topics", params={"find": "x" * 5000}).status_code == 414
    many = "&".join(f"a{n}=1" for n in range(200))
    sent = {"Origin": OWN, "Content-Type": "application/x-www-form-urlencoded"}
    assert writer.post("/topics", content=many, headers=sent).status_code == 400


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_are_refused(page: Page, method: str) -> None:
    assert page.request(method, "/topics").status_code == 405


@pytest.mark.parametrize("path", ["/", "/static/console.js", "/nowhere", "/login?token=x"])
def test_every_answer_forbids_scripts_frames_and_guesses(page: Page, path: str) -> None:
    check_headers(path, page.get(path).headers)


@pytest.mark.parametrize("path", ["/", "/nodes"])
def test_answer_to_a_fault_has_the_headers_and_no_details(
    open_console: Callable[..., Page], path: str
) -> None:
    page = open_console()
    page.app.state.console = None  # no page can be made
    with pytest.raises(AttributeError):
        page.get(path)  # the server, which logs it, sees the fault itself
    quiet = Page(page.app, base_url=OWN, raise_server_exceptions=False, cookies=page.cookies)
    answer = quiet.get(path)
    assert answer.status_code == 500
    assert answer.text.startswith("The console has met an error of its own")
    check_headers(path, answer.headers)


def check_headers(path: str, headers: Mapping[str, str]) -> None:
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == (
        "private, max-age=86400" if path.startswith("/static") else "no-store"
    )


def test_beyond_loopback_only_with_https_or_on_purpose() -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        ConsoleSettings(host="0.0.0.0")
    assert ConsoleSettings(host="::1").hosts(7080) >= {"[::1]:7080", "localhost:7080"}
    open_ = ConsoleSettings(host="0.0.0.0", insecure=True, names=("log.example",))
    assert "log.example:7080" in open_.hosts(7080)
    assert "log.example" in open_.hosts(80)
    with pytest.raises(ConfigError, match="both"):
        ConsoleSettings(certificate=__file__)  # type: ignore[arg-type]
