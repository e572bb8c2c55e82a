"""What a check says."""

from __future__ import annotations

import enum

import msgspec


class Verdict(enum.StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, and will not for ever or not as well as it could
    PROBLEM = "problem"  # it does not work


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at. Neither text holds a secret."""

    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, verdict=Verdict.OK, found=found)


def warning(check: str, found: str, remedy: str) -> Finding:
    return Finding(check=check, verdict=Verdict.WARNING, found=found, remedy=remedy)


def problem(check: str, found: str, remedy: str = "") -> Finding:
    """Errors of Canoa bring their remedy with them."""
    return Finding(check=check, verdict=Verdict.PROBLEM, found=found, remedy=remedy)
