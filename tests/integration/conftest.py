"""Fixtures for all tests with real parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.integration.traced import Traced, used

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    """OpenTelemetry is in use, as if the program had set a provider."""
    provider = TracerProvider(shutdown_on_exit=False)
    yield used(monkeypatch, provider)
    provider.shutdown()
