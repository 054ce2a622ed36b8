"""OAuth through the servers file, against the SDK's authorization server; the browser is an HTTP client."""

from __future__ import annotations

import json
import logging
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
from mcp.shared.auth import OAuthClientInformationFull

from playhead.client import Session, connect
from playhead.client.oauth.redirect import open_redirect
from playhead.config.auth import ClientCredentials, OAuthLogin
from playhead.config.servers import ServerConfig, load_servers
from playhead.errors import (
    AccessDeniedError,
    AuthorizationNeededError,
    ConfigError,
    ConnectError,
    DeadlineError,
    UsageError,
)
from playhead.limits import Limits
from tests.servers.oauth import SCOPE, Authority, protected_server

PAGE = "resource://pages?start=0&end=3"


class Browser:
    """A person's browser: goes where it is led, and follows redirects."""

    def __init__(self) -> None:
        self.visited: list[str] = []
        self.pages: list[str] = []

    async def __call__(self, url: str) -> None:
        self.visited.append(url)
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            self.pages.append((await client.get(url)).text)


def servers_file(folder: Path, url: str, auth: dict[str, Any], **more: Any) -> ServerConfig:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"it": {"url": url, "auth": auth, **more}}}), encoding="utf-8")
    return load_servers(path, environment={"XDG_DATA_HOME": str(folder / "data"), "SECRET": "hush"})["it"]


def token_files(folder: Path) -> list[Path]:
    return sorted((folder / "data" / "playhead" / "oauth").glob("*"))


async def read(session: Session) -> None:
    assert (await session.read_resource(PAGE)).blobs == ("eHh4",)


async def refused(config: ServerConfig, *, match: str | None = None, **options: Any) -> ConnectError:
    with pytest.raises(ConnectError, match=match) as caught:
        async with connect(config, **options):
            raise AssertionError("connected")
    return caught.value


