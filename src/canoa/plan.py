"""Plans in Python: steps are added like calls, and what one gives is an argument of the next.

    plan = app.plan("power-factor")
    data = plan.step(fetch_data, url=plan.input["url"])
    pf = plan.step(power_factor, data)
    plan.step(report, pf, data)

Nothing runs here. What a plan is once built is in `execution/plan.py`; managers run it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import msgspec

from canoa.action import Action, Options
from canoa.compensating import check_compensation, check_compensations
from canoa.errors import ArgumentsRefused, PlanRefused, WrongUse
from canoa.execution import plan as values
from canoa.execution.plan_checks import checked
from canoa.execution.plan_inputs import final_steps
from canoa.execution.plan_reading import MAX_STEP_CHARS
from canoa.execution.policy import Policy
from canoa.planned_arguments import check_arguments
from canoa.urn import action_name, checked_part, task_name
from canoa.wire.codec import ANY, ContentType, Unencodable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from canoa.action import ResultMode
    from canoa.app import Canoa
    from canoa.client.handle import Handle
    from canoa.execution.placement import Placement
    from canoa.vocabulary import ActionName
    from canoa.wire.codec import Codec

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class InputRef:
    """What the task will be submitted with; `plan.input["url"]` is one key of it."""

    def __init__(self, source: values.FromInput) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"<input {self.source.key or ''}>"

    def __getitem__(self, key: str) -> InputRef:
        return InputRef(values.FromInput(_key(key, self.source.key)))


class StepRef(Generic[R_co]):
    """What a step will give; `ref["values"]` is one key of it."""

    def __init__(self, plan: Plan, source: values.FromStep) -> None:
        self.plan = plan
        self.source = source

    def __repr__(self) -> str:
        return f"<step {self.source.step} of {self.plan.name}>"

    @property
    def name(self) -> str:
        return self.source.step

    def __getitem__(self, key: str) -> StepRef[Any]:
        return StepRef(self.plan, values.FromStep(self.name, _key(key, self.source.key)))


class Plan:
    """Made by `app.plan(name)`. A step can only wait for steps added before it, so there are no cycles."""

    def __init__(self, app: Canoa, name: str) -> None:
        self.name = task_name(name)
        self.input = InputRef(values.FromInput())
        self._app = app
        self._steps: dict[str, values.Step] = {}
        self._results: dict[str, Codec[Any]] = {}
        self._output: str | None = None
        self._built: values.Plan | None = None
        self._codec: Codec[Any] | None = None  # of what was built

    def __repr__(self) -> str:
        return f"<Plan {self.name}, {len(self._steps)} steps>"

    # --- Building -------------------------------------------------------------------------------------

    @overload
    def step(
        self,
        action: Action[..., Any, R],
        /,
        *args: Any,
        name: str | None = ...,
        after: StepRef[Any] | Sequence[StepRef[Any]] = ...,
        timeout: float | None = ...,
        retry: int | None = ...,
        placement: Placement | None = ...,
        compensate: Action[..., Any, Any] | str | None = ...,
        **kwargs: Any,
    ) -> StepRef[R]: ...
    @overload
    def step(
        self,
        action: str,
        /,
        *args: Any,
        name: str | None = ...,
        after: StepRef[Any] | Sequence[StepRef[Any]] = ...,
        timeout: float | None = ...,
        retry: int | None = ...,
        placement: Placement | None = ...,
        compensate: Action[..., Any, Any] | str | None = ...,
        **kwargs: Any,
    ) -> StepRef[Any]: ...
    def step(
        self,
        action: Action[..., Any, Any] | str,
        /,
        *args: Any,
        name: str | None = None,
        after: StepRef[Any] | Sequence[StepRef[Any]] = (),
        timeout: float | None = None,
        retry: int | None = None,
        placement: Placement | None = None,
        compensate: Action[..., Any, Any] | str | None = None,
        **kwargs: Any,
    ) -> StepRef[Any]:
        """Add a step that runs the action with these arguments: plain values, `plan.input[…]`, or what other steps
        give. Raises `ArgumentsRefused` where they do not fit.

        `name`: the action's, unless given. `after`: steps to wait for whose results it does not take. `timeout`,
        `retry`: of an attempt, as the node says unless given. `placement`: where it may run, instead of what the action
        says. `compensate`: an action that undoes what this one did, should the task not end well; it gets `input`, what
        this one got, and `output`, what it gave. An action of other nodes is named by a text; it takes keywords, or the
        whole result of one step.
        """
        Options(timeout=timeout, retry=retry)  # refuses what is no time and no count
        Policy(placement=placement)  # and what is no placement
        waits_for = [self._own(each).name for each in ([after] if isinstance(after, StepRef) else after)]
        arguments: dict[str, values.Source] | None
        if isinstance(action, Action):
            options = {
                "name": name,
                "after": after or None,
                "timeout": timeout,
                "retry": retry,
                "placement": placement,
                "compensate": compensate,
            }
            _refuse_ambiguous(action, len(args), [each for each, value in options.items() if value is not None])
            arguments = self._arguments(action, args, kwargs)
        else:
            arguments, whole = self._foreign_arguments(action, args, kwargs, waits_for)
            waits_for += whole
        runs = action.name if isinstance(action, Action) else action_name(action)
        step = values.Step(
            name=self._free_name(name, runs),
            action=runs,
            after=tuple(waits_for),
            arguments=arguments,
            timeout_s=timeout,
            retries=retry,
            placement=placement,
            compensate=_compensation(compensate),
        )
        return self._added(step, action)

    def output(self, ref: StepRef[Any]) -> None:
        """Say whose result is the task's. Otherwise it is that of the last step: the one nobody waits for, or an
        object of them by step."""
        if self._own(ref).source.key is not None:
            raise PlanRefused(f"plan {self.name!r}: its output is a whole step's, not one key; leave the key out")
        self._output, self._built = ref.name, None

    def build(self) -> values.Plan:
        """The plan as it travels and is stored. Raises `PlanRefused`."""
        if self._built is None:
            built = checked(values.Plan(name=self.name, steps=tuple(self._steps.values()), output=self._output))
            check_arguments(built, self._app.actions)  # of actions that were given by name
            check_compensations(built, self._app.actions)
            names = final_steps(built)
            self._codec = self._results.get(names[0]) if len(names) == 1 else None
            self._built = built
        return self._built

    def _added(self, step: values.Step, action: Action[..., Any, Any] | str) -> StepRef[Any]:
        self._steps[step.name] = step
        self._built = None
        if isinstance(action, Action):
            self._results[step.name] = action.signature.result
        return StepRef(self, values.FromStep(step.name))

    def _free_name(self, name: str | None, action: str) -> str:
        if name is not None:
            if checked_part("step", name) in self._steps:
                raise PlanRefused(f"plan {self.name!r} has two steps named {name!r}; give one of them another name=")
            return name
        base, number = action.rpartition(".")[2], 2
        free = base
        while free in self._steps:
            ending = f"-{number}"
            free, number = base[: MAX_STEP_CHARS - len(ending)] + ending, number + 1
        return free

    def _own(self, ref: StepRef[Any]) -> StepRef[Any]:
        if not isinstance(ref, StepRef):
            raise PlanRefused(f"plan {self.name!r}: {ref!r:.60} is no step; give what plan.step(…) returned")
        if ref.plan is not self:
            raise PlanRefused(f"plan {self.name!r}: step {ref.name!r} is of plan {ref.plan.name!r}; add it here, too")
        return ref

    # --- Arguments ------------------------------------------------------------------------------------

    def _arguments(self, action: Action[..., Any, Any], args: Any, kwargs: Any) -> dict[str, values.Source]:
        bound = action.signature.bound(args, kwargs)
        return {name: self._source(name, value, action) for name, value in bound.items()}

    def _foreign_arguments(
        self, action: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], after: Sequence[str]
    ) -> tuple[dict[str, values.Source] | None, list[str]]:
        """By keyword; or nothing, which means what it waits for: then also for what."""
        if not args:
            return {name: self._source(name, value, None) for name, value in kwargs.items()} or None, []
        reference = self._reference(args[0])
        is_whole = reference is not None and reference.key is None
        if len(args) > 1 or kwargs or after or not is_whole:
            raise WrongUse(
                f"action {action!r:.100} is not defined here, so its parameters have no order: "
                f"give keywords, or the whole result of one step and nothing else"
            )
        return None, [reference.step] if isinstance(reference, values.FromStep) else []

    def _source(self, name: str, value: object, action: Action[..., Any, Any] | None) -> values.Source:
        """A plain value is kept as it will travel, and checked where the action is known."""
        if (reference := self._reference(value)) is not None:
            return reference
        if _holds_reference(value):
            raise PlanRefused(
                f"plan {self.name!r}: parameter {name!r} is given a step or the input inside a list or an object; "
                f"give it to a parameter of its own"
            )
        return values.Given(_plain(name, value) if action is None else action.signature.as_sent(name, value))

    def _reference(self, value: object) -> values.FromInput | values.FromStep | None:
        if isinstance(value, InputRef):
            return value.source
        return self._own(value).source if isinstance(value, StepRef) else None

    # --- Submitting -----------------------------------------------------------------------------------

    def using(
        self,
        *,
        result: ResultMode = "reply",
        queue_timeout: float | None = None,
        idempotency_key: str | None = None,
        site: str | None = None,
    ) -> SubmittingPlan:
        """The same plan, submitted in another way: see `Action.using`."""
        options = Options(
            dispatch="routed", result=result, queue_timeout=queue_timeout, idempotency_key=idempotency_key, site=site
        )
        return SubmittingPlan(self._app, self, options)

    async def submit(self, /, **input: Any) -> Handle[Any]:
        """Hand a task to the managers. Returns once it is accepted; raises `NobodyManages`, `PlanRefused`."""
        return await self._plainly.submit(**input)

    async def call(self, /, **input: Any) -> Any:
        """Run it and wait for the result."""
        return await self._plainly.call(**input)

    @cached_property
    def _plainly(self) -> SubmittingPlan:
        """Made once: options are checked whenever they are made."""
        return self.using()

    def result_codec(self) -> Codec[Any] | None:
        """Of the type that its last step returns, where that is one and an action of this program."""
        self.build()
        return self._codec


class SubmittingPlan:
    """A plan with options for how it is submitted."""

    def __init__(self, app: Canoa, plan: Plan, options: Options) -> None:
        self._app = app
        self._plan = plan
        self._options = options
        self._awaited = msgspec.structs.replace(options, is_awaited=True)

    async def submit(self, /, **input: Any) -> Handle[Any]:
        session = await self._app.session()
        return await session.submit_plan(self._plan.build(), input, self._options, codec=self._plan.result_codec())

    async def call(self, /, **input: Any) -> Any:
        session = await self._app.session()
        handle = session.start_plan(self._plan.build(), input, self._awaited, codec=self._plan.result_codec())
        try:
            return await handle.result()
        finally:
            if not handle.is_done:
                session.replies.drop_unseen([handle])


def _key(key: object, of: str | None) -> str:
    if not isinstance(key, str):
        raise WrongUse(f'key {key!r:.60}: a key is a text, such as ["url"]; let the action take lists apart')
    if of is not None:
        raise WrongUse(f"key {key!r:.60} of key {of!r:.60}: a plan takes one key; let the action take it apart")
    return key


def _holds_reference(value: object, levels: int = 20) -> bool:
    """Bounded, since a list may hold itself; what is deeper fails as a value that cannot travel."""
    match value:
        case InputRef() | StepRef():
            return True
        case list() | tuple() | set() if levels:
            return any(_holds_reference(each, levels - 1) for each in value)
        case dict() if levels:
            return any(_holds_reference(each, levels - 1) for each in value.values())
        case _:
            return False


def _plain(name: str, value: object) -> object:
    try:
        return ANY.decode_own(ANY.encode(value), ContentType.JSON)
    except Unencodable as exc:
        raise ArgumentsRefused(f"{name}: {exc}") from exc


def _compensation(action: Action[..., Any, Any] | str | None) -> ActionName | None:
    if isinstance(action, Action):
        check_compensation(action)
        return action.name
    if action is not None and not isinstance(action, str):
        raise WrongUse(f"compensate={action!r:.60} is no action; give one, or its name, such as 'shop.refund'")
    return None if action is None else action_name(action)


def _refuse_ambiguous(action: Action[..., Any, Any], count: int, chosen: Sequence[str]) -> None:
    """`timeout=` may be meant for the step or for the action's parameter of that name: nobody can tell."""
    by_keyword = action.signature.names()[count:]
    for option in chosen:
        if option in by_keyword:
            raise WrongUse(
                f"{option}= is about the step, and {action.name} has a parameter of that name; "
                f"give the parameter by position"
            )
