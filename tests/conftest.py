"""Fixtures for all tests: the ones that Canoa ships."""

from __future__ import annotations

import gc
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.order import alternating

if TYPE_CHECKING:
    from collections.abc import Generator

pytest_plugins = ["canoa.testing.pytest_plugin"]

# A shell starts what runs in the background with SIGINT ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How quickly examples are made and run says how busy the machine is, and nothing about the code.
settings.register_profile("canoa", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("canoa")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = alternating(items, Path(__file__).parent)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: looking through it for garbage, again and again, took a tenth of
    a quick run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