@pytest.mark.requirement("MCP-36")
async def test_a_login_in_the_browser_opens_the_server(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth", "client_name": "kitchen radio"})
        async with connect(config, show_url=browser) as session:
            await read(session)
        (client,) = server.authority.clients.values()
    assert client.client_name == "kitchen radio"
    assert "code_challenge_method=S256" in browser.visited[0]
    assert "You can close this window" in browser.pages[0]


async def test_the_tokens_are_kept_for_the_user_alone_and_used_again(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        for _ in range(2):
            async with connect(config, show_url=browser) as session:
                await read(session)
    assert len(browser.visited) == 1
    (file,) = token_files(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert server.authority.secrets[-1] in file.read_text()


async def test_eight_reads_at_once_share_one_token_and_do_not_wait_for_each_other(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser) as session:
            server.authority.revoke_access()
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(read, session)
        assert server.authority.refreshed == 1
    assert len(browser.visited) == 1


async def test_an_expired_token_of_an_earlier_run_is_refreshed_before_it_is_sent(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser):
            pass
        (file,) = token_files(tmp_path)
        kept = json.loads(file.read_text())
        assert kept["expires_at"] > time.time() + server.authority.token_seconds - 60
        file.write_text(json.dumps(kept | {"expires_at": time.time() - 1}))
        async with connect(config, show_url=browser) as session:
            await read(session)
        assert server.authority.refreshed == 1
    assert len(browser.visited) == 1


async def test_a_later_run_refreshes_where_the_token_came_from(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as issuer:
        origin = issuer.url.removesuffix("/mcp")
        async with protected_server(issuer=origin) as server:
            server.authority.tokens = issuer.authority.tokens
            config = servers_file(
                tmp_path, server.url, {"type": "oauth"}, playhead={"allow_origins": [origin]}
            )
            async with connect(config, show_url=browser):
                pass
            (file,) = token_files(tmp_path)
            kept = json.loads(file.read_text())
            file.write_text(json.dumps(kept | {"expires_at": time.time() - 1}))
            async with connect(config, show_url=browser) as session:
                await read(session)
    assert issuer.authority.refreshed == 1
    assert "POST /token" not in server.requests
    assert len(browser.visited) == 1


async def test_in_the_middle_of_a_session_nobody_is_asked(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser) as session:
            server.authority.revoke_access()
            server.authority.refreshes.clear()
            with pytest.raises(AuthorizationNeededError, match="connect again to grant it"):
                await read(session)
        assert len(browser.visited) == 1
        async with connect(config, show_url=browser) as session:
            await read(session)
    assert len(browser.visited) == 2


@pytest.mark.requirement("MCP-37")
async def test_a_token_is_sent_in_its_header_alone_and_to_the_server_alone(tmp_path: Path) -> None:
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=Browser()) as session:
            await read(session)
    assert {path for path, _ in server.bearers} == {"/mcp"}
    tokens = {token for _, token in server.bearers}
    assert tokens <= set(server.authority.secrets)
    assert not any(token in query for token in tokens for query in server.queries)


async def test_more_that_has_to_be_allowed_is_asked_for_at_the_next_connecting(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        server.wants["resources/read"] = "more"
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser) as session:
            with pytest.raises(AuthorizationNeededError, match="additional access"):
                await read(session)
        assert server.authority.asked_scopes == [[SCOPE]]
        async with connect(config, show_url=browser) as session:
            await read(session)
        async with connect(config, show_url=browser) as session:
            await read(session)
    assert server.authority.asked_scopes == [[SCOPE], [SCOPE, "more"]]


async def test_refusing_further_scopes_continues_with_the_granted_ones(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        server.wants["resources/read"] = "more"
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser) as session:
            with pytest.raises(AuthorizationNeededError):
                await read(session)
        server.authority.refuses = True
        await refused(config, show_url=browser, match="access_denied")
        async with connect(config, show_url=browser) as session:
            assert await session.list_resources() == []
    assert len(browser.visited) == 2


@pytest.mark.parametrize("scopes", [None, [SCOPE]], ids=["what is named", "what the user chose"])
async def test_asking_that_changes_nothing_is_not_begun(tmp_path: Path, scopes: list[str] | None) -> None:
    browser = Browser()
    async with protected_server() as server:
        # A server that wants what it was given already, and one that wants what the user rules out.
        server.wants["resources/read"] = "more"
        auth = {"type": "oauth"} if scopes is None else {"type": "oauth", "scopes": scopes}
        config = servers_file(tmp_path, server.url, auth)
        async with connect(config, show_url=browser) as session:
            if scopes is None:
                for token in server.authority.tokens.values():
                    token.scopes.clear()
                server.wants["resources/read"] = SCOPE
            with pytest.raises(AccessDeniedError) as caught:
                await read(session)
    assert not isinstance(caught.value, AuthorizationNeededError)
    assert len(browser.visited) == 1


async def test_a_program_asks_for_the_wider_scope_itself(tmp_path: Path) -> None:
    any_scope = {key: value for key, value in ROBOT.items() if key != "scopes"}
    async with protected_server() as server:
        account(server.authority)
        server.wants["resources/read"] = "more"
        async with connect(servers_file(tmp_path, server.url, any_scope)) as session:
            await read(session)


async def test_a_server_that_greets_anybody_and_then_wants_a_token_leads_to_the_login(tmp_path: Path) -> None:
    browser = Browser()
    async with protected_server() as server:
        server.greets_anybody = True
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=browser) as session:
            with pytest.raises(AuthorizationNeededError):
                await read(session)
        assert browser.visited == []
        async with connect(config, show_url=browser) as session:
            await read(session)
    assert len(browser.visited) == 1


async def test_the_scopes_of_the_file_are_asked_for_and_no_others(tmp_path: Path) -> None:
    async with protected_server() as server:
        auth = {"type": "oauth", "scopes": [SCOPE, "more"]}
        async with connect(servers_file(tmp_path, server.url, auth), show_url=Browser()):
            pass
        assert server.authority.asked_scopes == [[SCOPE, "more"]]


async def test_a_client_registered_by_hand_is_not_registered_again(tmp_path: Path) -> None:
    async with protected_server() as server, open_redirect(0, or_any=True) as free:
        port = int(free.url.split(":")[2].partition("/")[0])
        server.authority.clients["mine"] = OAuthClientInformationFull(
            client_id="mine",
            client_secret="hush",
            redirect_uris=[free.url],  # type: ignore[list-item]
            scope=SCOPE,
            token_endpoint_auth_method="client_secret_basic",
        )
        auth = {
            "type": "oauth",
            "client_id": "mine",
            "client_secret": "${SECRET}",
            "redirect_port": port,
        }
        config = servers_file(tmp_path, server.url, auth)
        await refused(config, show_url=Browser(), match="choose another auth\\.redirect_port")
    async with protected_server() as other:
        other.authority.clients = server.authority.clients
        async with connect(servers_file(tmp_path, other.url, auth), show_url=Browser()) as session:
            await read(session)
        assert "POST /register" not in other.requests
    assert "hush" not in "".join(file.read_text() for file in token_files(tmp_path))


async def test_a_refusal_in_the_browser_ends_the_connecting_with_its_reason(tmp_path: Path) -> None:
    async with protected_server() as server:
        server.authority.refuses = True
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        refusal = await refused(config, show_url=Browser(), match="denied in the browser \\(access_denied\\)")
    assert isinstance(refusal.__cause__, AccessDeniedError)


async def test_a_person_who_never_answers_is_waited_for_no_longer_than_the_limit(tmp_path: Path) -> None:
    async def nobody(url: str) -> None:
        return

    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        refusal = await refused(
            config, show_url=nobody, limits=Limits(authorization_seconds=0.5), match="nobody granted access"
        )
    assert isinstance(refusal.__cause__, DeadlineError)


async def test_only_the_answer_to_our_question_counts() -> None:
    async with open_redirect(0, or_any=True) as redirect, httpx2.AsyncClient() as client:
        early = await client.get(f"{redirect.url}?code=x&state=")
        redirect.expect("https://as/authorize?state=right")
        statuses = [
            early.status_code,
            (await client.get(f"{redirect.url}?code=evil&state=wrong")).status_code,
            (await client.get(f"{redirect.url}?code=evil")).status_code,
            (await client.get(redirect.url.replace("callback", "favicon.ico"))).status_code,
            (await client.post(f"{redirect.url}?code=evil&state=right")).status_code,
        ]
        assert statuses == [400, 400, 400, 404, 404]
        good = await client.get(f"{redirect.url}?code=good&state=right&iss=https://as")
        result = await redirect.wait()
    assert (result.code, result.iss, good.status_code) == ("good", "https://as", 200)
    assert "good" not in good.text


async def test_a_port_in_use_is_reported_or_another_one_is_used() -> None:
    async with open_redirect(0, or_any=True) as first:
        port = int(first.url.split(":")[2].partition("/")[0])
        with pytest.raises(UsageError, match="redirect_port"):
            async with open_redirect(port, or_any=False):
                raise AssertionError("listening")
        async with open_redirect(port, or_any=True) as second:
            assert second.url != first.url


def account(authority: Authority) -> None:
    authority.clients["robot"] = OAuthClientInformationFull(
        client_id="robot", client_secret="hush", redirect_uris=None, scope=SCOPE
    )


ROBOT = {"type": "client_credentials", "client_id": "robot", "client_secret": "${SECRET}", "scopes": [SCOPE]}


async def test_a_program_authenticates_with_its_own_credentials(tmp_path: Path) -> None:
    async with protected_server() as server:
        account(server.authority)
        config = servers_file(tmp_path, server.url, ROBOT)
        async with connect(config) as session:
            await read(session)
            server.authority.revoke_access()
            await read(session)
        async with connect(config) as session:
            await read(session)
    assert server.requests.count("POST /token") == 2
    (file,) = token_files(tmp_path)
    assert "hush" not in file.read_text()


async def test_wrong_credentials_say_what_to_check(tmp_path: Path) -> None:
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, ROBOT)
        said = r"check auth\.client_id, auth\.client_secret and auth\.scopes"
        refusal = await refused(config, match=said)
    assert isinstance(refusal.__cause__, AccessDeniedError)


@pytest.mark.parametrize("auth", [ROBOT, ROBOT | {"type": "oauth"}], ids=["program", "person"])
async def test_a_secret_is_not_sent_to_an_authorization_server_that_only_the_server_names(
    tmp_path: Path, auth: dict[str, Any]
) -> None:
    async with protected_server() as thief:
        thief_origin = thief.url.removesuffix("/mcp")
        async with protected_server(issuer=thief_origin) as server:
            config = servers_file(tmp_path, server.url, auth, playhead={"allow_origins": [thief_origin]})
            await refused(config, show_url=Browser(), match="set auth\\.issuer to it")
    assert not any(request.startswith("POST") for request in thief.requests)


async def test_an_issuer_that_the_user_names_is_trusted_with_the_secret(tmp_path: Path) -> None:
    async with protected_server() as issuer:
        origin = issuer.url.removesuffix("/mcp")
        account(issuer.authority)
        async with protected_server(issuer=origin) as server:
            server.authority.tokens = issuer.authority.tokens
            config = servers_file(
                tmp_path, server.url, ROBOT | {"issuer": origin}, playhead={"allow_origins": [origin]}
            )
            async with connect(config) as session:
                await read(session)


@pytest.mark.requirement("MCP-40")
async def test_metadata_does_not_lead_into_the_private_network(tmp_path: Path) -> None:
    async with (
        protected_server() as canary,
        protected_server(issuer=canary.url.removesuffix("/mcp")) as server,
    ):
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        await refused(config, show_url=Browser(), match="loopback")
    assert canary.requests == []


async def test_a_broken_token_file_is_named_and_not_quoted(tmp_path: Path) -> None:
    async with protected_server() as server:
        config = servers_file(tmp_path, server.url, {"type": "oauth"})
        async with connect(config, show_url=Browser()):
            pass
        (file,) = token_files(tmp_path)
        file.write_text('{"tokens": {"refresh_token": "hush"}}')
        refusal = await refused(config, show_url=Browser(), match="delete the file to log in again")
    assert isinstance(refusal.__cause__, ConfigError)
    assert "hush" not in str(refusal)


async def test_no_code_or_token_is_in_a_log_error_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with protected_server() as server:
        account(server.authority)
        for auth in ({"type": "oauth"}, ROBOT):
            config = servers_file(tmp_path, server.url, auth)
            said.append(repr(config) + repr(config.auth))
            async with connect(config, show_url=Browser()) as session:
                await read(session)
                server.authority.revoke_access()
                await read(session)
        server.authority.refuses = True
        server.authority.clients.clear()
        for file in token_files(tmp_path):
            file.unlink()
        for auth in ({"type": "oauth"}, ROBOT):
            refusal = await refused(servers_file(tmp_path, server.url, auth), show_url=Browser())
            said.append(str(refusal))
    # The browser's own lines are the test's, not playhead's.
    ours = [line for line in caplog.text.splitlines() if "/callback" not in line and "/authorize" not in line]
    everything = "\n".join(ours + said)
    assert "Traceback" not in everything
    for secret in [*server.authority.secrets, "hush"]:
        assert secret not in everything


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ({"type": "basic"}, "auth.type: expected one of bearer, oauth, client_credentials"),
        ({"token": "x"}, "'type' is missing"),
        ({"type": "bearer"}, "'token' is missing"),
        ({"type": "oauth", "client_secret": "x"}, "needs a client_id"),
        ({"type": "oauth", "redirect_port": 70000}, "from 1 to 65535"),
        ({"type": "oauth", "client_metadata_url": "https://host"}, "https URL of a document, with a path"),
        ({"type": "oauth", "client_metadata_url": "http://host/x"}, "https URL of a document, with a path"),
        ({"type": "oauth", "scope": ["x"]}, "did you mean 'scopes'"),
        ({"type": "oauth", "scopes": "x"}, "auth.scopes: expected an array"),
        ({"type": "client_credentials", "client_id": "x"}, "'client_secret' is missing"),
        (
            {"type": "client_credentials", "client_id": "x", "client_secret": "y", "issuer": "z"},
            "auth.issuer",
        ),
    ],
)
def test_a_mistake_in_auth_is_named(tmp_path: Path, auth: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        servers_file(tmp_path, "https://host/mcp", auth)
    assert said in str(caught.value)


def test_settings_are_data_and_show_nothing(tmp_path: Path) -> None:
    login = servers_file(tmp_path, "https://host/mcp", {"type": "oauth", "client_id": "x"}).auth
    robot = servers_file(tmp_path, "https://host/mcp", ROBOT).auth
    assert isinstance(login, OAuthLogin)
    assert isinstance(robot, ClientCredentials)
    assert login.token_folder == tmp_path / "data" / "playhead" / "oauth"
    assert "hush" not in repr(robot)


def test_auth_does_not_go_with_a_command(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    entry = {"command": "x", "auth": {"type": "bearer", "token": "hush"}}
    path.write_text(json.dumps({"mcpServers": {"it": entry}}), encoding="utf-8")
    with pytest.raises(ConfigError, match="in `env`") as caught:
        load_servers(path)
    assert "hush" not in str(caught.value)


def test_the_sdks_oauth_is_not_loaded_for_servers_that_need_none() -> None:
    program = (
        "import sys, playhead.client.hub; print([m for m in sys.modules if m.startswith('mcp.client.auth')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
