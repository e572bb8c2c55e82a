"""How findings are shown: one line each and one for the remedy, or JSON; and how a command that found them ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from canoa.cli import output
from canoa.doctor.finding import Finding, Verdict

_STYLES: Final = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.PROBLEM: "bold red"}


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """On stdout; in colour for a person who did not ask for none (`NO_COLOR`)."""
    if as_json:
        output.data({"ok": exit_code(findings) == 0, "findings": findings})
        return
    from rich.console import Console  # a quarter of what every other command would take to start
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, markup=False)
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        head = (f"{finding.verdict:<8}", _STYLES[finding.verdict])
        console.print(Text.assemble(head, f" {finding.check:<{width}}  {finding.found}"), soft_wrap=True)
        if finding.remedy:
            console.print(f"{'':<8} {'':<{width}}  → {finding.remedy}", soft_wrap=True)


def exit_code(findings: Sequence[Finding]) -> int:
    return output.WENT_WRONG if any(finding.verdict is Verdict.PROBLEM for finding in findings) else 0
