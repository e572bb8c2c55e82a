"""What a test needs to meet the real world: private brokers and databases, bad links, a clock that obeys.

Fixtures for pytest are in `canoa.testing.pytest_plugin`, which alone needs pytest.
"""

from canoa.testing.clock import VirtualClock
from canoa.testing.mosquitto import MosquittoFailed, MosquittoMissing, MosquittoNode
from canoa.testing.ports import PortTaken, free_port
from canoa.testing.postgres import PostgresFailed, PostgresNode
from canoa.testing.postgres_setup import PostgresMissing
from canoa.testing.proxy import TcpProxy
from canoa.testing.rabbitmq import RabbitFailed, RabbitNode
from canoa.testing.rabbitmq_setup import RabbitMissing

__all__ = [
    "MosquittoFailed",
    "MosquittoMissing",
    "MosquittoNode",
    "PortTaken",
    "PostgresFailed",
    "PostgresMissing",
    "PostgresNode",
    "RabbitFailed",
    "RabbitMissing",
    "RabbitNode",
    "TcpProxy",
    "VirtualClock",
    "free_port",
]
