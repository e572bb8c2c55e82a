"""Fixtures for all tests: the ones that Canoa ships."""

pytest_plugins = ["canoa.testing.pytest_plugin"]
