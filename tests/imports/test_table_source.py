"""CSV and JSON Lines as they are found."""

from __future__ import annotations

from typing import Any

import pytest

from maadd.protocol.errors import MaadError


def test_a_table_of_a_spreadsheet_is_read(table: Any) -> None:
    source = table(
        "items.csv",
        '\ufeffSKU;name;notes\r\nA-1;Bolt;"two\r\nlines; and more"\r\n;;\r\nA-2;Nut;\r\n',
    )
    assert [dict(item.fields) for item in source.items] == [
        {"SKU": "A-1", "name": "Bolt", "notes": "two\r\nlines; and more"},
        {"SKU": "A-2", "name": "Nut"},
    ]
    assert [(item.key, item.line) for item in source.items] == [("1", 2), ("2", 5)]
    assert source.misfits == ()


def test_rows_that_do_not_fit_the_header_are_named(table: Any) -> None:
    source = table("items.csv", "a,b\n1\n1,2,3\n4,5\n")
    assert [dict(item.fields) for item in source.items] == [{"a": "1"}, {"a": "4", "b": "5"}]
    [misfit] = source.misfits
    assert (misfit.line, misfit.reason) == (3, "row 2 has 3 cells, the header 2")


def test_an_open_quote_ends_the_table_there(table: Any) -> None:
    source = table("items.csv", 'a,b\n1,2\n"3,4\n5,6\n')
    assert len(source.items) == 1
    [misfit] = source.misfits
    assert misfit.line == 3
    assert "not readable as CSV from here on" in misfit.reason


@pytest.mark.parametrize(("header", "what"), [("a,a", "column 'a' twice"), ("a,", "a nameless")])
def test_a_header_must_name_each_column_once(table: Any, header: str, what: str) -> None:
    with pytest.raises(MaadError, match=what):
        table("items.csv", f"{header}\n1,2\n")


def test_a_table_must_be_utf_8(table: Any) -> None:
    with pytest.raises(MaadError, match="invalid UTF-8 at byte 5"):
        table("items.csv", b"a\ncaf\xe9\n")


def test_json_lines_are_objects(table: Any) -> None:
    source = table("e.jsonl", '{"id": 1, "t": [1, null]}\n\nnot json\n[1]\r\n{"id": 2}\r\n')
    assert [(dict(item.fields), item.line) for item in source.items] == [
        ({"id": 1, "t": [1, None]}, 1),
        ({"id": 2}, 5),
    ]
    assert [one.line for one in source.misfits] == [3, 4]


def test_a_key_that_stands_twice_is_refused_with_its_line(table: Any) -> None:
    source = table(
        "e.jsonl",
        '{"id": 1}\n{"id": 4, "name": "first", "name": "second"}\n'
        '{"id": 5, "a": [{"b": {"c": 1, "c": 2}}]}\n{"id": 6, "big": 123456789012345678901}\n',
    )
    assert [item.fields["id"] for item in source.items] == [1, 6]
    assert [(one.line, one.reason) for one in source.misfits] == [
        (2, "the key 'name' stands twice in one object"),
        (3, "the key 'c' stands twice in one object"),
    ]
