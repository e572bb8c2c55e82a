"""`.env` files are read as people write them, and only for Canoa's own variables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canoa.env_file import parse


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("CANOA_A=x", "x"),
        ("  export CANOA_A = x  ", "x"),
        ("CANOA_A=", ""),
        ("CANOA_A= # nothing", ""),
        ("CANOA_A=x # why", "x"),
        ("CANOA_A=x#y", "x#y"),
        ("CANOA_A=#x", ""),
        ("CANOA_A=a b", "a b"),
        ("CANOA_A=a'b", "a'b"),
        ("CANOA_A=$HOME", "$HOME"),
        ("CANOA_A='a # \\n b' # why", "a # \\n b"),
        ('CANOA_A="a # \\n \\"b\\" \\\\"', 'a # \n "b" \\'),
        ("CANOA_A=''", ""),
        ("CANOA_A=amqp://u:p=#%23@h/?a=b", "amqp://u:p=#%23@h/?a=b"),
    ],
)
def test_a_value_stands_bare_or_in_quotes(line: str, value: str) -> None:
    assert parse(line) == ({"CANOA_A": value}, [])


def test_the_last_of_two_values_counts() -> None:
    assert parse("CANOA_A=1\r\nCANOA_B=2\r\nCANOA_A=3\r\n") == ({"CANOA_A": "3", "CANOA_B": "2"}, [])


@pytest.mark.parametrize("line", ["CANOA_A", "CANOA_A='x", 'CANOA_A="x\\"', "CANOA_A='x' y"])
def test_a_line_of_ours_that_cannot_be_read_is_told_by_its_number(line: str) -> None:
    assert parse(f"# settings\n{line}\n") == ({}, [2])


@pytest.mark.parametrize("line", ["A=1", "# CANOA_A=1", "XCANOA_A='", "canoa_a='", "-----BEGIN KEY-----", "'", ""])
def test_lines_of_others_are_not_looked_at(line: str) -> None:
    assert parse(line) == ({}, [])


@given(st.text(st.characters(exclude_categories=["Zl", "Zp", "Cc", "Cs"])))
def test_any_text_survives_double_quotes(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')

    assert parse(f'CANOA_A="{quoted}"') == ({"CANOA_A": text}, [])


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    parse(text)
    parse(f"CANOA_A={text}")
