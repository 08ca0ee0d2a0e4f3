"""`--field`, `--json-field` and `--filter` as values."""

from __future__ import annotations

from typing import Any

import click
import pytest

from maadd.cli.fields import parse_fields, parse_filters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("", ""),
        ("41", "41"),
        ("true", "true"),
        ("a=b=c", "a=b=c"),
        ("[a,b]", ["a", "b"]),
        ("[ a , b c ]", ["a", "b c"]),
        ("[one]", ["one"]),
        ("[]", []),
        ("[[person:Ada|A]]", "[[person:Ada|A]]"),
        ("[open", "[open"),
    ],
)
def test_a_field_is_a_text_or_a_list_of_texts(text: str, value: Any) -> None:
    assert parse_fields([f"key={text}"], []) == {"key": value}


def test_json_fields_keep_their_type_and_win() -> None:
    assert parse_fields(["a=1", "b=x"], ["a=1", "c=null", 'd=[1,"2"]']) == {
        "a": 1,
        "b": "x",
        "c": None,
        "d": [1, "2"],
    }


@pytest.mark.parametrize(
    ("texts", "typed", "named"),
    [(["novalue"], [], "--field"), (["=x"], [], "--field"), ([], ["a={"], "--json-field")],
)
def test_what_is_no_field_is_wrong_usage(texts: list[str], typed: list[str], named: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        parse_fields(texts, typed)
    assert refused.value.param_hint == named


def test_filters_split_at_the_first_equals_sign_and_add_up() -> None:
    assert parse_filters(["title=a = b", "tags=x", "tags=y"]) == {
        "title": "a = b",
        "tags": ["x", "y"],
    }
