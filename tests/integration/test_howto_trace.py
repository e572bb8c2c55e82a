"""The page on tracing tells the truth: its program prints what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "trace.md").read_text()
PROGRAM = re.compile(r"```python\n# traced.py\n(.*?)```.*?```text\n(.*?)```", re.DOTALL)


def test_the_program_of_the_page_prints_its_spans() -> None:
    found = PROGRAM.search(PAGE)
    assert found is not None

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", found[1]], capture_output=True, text=True, timeout=60, check=False
    )

    assert (run.stdout, run.stderr) == (found[2], "")
