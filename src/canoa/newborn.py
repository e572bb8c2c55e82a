"""The process of a `cpu=True` action imports the main module first: starting the program there would run it again."""

from __future__ import annotations

import sys

from canoa.errors import WrongUse


def refuse_in_a_child_that_is_being_born() -> None:
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and getattr(processes.current_process(), "_inheriting", False):
        raise WrongUse(
            "the process of a cpu=True action imports your main module, which starts the program again; "
            'put what starts it under `if __name__ == "__main__":`'
        )
