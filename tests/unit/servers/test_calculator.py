"""The calculator's grammar: its results, and that no input can make it do anything else."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.errors import UsageError
from playhead.servers.template.tools import calculator

# --- what it calculates -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("10 - 4 - 3", "3"),
        ("24 / 4 / 3", "2"),
        ("2 ^ 3 ^ 2", "512"),
        ("2 ** 3 ** 2", "512"),
        ("-2 ^ 2", "-4"),
        ("(-2) ^ 2", "4"),
        ("2 ^ -1", "0.5"),
        ("2 - -3", "5"),
        ("- - - 1", "-1"),
        ("-0", "0"),
        ("0.1 + 0.2", "0.3"),
        (".5 + 1.", "1.5"),
        ("1 / 3", "0.333333333333333"),
        ("1 / 3 * 3", "1"),
        ("2 ^ 0.5", "1.4142135623731"),
        ("2 ^ 64", "18446744073709551616"),
        ("1e3 * 1E-3", "1"),
        ("1.5e-20 * 1", "1.5e-20"),
        ("10 ^ 100", "1e100"),
        ("\t7\n", "7"),
    ],
)
def test_an_expression_has_its_value(expression: str, shown: str) -> None:
    assert calculator.shown(calculator.evaluate(expression)) == shown


_NUMBERS = st.integers(0, 9999).map(str) | st.decimals(
    "0.001", "99", places=3, allow_nan=False, allow_infinity=False
).map(str)
_EXPRESSIONS = st.recursive(
    _NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", " * ", " - "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("-({})".format),
    ),
    max_leaves=8,
)


@settings(deadline=None)  # on a busy machine
@given(_EXPRESSIONS)
def test_sums_and_products_are_what_exact_fractions_give(expression: str) -> None:
    literals = calculator._TOKEN.sub(
        lambda token: f"Fraction('{token['number']}')" if token["number"] else token[0], expression
    )
    exact = eval(literals, {"__builtins__": {}, "Fraction": Fraction})  # our own text, built above
    got = Fraction(calculator.evaluate(expression))
    assert abs(got - exact) <= abs(exact) * Fraction(1, 10**20) + Fraction(1, 10**20)


@settings(deadline=None)  # on a busy machine
@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_come_out_as_they_went_in(number: int) -> None:
    assert calculator.json_number(calculator.evaluate(str(number))) == number


@settings(deadline=None)  # on a busy machine
@given(st.floats(-1e300, 1e300, allow_subnormal=False))
def test_a_json_number_is_the_digits_that_are_shown(number: float) -> None:
    value = calculator.decimal_of(number)
    assert calculator.json_number(value) == pytest.approx(number, rel=1e-14)
    assert Decimal(calculator.shown(value)) == pytest.approx(value, rel=Decimal("1e-14"))


# --- what it refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "expected a number or an opening parenthesis, got the end"),
        ("   ", "got the end"),
        ("2 +", "got the end"),
        ("2 3", "expected an operator, got '3' at character 3"),
        ("(1 + 2", "expected a closing parenthesis, got the end"),
        ("1 + 2)", r"expected an operator, got '\)' at character 6"),
        ("* 2", r"got '\*' at character 1"),
        ("2 + * 3", r"expected a number or an opening parenthesis, got '\*' at character 5"),
        ("2 + x", "unexpected 'x' at character 5"),
        ("__import__('os')", "unexpected '_' at character 1"),
        ("1_000", "unexpected '_'"),
        ("٣ + 1", "unexpected"),
        ("1 / 0", "division by zero: 1 / 0"),
        ("5 / (3 - 3)", "division by zero"),
        ("0 ^ -1", r"division by zero: 0 \^ \(-1\)"),
        ("0 / 0", "not defined"),
        ("0 ^ 0", "not defined"),
        ("(-8) ^ 0.5", r"\(-8\) \^ 0\.5 is not a real number"),
        ("9 ^ 9 ^ 9 ^ 9", "too large"),
        ("1e308 * 10", "too large"),
        ("1e999", "too large"),
        ("9" * 501, "501 characters; 500 are allowed"),
        ("(" * 60 + "1" + ")" * 60, "nested too deep; 40 levels"),
        ("-" * 60 + "1", "nested too deep"),
        ("2^" * 60 + "1", "nested too deep"),
    ],
)
def test_what_is_no_expression_or_has_no_value_is_refused_and_says_why(expression: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        calculator.evaluate(expression)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 10**400, 1.7e308 * 10])
def test_a_number_too_large_for_any_result_is_refused(number: float) -> None:
    with pytest.raises(UsageError, match="too large"):
        calculator.decimal_of(number)


@settings(deadline=None)  # on a busy machine
@given(st.text(st.sampled_from("0123456789.eE+-*/^() \tx_"), max_size=60) | st.text(max_size=60))
def test_any_text_has_a_finite_value_or_is_refused(text: str) -> None:
    try:
        value = calculator.evaluate(text)
    except UsageError:
        return
    assert value.is_finite()
    assert json.loads(json.dumps(calculator.json_number(value))) == pytest.approx(float(value), rel=1e-14)
