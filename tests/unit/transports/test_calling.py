"""A manager connects only where it may: to the very address that was checked, and nowhere else.

Connections are made by a stand-in that writes down where they would go, as the HTTP library's own would be asked; what
is on this machine is called for real.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult
from tests.unit.manager.words import node

from canoa.broker.port import Message
from canoa.errors import Unroutable
from canoa.execution.endpoints import DEFAULT, Reason, parse_endpoints
from canoa.transports import calling
from canoa.transports.calling import Caller, NotCalled
from canoa.transports.http import HttpTransport
from canoa.vocabulary import HTTP, MQTT_UNHEARD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from canoa.broker.port import PublishOutcome
    from canoa.store.routed_port import NodeRow

METADATA = "169.254.169.254"
FOREIGN = "203.0.113.7"


class Names(AbstractResolver):
    """Knows some names, and what it was asked; one that changes its mind has several answers."""

    def __init__(self, **names: list[list[str]]) -> None:
        self.names = {name.replace("_", "."): answers for name, answers in names.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self.names.get(host)
        if answers is None:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in addresses
        ]

    async def close(self) -> None: ...


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that would have been connected to. None is."""
    places: list[str] = []

    async def start_connection(addr_infos: list[Any], *, socket_factory: Any, **_: Any) -> socket.socket:
        for info in addr_infos:
            socket_factory(info).close()
            places.append(info[4][0])
        raise ConnectionRefusedError("nobody is there")

    monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", start_connection)
    return places


def web_node(endpoint: str, **facts: Any) -> NodeRow:
    return node("gw-7", **({"endpoint": endpoint, "protocol": HTTP} | facts))


async def called(caller: Caller, endpoint: str) -> Reason | None:
    """Why it was not; None: it was tried."""
    try:
        async with caller.call("GET", web_node(endpoint), "/actuator/health"):
            pass
    except NotCalled as exc:
        return exc.refusal.reason
    except aiohttp.ClientConnectorError:
        pass
    finally:
        await caller.aclose()
    return None


def new_caller(text: str = DEFAULT, *own_ports: int, names: Names | None = None) -> Caller:
    allowed = parse_endpoints("node_endpoints", text)
    return Caller(allowed, own_ports=frozenset(own_ports), resolver=names or Names())


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        (f"http://{METADATA}/latest", Reason.NEVER),
        (f"http://[::ffff:{METADATA}]/", Reason.NEVER),
        (f"http://{FOREIGN}/", Reason.FOREIGN),
        ("http://user:pass@127.0.0.1/", Reason.USERINFO),
        ("gopher://127.0.0.1/", Reason.SCHEME),
        ("http://2130706433/", Reason.MALFORMED),
        ("gw-7", Reason.MALFORMED),
        ("http://127.0.0.1:8420/", Reason.OWN),
    ],
)
async def test_an_endpoint_that_is_refused_is_not_connected_to(tried: list[str], endpoint: str, reason: Reason) -> None:
    assert await called(new_caller(DEFAULT, 8420), endpoint) is reason
    assert tried == []


async def test_what_is_allowed_is_connected_to(tried: list[str]) -> None:
    assert await called(new_caller(), "http://127.0.0.2:9/") is None
    assert tried == ["127.0.0.2"]


@pytest.mark.parametrize(("address", "reason"), [(METADATA, Reason.NEVER), (FOREIGN, Reason.FOREIGN)])
async def test_a_name_that_leads_where_nobody_may_go_is_not_connected_to(
    tried: list[str], address: str, reason: Reason
) -> None:
    assert await called(new_caller(names=Names(gw_example=[[address]])), "http://gw.example/") is reason
    assert tried == []


async def test_of_a_names_addresses_only_those_that_are_allowed_are_connected_to(tried: list[str]) -> None:
    names = Names(gw_example=[[METADATA, "127.0.0.3", FOREIGN]])

    assert await called(new_caller(names=names), "http://gw.example/") is None
    assert tried == ["127.0.0.3"]


async def test_a_listed_name_is_called_wherever_it_leads_but_never_to_what_is_never_called(tried: list[str]) -> None:
    assert await called(new_caller("gw.example", names=Names(gw_example=[[FOREIGN]])), "http://gw.example/") is None
    assert (
        await called(new_caller("gw.example", names=Names(gw_example=[[METADATA]])), "http://gw.example/")
        is Reason.NEVER
    )
    assert tried == [FOREIGN]


async def test_a_name_that_changes_between_the_look_and_the_call_leads_nowhere(tried: list[str]) -> None:
    names = Names(gw_example=[["127.0.0.1"], [METADATA]])
    caller, row = new_caller(names=names), web_node("http://gw.example/")

    await caller.look_up(row)
    assert caller.may_call(row)

    assert await called(caller, row.endpoint) is Reason.NEVER
    assert tried == []


async def test_the_address_that_was_checked_is_the_one_connected_to(tried: list[str]) -> None:
    """One look per call: a second one might be answered otherwise."""
    names = Names(gw_example=[["127.0.0.4"], [METADATA]])

    assert await called(new_caller(names=names), "http://gw.example/") is None
    assert (tried, names.asked) == (["127.0.0.4"], ["gw.example"])


async def test_a_socket_is_not_made_for_what_is_never_called_whoever_asks_for_it() -> None:
    """The last look, should the library get an address from elsewhere than its resolver."""
    caller = new_caller("0.0.0.0/0")

    for address in (METADATA, "2130706433"):
        with pytest.raises(NotCalled):
            caller._new_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (address, 80)))
    await caller.aclose()


