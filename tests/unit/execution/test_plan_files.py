"""A plan file is a plan, or an error with the file, the line, the step and the remedy; never a crash or a long wait."""

from __future__ import annotations

import builtins
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canoa.errors import PlanRefused, SettingError
from canoa.execution.plan import FromInput, FromStep, Plan, Step
from canoa.execution.plan_files import MAX_TEXT_BYTES, plan_from_text
from canoa.vocabulary import ActionName

YAML = """\
# From the sensor to the report.
plan: power-factor
steps:
  fetch: {action: continuum.fetch_data, with: {url: $input.url}}
  pf:    {action: continuum.power_factor, with: {data: $fetch}}
  report:
    action: continuum.report
    with: {pf: $pf, data: $fetch.values}
    timeout: 5
    retry: 2
output: report
"""

PLAN = Plan(
    name="power-factor",
    steps=(
        Step(name="fetch", action=ActionName("continuum.fetch_data"), arguments={"url": FromInput("url")}),
        Step(
            name="pf",
            action=ActionName("continuum.power_factor"),
            after=("fetch",),
            arguments={"data": FromStep("fetch")},
        ),
        Step(
            name="report",
            action=ActionName("continuum.report"),
            after=("pf", "fetch"),
            arguments={"pf": FromStep("pf"), "data": FromStep("fetch", "values")},
            timeout_s=5,
            retries=2,
        ),
    ),
    output="report",
)

JSON = """\
{
  "plan": "power-factor",
  "steps": {
    "fetch": {"action": "continuum.fetch_data", "with": {"url": "$input.url"}},
    "pf": {"action": "continuum.power_factor", "with": {"data": "$fetch"}},
    "report": {
      "action": "continuum.report",
      "with": {"pf": "$pf", "data": "$fetch.values"},
      "timeout": 5,
      "retry": 2
    }
  },
  "output": "report"
}
"""


def refusal(text: str) -> str:
    with pytest.raises(PlanRefused) as caught:
        plan_from_text(text, source="plan.yaml")
    return str(caught.value)


@pytest.mark.parametrize("text", [YAML, JSON, "\ufeff" + JSON, "\n\t" + JSON], ids=["yaml", "json", "bom", "blank"])
def test_yaml_and_json_say_the_same_plan(text: str) -> None:
    assert plan_from_text(text) == PLAN


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (YAML.replace("$pf,", "$pg,"), "plan.yaml: line 6: plan 'power-factor', step 'report' refers to step 'pg'"),
        (YAML.replace("timeout: 5", "timeout: soon"), "plan.yaml: line 6: step 'report': `timeout:` is 'soon'"),
        (YAML.replace("  pf: ", "  fetch: "), "plan.yaml: line 5: key 'fetch' is there twice"),
        (YAML.replace("steps:", "steps: ["), "plan.yaml: line "),
        (YAML.replace("report:", "on:", 1), "plan.yaml: line 6: key True is no text; put it in quotes"),
        (YAML.replace("timeout: 5", "timeout: !!int x"), "plan.yaml: line 9: 'x' cannot be read"),
        (YAML.replace("retry: 2", "retry: !!python/name:os.system 2"), "plan.yaml: line 10: not YAML"),
        (YAML.replace("{pf: $pf,", "!!set {pf: $pf,"), "plan.yaml: line 8: tag 'tag:yaml.org,2002:set' is not taken"),
        (YAML + "---\nplan: b\n", "plan.yaml: line 12: not YAML"),
        ("", "plan.yaml: a plan is None"),
        ("- a", "plan.yaml: a plan is ['a']"),
        ("plan: \x00", "plan.yaml: not YAML"),
        ("[1]: 2", "plan.yaml: line 1: key [1] is no text"),
        (JSON.replace('"output":', ""), "plan.yaml: line 14: not JSON"),
        (JSON.replace('"pf":', '"fetch":', 1), "plan.yaml: key 'fetch' is there twice"),
        (JSON.replace('"timeout": 5', '"timeout": NaN'), "plan.yaml: NaN is no JSON"),
        (JSON.replace('"timeout": 5', f'"timeout": {"9" * 5000}'), "plan.yaml: not JSON"),
        (JSON.replace('"timeout": 5', f'"timeout": {"[" * 201 + "]" * 201}'), "plan.yaml: more than 200 levels"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, why: str) -> None:
    assert why in refusal(text)


def test_aliases_are_refused_before_they_unfold() -> None:
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))

    assert refusal(bomb) == "plan.yaml: line 2: an alias (*name) is not taken; write the value out"


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_at_once(opening: str) -> None:
    text = "plan:\n  " + opening * 50_000
    began = time.process_time()

    assert "more than 50 levels of nesting; flatten it" in refusal(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["!" * 200_000, "plan: " + "x" * 200_000, "k" * 200_000 + ": 1", "{" + "k" * 200_000])
def test_a_long_mistake_does_not_flood_the_message(text: str) -> None:
    assert len(refusal(text)) < 600


def test_a_text_is_bounded() -> None:
    assert "262,145 bytes are over the limit of 262,144" in refusal("x" * (MAX_TEXT_BYTES + 1))


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_yaml(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml" or (name == "canoa.execution" and "plan_yaml" in (args[2] or ())):
            raise ModuleNotFoundError("No module named 'yaml'", name="yaml")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_yaml)

    with pytest.raises(SettingError, match=r"needs yaml; install it with: pip install 'canoa\[server\]'"):
        plan_from_text(YAML)
    assert plan_from_text(JSON) == PLAN


@settings(deadline=None)
@given(st.text(max_size=200) | st.text("[]{}:,-&*!#|>'\"%@`$ \n\tab.", max_size=200))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    with pytest.raises(PlanRefused):
        plan_from_text(text)


@settings(deadline=None)
@given(st.integers(0, len(YAML) - 1), st.sampled_from("[]{}:,-&*!#|>'\"%@`$ \n\t\x00\x85\ud800"))
def test_a_slip_of_a_finger_never_crashes(at: int, typed: str) -> None:
    for text in (YAML, JSON):
        try:
            plan_from_text(text[:at] + typed + text[at:])
        except PlanRefused as refused:
            assert str(refused).startswith("plan: ")  # noqa: PT017


def test_every_json_is_read_alike_by_both_readers() -> None:
    document = json.dumps(json.loads(JSON))

    assert plan_from_text(document) == plan_from_text("--- " + document)
