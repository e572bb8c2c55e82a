"""The words every part shares: layers, ways to choose and to drop, roles, and the ids of tasks, nodes and actions.

Values and types only; how they travel is in `wire/`, what is done with them in the features.
"""

from __future__ import annotations

import enum
from typing import Final, NewType

TaskId = NewType("TaskId", str)
NodeId = NewType("NodeId", str)
ActionName = NewType("ActionName", str)
"""An action's name as `<app>.<name>`: what follows `urn:sapparchi:Action:` in its URN."""


AMQP: Final = "AMQP"
MQTT: Final = "MQTT"
MQTT_LINK: Final = "MQTT-LINK"
MQTT_UNHEARD: Final = "MQTT-UNHEARD"
HTTP: Final = "HTTP"
"""Ways to a node: through its queue; the topic it subscribed to, through the managers' own broker, or through another
one that speaks nothing but MQTT, or, as it says, at one of these where it was not heard yet; or its address."""
TOPICS: Final = frozenset({MQTT, MQTT_LINK})
"""Those where nobody can look who is there."""


def protocol_of(way: str) -> str:
    """As nodes and people say it."""
    return way.partition("-")[0]


class Role(enum.StrEnum):
    """What whoever shows a token may do over the API; which operation needs which is in `api/roles.py`."""

    VIEWER = "viewer"  # looks
    OPERATOR = "operator"  # also submits, cancels, runs again, registers plans
    ADMIN = "admin"  # also makes tokens and revokes them
    NODE = "node"  # joins, and answers; nothing else


class Routing(enum.StrEnum):
    """How a manager chooses among the nodes that can run an action. The values are spelled as on the wire."""

    ROUND_ROBIN = "round_robin"
    LEAST_LOADED = "least_loaded"
    POWER_OF_TWO = "power_of_two"
    LEARNED = "learned"


class Drop(enum.StrEnum):
    """What gives way when a node's outbox has no room."""

    OLDEST = "oldest"  # what has waited longest: fresh answers are more likely to be waited for
    NEWEST = "newest"  # the one that comes
    REFUSE = "refuse"  # nothing: the answer stays with its delivery, and the node takes no more than it can hold


class Layer(enum.StrEnum):
    """Where a node stands. The values are spelled as on the wire."""

    EDGE = "EDGE"
    FOG = "FOG"
    CLOUD = "CLOUD"

    @classmethod
    def _missing_(cls, value: object) -> Layer | None:
        """People write `edge` in their settings."""
        return cls.__members__.get(value.upper()) if isinstance(value, str) else None