async def test_a_name_is_tried_again_when_its_refusal_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(gw_example=[[METADATA], ["127.0.0.1"]])
    caller, row = new_caller(names=names), web_node("http://gw.example:81")

    await caller.look_up(row)
    assert not caller.may_call(row)
    assert caller.may_call(web_node("http://gw.example:82"))  # of which nobody knows anything yet

    monkeypatch.setattr(calling, "REMEMBERED_S", 0.0)
    assert caller.may_call(row)
    await caller.aclose()


async def test_a_name_that_nobody_knows_is_nobodys_fault() -> None:
    caller, row = new_caller(), web_node("http://nowhere.example")

    await caller.look_up(row)

    assert caller.may_call(row)
    await caller.aclose()


async def test_names_that_nobody_answers_for_hold_up_neither_registrations_nor_all_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Mute(Names):
        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[ResolveResult]:
            self.asked.append(host)
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(calling, "LOOK_UP_WITHIN_S", 0.05)
    names = Mute()
    caller = new_caller(names=names)
    rows = [web_node(f"http://n{number}.example") for number in range(3 * calling.MAX_LOOK_UPS)]

    async with asyncio.timeout(5):
        await asyncio.gather(*map(caller.look_up, rows))

    assert len(names.asked) == calling.MAX_LOOK_UPS
    assert all(map(caller.may_call, rows))
    await caller.aclose()


async def test_a_refusal_is_counted_each_time_and_said_once_of_every_node_and_endpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caller = new_caller()
    for endpoint in (f"http://{METADATA}", f"http://{METADATA}", f"http://{FOREIGN}"):
        row = web_node(endpoint)
        refusal = caller.refusal(row)
        assert refusal is not None
        caller.note(row, refusal)

    assert caller.refused == {"never": 2, "foreign": 1}
    assert caplog.text.count("endpoint_refused") == 2
    await caller.aclose()


async def test_a_node_that_is_reached_otherwise_may_call_its_endpoint_what_it_likes() -> None:
    caller = new_caller()

    assert caller.refusal(web_node("amqp://gw-7", protocol="AMQP")) is None
    assert caller.refusal(web_node("amqp://gw-7", protocol="")) is not None
    assert caller.keeps_away(web_node(f"http://{METADATA}", ways=("AMQP", HTTP), protocol="AMQP")) is None
    await caller.aclose()


async def test_a_topic_at_which_a_node_was_not_heard_yet_is_no_other_way() -> None:
    caller = new_caller()

    assert caller.keeps_away(web_node(f"http://{METADATA}", ways=(MQTT_UNHEARD, HTTP))) is not None
    await caller.aclose()


# --- For real, on this machine -------------------------------------------------------------------------------


class Device:
    """Listens at an address of this machine, and writes down who came."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.addresses: list[str] = []
        self.status = 202
        self.headers: dict[str, str] = {}

    async def on_request(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        self.paths.append(request.path)
        self.addresses.append(request.transport.get_extra_info("sockname")[0])
        return web.Response(status=self.status, headers=self.headers)


@pytest.fixture
async def device() -> AsyncIterator[tuple[Device, int]]:
    """At 127.0.0.1 and 127.0.0.2, on one port."""
    found = Device()
    app = web.Application()
    app.router.add_route("*", "/{any:.*}", found.on_request)
    runner = web.AppRunner(app)
    await runner.setup()
    first = web.TCPSite(runner, "127.0.0.1", 0)
    await first.start()
    port = runner.addresses[0][1]
    await web.TCPSite(runner, "127.0.0.2", port).start()
    yield found, port
    await runner.cleanup()


async def test_a_name_is_called_at_the_address_that_is_allowed(device: tuple[Device, int]) -> None:
    found, port = device
    caller = new_caller("127.0.0.2", names=Names(gw_example=[["127.0.0.1", "127.0.0.2"]]))

    async with caller.call("GET", web_node(f"http://gw.example:{port}/node/7"), "/actuator/health") as answer:
        assert answer.status == 202

    assert (found.paths, found.addresses) == (["/node/7/actuator/health"], ["127.0.0.2"])
    await caller.aclose()


async def test_a_redirection_is_not_followed(device: tuple[Device, int]) -> None:
    found, port = device
    found.status, found.headers = 302, {"Location": f"http://127.0.0.1:{port}/elsewhere"}
    caller = new_caller()

    async with caller.call("GET", web_node(f"http://127.0.0.2:{port}"), "/actuator/health") as answer:
        assert answer.status == 302

    assert found.paths == ["/actuator/health"]
    await caller.aclose()


@pytest.mark.parametrize(("text", "is_called"), [("127.0.0.2", True), ("127.0.0.1", False)])
async def test_looks_and_messages_go_only_where_the_setting_allows(
    device: tuple[Device, int], text: str, is_called: bool
) -> None:
    found, port = device
    caller = new_caller(text)
    transport, row = HttpTransport(caller), web_node(f"http://127.0.0.2:{port}")

    assert transport.may_reach(row) is is_called
    assert await transport.listeners(row) == int(is_called)
    outcome = await posted(transport, row)

    assert (outcome is None) is is_called
    assert isinstance(outcome, Unroutable) is not is_called
    assert found.paths == (["/actuator/health", "/sapparchi/messages"] if is_called else [])
    assert caller.refused == ({} if is_called else {"foreign": 2})
    await transport.aclose()
    await caller.aclose()


async def posted(transport: HttpTransport, row: NodeRow) -> PublishOutcome:
    told: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
    transport.post(row, [Message(body=b"{}")], lambda _, outcome: told.set_result(outcome))
    return await told
