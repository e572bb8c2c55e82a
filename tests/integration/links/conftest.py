"""Sites as for dispatching."""

from __future__ import annotations

from tests.integration.dispatch.conftest import memory_site, shared_site, site

__all__ = ["memory_site", "shared_site", "site"]
