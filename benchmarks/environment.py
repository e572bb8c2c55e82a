"""What the harness tells the processes it starts, and where they find it.

Environment variables, since a worker's command line belongs to the task system that is measured.
"""

from __future__ import annotations

import os

BROKER = "BENCH_BROKER"
"""AMQP URL of the private RabbitMQ."""

REDIS = "BENCH_REDIS"
"""URL of the private Redis: results, for those who cannot return them over RabbitMQ."""

STORE = "BENCH_STORE"
"""URL of the database that keeps results: `sqlite:////…` or `postgresql://…`."""

MQTT = "BENCH_MQTT"
"""URL of the private Mosquitto, or of RabbitMQ's MQTT plugin."""

HTTP = "BENCH_HTTP"
"""URL at which a bare HTTP server is to listen."""

RESULTS = "BENCH_RESULTS"
"""Set when the session wants results; otherwise result backends stay unconfigured, which is faster."""

STAMPS = "BENCH_STAMPS"
"""Folder for the workers' time stamps; see `stamps.py`."""

STEP = "BENCH_STEP"
"""How many actions lie between two time stamps."""

PACE = "BENCH_PACE"
"""Seconds that an attempt takes at this node."""

SLOW = "BENCH_SLOW"
"""A file: once it is there, nodes of the pace that it names are slow."""


def broker_url() -> str:
    return os.environ[BROKER]


def redis_url() -> str:
    return os.environ[REDIS]


def store_url() -> str:
    return os.environ[STORE]


def mqtt_url() -> str:
    return os.environ[MQTT]


def http_url() -> str:
    return os.environ[HTTP]


def wants_results() -> bool:
    return RESULTS in os.environ
