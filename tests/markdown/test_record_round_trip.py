"""Properties of writing: what goes in comes out, and edits stay where they belong (01 §9.3)."""

from __future__ import annotations

import io
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from maadd.protocol.errors import MaadError
from maadd_worker.markdown.annotations import find_annotations
from maadd_worker.markdown.body import current_body
from maadd_worker.markdown.document import parse_document
from maadd_worker.markdown.frontmatter import split_file
from maadd_worker.markdown.serializer import rewrite_record, serialize_record, update_body
from maadd_worker.markdown.values import same_value
from maadd_worker.markdown.verbatim import VerbatimZones
from maadd_worker.markdown.yaml_profile import load_frontmatter

quick = settings(max_examples=100, deadline=None)

characters = st.characters(exclude_categories=["Cs"])
awkward = st.sampled_from(
    [
        *(
            "",
            " ",
            "~",
            "-",
            "- a",
            "a: b",
            "a #b",
            "'",
            '"',
            "\\",
            "\n",
            "\r\n",
            "\t",
            "null",
            "no",
        ),
        *("1e3", "0x1f", "1_0", ".5", "[x]", "{a", "a,b", "?a", "? a", ":a", "!x", "&x", "*x", "|"),
        *(
            ">",
            "%x",
            "@x",
            "`x",
            "---",
            "...",
            "#",
            "\u0085",
            "\u2028",
            "\ufeff",
            "<<",
            "=",
            "2026-04-01",
        ),
    ]
)
texts = st.one_of(
    awkward,
    st.text(characters, max_size=20),
    st.lists(awkward, max_size=3).map("".join),
    st.from_regex(r"[-+.0-9a-f_xeE]{1,8}", fullmatch=True),
)
keys = st.one_of(
    awkward.filter(str.isprintable),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=128),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts)


def nested(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        children,
        st.lists(children, max_size=4),
        st.dictionaries(keys, children, max_size=4),
    )


records = st.dictionaries(keys, nested(nested(scalars)), max_size=6)


