"""Fixtures for all tests: the ones that Canoa ships."""

import signal

pytest_plugins = ["canoa.testing.pytest_plugin"]

# A shell starts what runs in the background with SIGINT ignored, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
