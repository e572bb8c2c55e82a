"""What a step gets, and what a task gives: values passed on as the JSON they are, never decoded on the way.

Pure: bytes in, bytes out. The plan is one that `plan_checks.py` has let through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from canoa.errors import InputMissing, PayloadTooLarge, Undecodable
from canoa.execution.plan import FromInput, FromStep, Given
from canoa.wire.nesting import MAX_DEPTH, json_is_too_deep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from canoa.execution.plan import Plan, Source, Step

MAX_JOINED_BYTES: Final = 8_000_000
"""Quoted inside a message it may be twice as long, and still below the 16 MiB that brokers take."""

FEW: Final = 8
"""Values that are joined before they are counted: none is much larger than a megabyte. Of many, no copy is made in
vain."""

SHOWN: Final = 8

COMPENSATION_KEYS: Final = frozenset({"input", "output"})
"""Of what a compensation gets: see `compensation_input`."""

_encode = msgspec.json.Encoder().encode
_raw = msgspec.json.Decoder(msgspec.Raw).decode
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def sound(text: str | bytes) -> bytes:
    """The same JSON as bytes, or `Undecodable`. For what comes from outside: everything else here trusts its input."""
    try:
        body = text.encode() if isinstance(text, str) else text
        if not isinstance(text, str):
            str(body, "utf-8")  # the decoder does not look inside the strings that it passes on
        if json_is_too_deep(body):
            raise Undecodable(f"the JSON is nested too deeply: more than {MAX_DEPTH} levels; flatten it")
        return bytes(_raw(body))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as exc:
        raise Undecodable(f"a text of {len(text):,} characters is not JSON: {exc}; check how it is encoded") from exc


def input_of(step: Step, task_input: bytes, outputs: Mapping[str, bytes]) -> bytes:
    """What the step is sent. `outputs` has at least what it waits for.

    Raises `InputMissing` and `PayloadTooLarge`: the step can never run, and is refused.
    """
    if step.arguments is None:
        return _waited_for(step, task_input, outputs)
    opened: dict[str | None, dict[str, msgspec.Raw]] = {}
    values = {name: _value(step.name, source, task_input, outputs, opened) for name, source in step.arguments.items()}
    return _joined("the input of step", step.name, values)


def _waited_for(step: Step, task_input: bytes, outputs: Mapping[str, bytes]) -> bytes:
    if not step.after:
        return task_input
    if len(step.after) == 1:
        return outputs[step.after[0]]
    return _by_step("the input of step", step.name, step.after, outputs)


def compensation_input(step: Step, task_input: bytes, outputs: Mapping[str, bytes], output: bytes | None) -> bytes:
    """What the compensation of the step is sent: what the step got and what it gave; None: nobody knows. Raises like
    `input_of`."""
    got = input_of(step, task_input, outputs)
    values = {"input": msgspec.Raw(got), "output": msgspec.Raw(b"null" if output is None else output)}
    return _joined("the input of the compensation of step", step.name, values)


def task_output(plan: Plan, names: Sequence[str], outputs: Mapping[str, bytes]) -> bytes:
    """The result of a task whose steps all succeeded. `names`: of its `final_steps`. Raises `PayloadTooLarge`."""
    if len(names) == 1:
        return outputs[names[0]]
    return _by_step("the result of plan", plan.name, names, outputs)


def final_steps(plan: Plan) -> list[str]:
    """Whose results are the task's: the one that the plan names, or the last ones."""
    if plan.output is not None:
        return [plan.output]
    waited_for = {name for step in plan.steps for name in step.after}
    return [step.name for step in plan.steps if step.name not in waited_for]


# --- Splicing -------------------------------------------------------------------------------------------


def _by_step(what: str, whose: str, names: Iterable[str], outputs: Mapping[str, bytes]) -> bytes:
    given = {name: outputs[name] for name in names}
    _check_size(what, whose, sum(map(len, given.values())))
    return _encoded(what, whose, {name: msgspec.Raw(output) for name, output in given.items()})


def _joined(what: str, whose: str, values: dict[str, msgspec.Raw]) -> bytes:
    if len(values) > FEW:
        _check_size(what, whose, sum(memoryview(each).nbytes for each in values.values()))
    return _encoded(what, whose, values)


def _encoded(what: str, whose: str, values: dict[str, msgspec.Raw]) -> bytes:
    joined = _encode(values)
    _check_size(what, whose, len(joined))
    return joined


def _check_size(what: str, whose: str, size_bytes: int) -> None:
    if size_bytes > MAX_JOINED_BYTES:
        remedy = "let steps give references (paths, URLs)"
        raise PayloadTooLarge(f"{what} {whose!r}", size_bytes, MAX_JOINED_BYTES, remedy=remedy)


def _value(
    step: str,
    source: Source,
    task_input: bytes,
    outputs: Mapping[str, bytes],
    opened: dict[str | None, dict[str, msgspec.Raw]],
) -> msgspec.Raw:
    """`opened`: what was already taken apart for this step, by where it came from (None: the task's input)."""
    if isinstance(source, Given):
        return msgspec.Raw(_encode(source.value))
    origin = source.step if isinstance(source, FromStep) else None
    body = task_input if origin is None else outputs[origin]
    if source.key is None:
        return msgspec.Raw(body)
    if origin not in opened:
        opened[origin] = _opened(step, source, body)
    if source.key not in opened[origin]:
        raise _no_key(step, source, opened[origin])
    return opened[origin][source.key]


def _opened(step: str, source: FromInput | FromStep, body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _keys(body)
    except msgspec.DecodeError as exc:
        raise InputMissing(
            f"step {step!r} needs key {source.key!r} of {_spell(source)}, which is no object: {exc}; "
            f"give an object there, or take the whole"
        ) from exc


def _no_key(step: str, source: FromInput | FromStep, found: Mapping[str, object]) -> InputMissing:
    names = [f"{each!r:.80}" for each in list(found)[:SHOWN]] + (["…"] if len(found) > SHOWN else [])
    return InputMissing(
        f"step {step!r} needs key {source.key!r} of {_spell(source)}, which has "
        f"{', '.join(names) or 'no keys'}; add it there, or change the plan"
    )


def _spell(source: FromInput | FromStep) -> str:
    return f"what step {source.step!r} gave" if isinstance(source, FromStep) else "the task's input"
