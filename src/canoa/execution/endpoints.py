"""Which endpoints of nodes a manager may call. Pure: what was said and set in, a refusal or none out.

An endpoint comes with a registration, so from anybody who reaches a manager; the setting `node_endpoints` says where
nodes are. Who looks names up, and connects, is `transports/calling.py`.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from canoa.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT: Final = "loopback,private"
NONE: Final = "none"

ENTRIES: Final = r"[A-Za-z0-9_.:/-]+(\s*,\s*[A-Za-z0-9_.:/-]+)*"
"""How a list looks; what each of its entries means, `parse_endpoints` finds out."""

MAX_ENDPOINTS: Final = 16_384
"""That are kept as they were read: more than there are nodes, since each is read again with every message."""

_WORDS: Final = {
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}
_NAME: Final = re.compile(r"\.?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
MAX_NAME_CHARS: Final = 253
"""Of a name, as of its parts above: whoever looks up a longer one fails over it."""
_NUMERIC: Final = re.compile(r"[0-9.]+|.*:.*")
_PATH: Final = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")

_METADATA: Final = "where clouds tell machines their secrets"
_NEVER: Final = {
    "0.0.0.0/8": "no address of anybody",
    "::/128": "no address of anybody",
    "169.254.0.0/16": f"link-local, {_METADATA}",
    "fe80::/10": "link-local",
    "224.0.0.0/4": "multicast",
    "ff00::/8": "multicast",
    "240.0.0.0/4": "reserved",
    "100.100.100.200/32": _METADATA,
    "168.63.129.16/32": _METADATA,
    "192.0.0.192/32": _METADATA,
    "fd00:ec2::/32": _METADATA,
    "fd00:c1::a9fe:a9fe/128": _METADATA,
    "fd20:ce::254/128": _METADATA,
}
"""Whatever the setting says. The clouds have such addresses also outside of what is link-local."""

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")


class Reason(enum.StrEnum):
    """Why an endpoint is not called: a metric's label."""

    MALFORMED = "malformed"
    SCHEME = "scheme"
    USERINFO = "userinfo"
    NEVER = "never"  # by nobody, whatever is set
    OWN = "own"  # this manager listens there
    FOREIGN = "foreign"  # outside of what is set


class Refusal(NamedTuple):
    reason: Reason
    why: str


class Endpoint(NamedTuple):
    """Where messages can be posted. `host`: in lower case, an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    path: str
    is_address: bool  # written out, so there is nothing to look up


class Allowed(NamedTuple):
    """What the setting says."""

    networks: tuple[IpNetwork, ...]
    names: frozenset[str]
    suffixes: tuple[str, ...]
    text: str  # as it was written, for people

    def has_name(self, host: str) -> bool:
        bare = host.rstrip(".")
        return bare in self.names or bare.endswith(self.suffixes)

    @property
    def is_everything(self) -> bool:
        return any(network.prefixlen == 0 for network in self.networks)


def parse_endpoints(name: str, text: str) -> Allowed:
    """From `loopback,private,10.1.0.0/16,gw.example,.nodes.example`, or `none`. Raises `SettingError`, under that
    name."""
    entries = [each.strip().lower() for each in text.split(",")]
    if entries == [NONE]:
        return Allowed((), frozenset(), (), text)
    networks: list[IpNetwork] = []
    names: list[str] = []
    for entry in entries:
        if entry in _WORDS:
            networks += map(ipaddress.ip_network, _WORDS[entry])
        elif _NAME.fullmatch(entry) and not _NUMERIC.fullmatch(entry) and entry != NONE:
            names.append(entry)
        else:
            networks.append(_network(name, entry))
    exact = frozenset(each for each in names if not each.startswith("."))
    return Allowed(tuple(networks), exact, tuple(each for each in names if each.startswith(".")), text)


def _network(name: str, entry: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(entry)
    except ValueError as exc:
        raise SettingError(
            f"{name} has {entry!r:.60} ({exc}); use loopback, private, networks such as 10.1.0.0/16, addresses, names, "
            f"and endings of names such as .nodes.example, by comma; or none"
        ) from exc


@lru_cache(maxsize=MAX_ENDPOINTS)
def read_endpoint(text: str) -> Endpoint | Refusal | None:
    """None: it is no URL at all, but a name that says nothing to a manager."""
    if "://" not in text:
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as exc:
        return Refusal(Reason.MALFORMED, f"it cannot be read: {exc}")
    if parts.scheme not in ("http", "https"):
        return Refusal(Reason.SCHEME, "its scheme is neither http nor https")
    if "@" in parts.netloc:
        return Refusal(Reason.USERINFO, "it has a user or a password in it")
    is_bare = "?" not in text and "#" not in text and _PATH.fullmatch(parts.path) is not None
    if port == 0 or not is_bare or not _is_host(host):
        return Refusal(Reason.MALFORMED, "it is not http://host:port, with a path at most")
    port = port or (443 if parts.scheme == "https" else 80)
    return Endpoint(parts.scheme, host, port, parts.path.rstrip("/"), _address(host) is not None)


def _is_host(host: str) -> bool:
    """Numbers that are no address in full (`127.1`, `2130706433`) would still be taken for one by some."""
    if _NUMERIC.fullmatch(host):
        return _address(host) is not None and "%" not in host
    name = host.removesuffix(".")
    return len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name) is not None and not name.startswith(".")


class EndpointRule:
    """`own_ports`: where this program listens. `is_ours`: whether an address is this machine's."""

    def __init__(
        self, allowed: Allowed, *, own_ports: frozenset[int] = frozenset(), is_ours: Callable[[IpAddress], bool]
    ) -> None:
        self.allowed = allowed
        self._own_ports = own_ports
        self._is_ours = is_ours
        self._never = {ipaddress.ip_network(network): why for network, why in _NEVER.items()}

    def judge(self, host: str, address: str, port: int) -> Refusal | None:
        """`address`: at which the host was found, or the host itself."""
        return self.never(address, port) or self._foreign(host, address)

    def never(self, address: str, port: int) -> Refusal | None:
        """What holds wherever a name leads to, and whatever is set."""
        found = _address(address)
        if found is None:
            return Refusal(Reason.MALFORMED, f"{address!r:.80} is no address")
        for each in (found, _inner(found)):
            why = next((why for network, why in self._never.items() if each in network), None)
            if why is not None:
                return Refusal(Reason.NEVER, f"{address} is {why}; managers never call it")
        if port in self._own_ports and self._is_ours(found):
            return Refusal(Reason.OWN, f"{address}, port {port}, is where this manager itself listens")
        return None

    def _foreign(self, host: str, address: str) -> Refusal | None:
        found = _address(address)
        is_within = any(found in network for network in self.allowed.networks)
        if is_within or self.allowed.has_name(host):
            return None
        what = address if host == address else f"{host} is {address}, which"
        text = f"{what} is not among node_endpoints={self.allowed.text}; add it there if nodes of yours are there"
        return Refusal(Reason.FOREIGN, text)


def _address(text: str) -> IpAddress | None:
    """As it is connected to: IPv4 in the clothes of IPv6 is IPv4."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, ipaddress.IPv6Address) else found


def _inner(address: IpAddress) -> IpAddress:
    """Where a translator or a tunnel would bring it."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64 or (address in _V4_COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour or (address.teredo[1] if address.teredo else address)
