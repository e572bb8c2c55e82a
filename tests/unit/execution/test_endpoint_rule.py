"""Which endpoints of nodes may be called: what the setting allows, and what nothing allows."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.errors import SettingError
from canoa.execution.endpoints import (
    DEFAULT,
    Endpoint,
    EndpointRule,
    IpAddress,
    Reason,
    Refusal,
    parse_endpoints,
    read_endpoint,
)

EVERYTHING = "0.0.0.0/0,::/0"
OURS = frozenset({ip_address("10.0.0.5"), ip_address("127.0.0.1")})


def rule(text: str = DEFAULT, *own_ports: int) -> EndpointRule:
    def is_ours(address: IpAddress) -> bool:
        return address in OURS

    return EndpointRule(parse_endpoints("node_endpoints", text), own_ports=frozenset(own_ports), is_ours=is_ours)


def reason(address: str, text: str = DEFAULT, *, host: str = "", port: int = 8430) -> Reason | None:
    refusal = rule(text).judge(host or address, address, port)
    return None if refusal is None else refusal.reason


# --- What the setting allows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "172.31.0.9", "192.168.7.7", "fd12::7", "::ffff:10.1.2.3"]
)
def test_by_default_nodes_of_this_machine_and_of_private_networks_are_called(address: str) -> None:
    assert reason(address) is None


@pytest.mark.parametrize(
    "address", ["203.0.113.7", "172.32.0.1", "100.64.0.1", "2001:db8::7", "::ffff:203.0.113.7", "64:ff9b::a01:203"]
)
def test_by_default_nobody_else_is_called(address: str) -> None:
    assert reason(address) is Reason.FOREIGN


@pytest.mark.parametrize(
    ("text", "address", "is_allowed"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.1.0.0/16, loopback", "10.1.9.9", True),
        ("10.1.0.0/16, loopback", "10.2.0.1", False),
        ("10.1.0.0/16, loopback", "::1", True),
        ("203.0.113.0/24", "203.0.113.7", True),
        ("none", "127.0.0.1", False),
        (EVERYTHING, "203.0.113.7", True),
    ],
)
def test_networks_and_addresses_are_called_as_listed(text: str, address: str, is_allowed: bool) -> None:
    assert (reason(address, text) is None) == is_allowed


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("gw.example", True),
        ("gw.example.", True),
        ("a.nodes.example", True),
        ("a.b.nodes.example", True),
        ("nodes.example", False),
        ("evilnodes.example", False),
        ("gw.example.evil.test", False),
    ],
)
def test_names_that_are_listed_are_called_wherever_they_lead(host: str, is_allowed: bool) -> None:
    assert (reason("203.0.113.7", "gw.example,.nodes.example", host=host) is None) == is_allowed


def test_a_refusal_says_what_to_set() -> None:
    refusal = rule().judge("gw.example", "203.0.113.7", 80)

    assert refusal is not None
    assert refusal.why.startswith("gw.example is 203.0.113.7, which is not among node_endpoints=loopback,private; add")


@pytest.mark.parametrize(
    "text", ["10.0.0.0/99", "10.0.0.5/8", "loopback,", "none,private", "127.1", "gw:80", "a b", ""]
)
def test_a_list_that_cannot_be_read_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(SettingError, match="node_endpoints has"):
        parse_endpoints("node_endpoints", text)


# --- What nothing allows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
        "fe80::1",
        "fe80::1%2",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
        "255.255.255.255",
    ],
)
@pytest.mark.parametrize("text", [DEFAULT, EVERYTHING, "gw.example"])
def test_metadata_link_local_multicast_and_no_address_are_never_called(address: str, text: str) -> None:
    assert reason(address, text, host="gw.example") is Reason.NEVER


def test_a_managers_own_ports_are_never_called_on_its_own_machine() -> None:
    guarded = rule(EVERYTHING, 8420)

    assert [guarded.judge(each, each, 8420) is None for each in ("10.0.0.5", "::ffff:127.0.0.1", "10.0.0.6")] == [
        False,
        False,
        True,
    ]
    assert guarded.judge("10.0.0.5", "10.0.0.5", 8430) is None


@pytest.mark.parametrize("address", ["2130706433", "127.1", "0x7f.1", "localhost", ""])
def test_what_is_no_address_in_full_is_never_connected_to(address: str) -> None:
    refusal = rule(EVERYTHING).never(address, 80)

    assert refusal is not None
    assert refusal.reason is Reason.MALFORMED


# --- What was said -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("http://10.1.2.3:8430", Endpoint("http", "10.1.2.3", 8430, "", True)),
        ("https://GW.example/", Endpoint("https", "gw.example", 443, "", False)),
        ("http://[::1]/node/7/", Endpoint("http", "::1", 80, "/node/7", True)),
        ("http://meters/a%20b", Endpoint("http", "meters", 80, "/a%20b", False)),
    ],
)
def test_an_endpoint_is_read_as_it_will_be_called(text: str, endpoint: Endpoint) -> None:
    assert read_endpoint(text) == endpoint


@pytest.mark.parametrize("text", ["", "gw-7", "10.1.2.3:8430", "cellar:9"])
def test_what_is_no_url_is_no_address_and_nobodys_fault(text: str) -> None:
    assert read_endpoint(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ftp://10.1.2.3/", Reason.SCHEME),
        ("file:///etc/passwd", Reason.SCHEME),
        ("http://user@10.1.2.3/", Reason.USERINFO),
        ("http://user:secret@10.1.2.3/", Reason.USERINFO),
        ("http://@10.1.2.3/", Reason.USERINFO),
        ("http://127.0.0.1\\@169.254.169.254/", Reason.USERINFO),
        ("http://10.1.2.3:0", Reason.MALFORMED),
        ("http://10.1.2.3:99999", Reason.MALFORMED),
        ("http://10.1.2.3/?a=b", Reason.MALFORMED),
        ("http://10.1.2.3/?", Reason.MALFORMED),
        ("http://10.1.2.3/#", Reason.MALFORMED),
        ("http://127.1/", Reason.MALFORMED),
        ("http://2130706433/", Reason.MALFORMED),
        ("http://0x7f000001/a b", Reason.MALFORMED),
        ("http://[fe80::1%25eth0]/", Reason.MALFORMED),
        ("http://[::1/", Reason.MALFORMED),
        ("http:///sapparchi", Reason.MALFORMED),
        ("http://ex ample/", Reason.MALFORMED),
        (f"http://{'a' * 64}.example/", Reason.MALFORMED),
        (f"http://{'a.' * 127}example/", Reason.MALFORMED),
        ("http://localhost../", Reason.MALFORMED),
        ("http://ex\u00e4mple/", Reason.MALFORMED),
        ("http://\u0661\u0662\u0667.0.0.1/", Reason.MALFORMED),
    ],
)
def test_a_url_that_is_not_called_says_why(text: str, expected: Reason) -> None:
    found = read_endpoint(text)

    assert isinstance(found, Refusal)
    assert found.reason is expected


@given(st.text(max_size=40) | st.from_regex(r"https?://[\[\]0-9a-f.:%@/\\?#-]{0,40}", fullmatch=True))
def test_no_text_breaks_the_reader_and_what_it_takes_is_whole(text: str) -> None:
    found = read_endpoint(text)

    if isinstance(found, Endpoint):
        assert found.host.isascii()
        assert not set(found.host) & set("@%/\\?# ")
        assert 0 < found.port < 65536
        rule().judge(found.host, found.host if found.is_address else "127.0.0.1", found.port)