def same_types(one: Any, other: Any) -> bool:
    """Type equality where a float without a fraction counts as the int it equals."""
    if isinstance(one, dict):
        return isinstance(other, dict) and all(same_types(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return isinstance(other, list) and all(map(same_types, one, other))
    if isinstance(one, float) and one.is_integer() and abs(one) < 2**53:
        return type(other) is int
    return type(one) is type(other)


def refusal(data: bytes) -> MaadError | None:
    try:
        parse_document(data, "n.md")
    except MaadError as error:
        return error
    return None


def parsed(data: bytes) -> dict[str, Any]:
    return load_frontmatter(split_file(data, "n.md"), "n.md")


@given(records)
@quick
def test_every_record_reads_back_with_its_types(record: dict[str, Any]) -> None:
    data = serialize_record(record, list(record), None)
    result = parsed(data)
    assert list(result) == list(record)
    assert same_value(record, result)
    assert same_types(record, result)
    assert serialize_record(result, list(result), None) == data


@given(records)
@quick
def test_other_yaml_scanners_read_the_same(record: dict[str, Any]) -> None:
    block = split_file(serialize_record(record, list(record), None), "n.md").block
    if not any(character in block for character in "\x85\u2028\u2029"):
        assert yaml.load(io.StringIO(block), yaml.BaseLoader) == yaml.load(block, yaml.CBaseLoader)


@given(records, st.text(characters, max_size=60))
@quick
def test_bodies_read_back(record: dict[str, Any], body: str) -> None:
    split = split_file(serialize_record(record, list(record), body), "n.md")
    if body:
        assert split.body == f"\n{body}\n"
    assert current_body(split) == update_body(split, split.body.replace("\r\n", "\n"), None)


@given(records.filter(bool), st.data())
@quick
def test_a_rewrite_of_one_field_changes_one_line(
    record: dict[str, Any], data: st.DataObject
) -> None:
    original = serialize_record(record, list(record), "body")
    key = data.draw(st.sampled_from(list(record)))
    changed = record | {key: data.draw(nested(nested(scalars)))}
    result = rewrite_record(original, "n.md", changed, list(changed), body=None)
    assert same_value(parsed(result), changed)
    place = list(record).index(key) + 1
    before, after = original.split(b"\n"), result.split(b"\n")
    assert before[:place] == after[:place]
    assert before[place + 1 :] == after[place + 1 :]
    assert rewrite_record(result, "n.md", changed, list(changed), body=None) == result


FORMS = [
    "{key}: plain text",
    "{key}:   'single'  # note",
    '{key} : "double\\n"',
    "{key}:",
    "{key}: ~   ",
    "{key}: [a, 'b, c', {{d: 1}}]",
    "{key}: [a,\n\n  b # in\n  ]",
    "{key}:\n- a\n- b",
    "{key}:\n    - a # x\n    # y\n    - [b]",
    "{key}:\n  sub: 1\n  other: [x]",
    "{key}: |\n  line\n\n  # no comment\n",
    "{key}: >2-\n    folded\n   text",
    "{key}: |+\n  kept\n\n",
    "{key}: several\n  lines",
    "{key}: 'quoted\n\n  lines'",
    '"{key}": "\\u2028 \\\n  joined"',
    "{key}: &{key} [1]",
    "{key}: !!str 7",
    "{key}: 0x1F",
    "{key}: ünïcödé \u2028 x",
]
gaps = st.sampled_from(["", "", "\n", "# comment\n", "\n# comment\n\n", " # indented\n"])
entries = st.lists(st.tuples(gaps, st.sampled_from(FORMS)), min_size=1, max_size=7)


@given(entries, st.sampled_from(["\n", "\r\n"]), st.data())
@quick
def test_hand_written_fields_are_left_alone(
    forms: list[tuple[str, str]], newline: str, data: st.DataObject
) -> None:
    pieces = [f"{gap}{form.format(key=f'k{n}')}\n" for n, (gap, form) in enumerate(forms)]
    original = f"---\n{''.join(pieces)}# end\n---\n\nbody\n".replace("\n", newline).encode()
    record = parsed(original)
    assert rewrite_record(original, "n.md", record, list(record), body=None) == original

    place = data.draw(st.integers(0, len(pieces) - 1))
    value = data.draw(scalars)
    changed = record | {f"k{place}": value, "extra": "new"}
    result = rewrite_record(original, "n.md", changed, list(changed), body=None)
    assert same_value(parsed(result), changed)
    before = "".join(pieces[:place]).replace("\n", newline)
    after = "".join(pieces[place + 1 :]).replace("\n", newline)
    text = result.decode()
    assert text.startswith(f"---{newline}{before}")
    assert text.endswith(
        f"{after}extra: new{newline}# end{newline}---{newline}{newline}body{newline}"
    )


@given(st.binary(max_size=200))
@quick
def test_any_bytes_parse_or_are_refused_with_a_place(data: bytes) -> None:
    error = refusal(b"---\n" + data)
    if error is not None:
        assert error.code in ("PARSE_ERROR", "YAML_PROFILE_VIOLATION")
        assert error.location is not None
        assert error.location.line >= 1
        assert error.location.col >= 1


@given(st.text(st.sampled_from("[]|:a`\n{}~# "), max_size=80))
@settings(max_examples=150, deadline=None)
def test_found_annotations_stand_where_they_say(body: str) -> None:
    zones = VerbatimZones(body)
    lines = body.split("\n")
    for one in find_annotations(body, 1, zones, 0)[0]:
        rest = lines[one.line - 1][one.col :]
        assert rest.startswith(f"[[{one.type}:")
        assert one.value in rest
        assert one.label in rest


@pytest.mark.parametrize("key", ["k" * 128, "é" * 128, "'" * 128])
def test_the_longest_keys_can_be_edited(key: str) -> None:
    original = serialize_record({key: 1, "b": 2}, [key, "b"], None)
    result = rewrite_record(original, "n.md", {key: 1, "b": 3}, [key, "b"], body=None)
    assert parsed(result) == {key: 1, "b": 3}
