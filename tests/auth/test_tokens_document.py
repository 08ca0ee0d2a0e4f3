"""The content of tokens.yaml: what is read, refused and kept (spec 04 §7.1)."""

from __future__ import annotations

import pytest

from maadd.auth.record import ProjectGrant, TokenRecord, public_record
from maadd.auth.tokens_document import dump_tokens, parse_tokens, with_issued, with_revoked
from maadd.protocol.errors import MaadError
from maadd.protocol.roles import Role

HASH = "9c1d" * 16

FULL = f"""\
name: field-office-tokens
tokens:
  - id: tok-4be1c07a92d3
    hash: {HASH}
    role: writer
    projects:
      - name: permits
      - name: roads_2
        role: reader
    created_at: "2031-02-03T04:05:06.789Z"
    name: night-import
    agent_id: agt-import
    user_id: u-17
    expires_at: 2032-01-01T00:00:00.000Z
    revoked_at: '2031-06-01T00:00:00+02:00'
"""

RECORD = TokenRecord(
    id="tok-4be1c07a92d3",
    hash=HASH,
    role=Role.WRITER,
    projects=(ProjectGrant("permits"), ProjectGrant("roads_2", Role.READER)),
    created_at="2031-02-03T04:05:06.789Z",
    name="night-import",
    agent_id="agt-import",
    user_id="u-17",
    expires_at="2032-01-01T00:00:00.000Z",
    revoked_at="2031-06-01T00:00:00+02:00",
)


def token(text: str = "", **members: str) -> str:
    """A file with one token: the members given over the usual ones, then `text`."""
    usual = {"id": "tok-1", "hash": HASH, "role": "reader", "created_at": "2031-01-01T00:00:00Z"}
    lines = [f"  {key}: {value}" for key, value in (usual | members).items() if value]
    return "tokens:\n-" + "\n".join(lines)[1:] + f"\n{text}"


def problem(text: str | bytes) -> str:
    with pytest.raises(MaadError) as caught:
        parse_tokens(text if isinstance(text, bytes) else text.encode())
    assert caught.value.code == "TOKENS_FILE_INVALID"
    return caught.value.message


def test_a_full_record() -> None:
    assert parse_tokens(FULL.encode()).records == (RECORD,)


@pytest.mark.parametrize("text", ["", "# none yet\n", "{}", "name: x", "tokens: []", "tokens:"])
def test_an_empty_registry(text: str) -> None:
    assert parse_tokens(text.encode()).records == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tokens: [", "line 2, column 1"),
        ("tokens: []\ntokens: []", "line 2, column 1"),
        (b"name: \xff", "UTF-8"),
        ("a: 1\n---\nb: 1", "line 2"),
        ("- a", "top level"),
        ("just text", "top level"),
        ("name: 7", "name: "),
        ("tokens: {a: b}", "tokens: "),
        ("tokens: none", "tokens: "),
        ("tokens: [tok-1]", "tokens[0]: "),
        ("tokens: [{}]", "tokens[0].id: is missing; tokens[0].hash: is missing"),
        (token(id=""), "tokens[0].id: is missing"),
        (token(hash=""), "tokens[0].hash: is missing"),
        (token(role=""), "tokens[0].role: is missing"),
        (token(created_at=""), "tokens[0].created_at: is missing"),
        (token(id="7"), "tokens[0].id: must be a string"),
        (token(hash="12"), "tokens[0].hash: must be a string"),
        (token(role="7"), "tokens[0].role: must be a string"),
        (token(created_at="7"), "tokens[0].created_at: must be a string"),
        (token(name="7"), "tokens[0].name: must be a string"),
        (token(agent_id="7"), "tokens[0].agent_id: must be a string"),
        (token(user_id="[a]"), "tokens[0].user_id: must be a string"),
        (token(expires_at="7"), "tokens[0].expires_at: must be a string"),
        (token(revoked_at="true"), "tokens[0].revoked_at: must be a string"),
        (token(role="owner"), "tokens[0].role: must be one of"),
        (token(hash="abc"), "tokens[0].hash: must be 64"),
        (token(hash=HASH.upper()), "tokens[0].hash: must be 64"),
        (token(created_at="yesterday"), "tokens[0].created_at: must be an RFC 3339"),
        (token(expires_at="soon"), "tokens[0].expires_at: must be an RFC 3339"),
        (token(expires_at="''"), "tokens[0].expires_at: must be an RFC 3339"),
        (token(expires_at="2032-01-01T00:00:00"), "tokens[0].expires_at: must be an RFC 3339"),
        (token(revoked_at="x"), "tokens[0].revoked_at: must be an RFC 3339"),
        (token(projects="all"), "tokens[0].projects: must be a list"),
        (token(projects="[a]"), "tokens[0].projects[0]: must be a mapping"),
        (token(projects="[{role: reader}]"), "tokens[0].projects[0].name: must be a string"),
        (token(projects="[{name: 7}]"), "tokens[0].projects[0].name: must be a string"),
        (token(projects="[{name: a, role: x}]"), "tokens[0].projects[0].role: must be one of"),
        (token(projects="[{name: a, role: 1}]"), "tokens[0].projects[0].role: must be a string"),
        (
            token(f"- {{id: tok-1, hash: {'0a' * 32}, role: reader, created_at: 2031-01-01}}"),
            "tokens[1].id: is that of tokens[0]",
        ),
        (
            token(f"- {{id: tok-2, hash: {HASH}, role: reader, created_at: 2031-01-01}}"),
            "tokens[1].hash: is that of tokens[0]",
        ),
    ],
)
def test_a_refused_file_names_the_place(text: str | bytes, place: str) -> None:
    message = problem(text)
    assert place in message
    assert HASH not in message


def test_many_problems_are_cut_short() -> None:
    message = problem("tokens: [a, b, c, d, e, f, g]")
    assert "tokens[4]" in message
    assert message.endswith("and 2 more")


def test_an_unquoted_time_is_a_string() -> None:
    (record,) = parse_tokens(token(expires_at="2032-01-01").encode()).records
    assert record.expires_at == "2032-01-01"


def test_writing_keeps_everything_that_was_there() -> None:
    text = FULL + "    team: {name: night, size: 3}\nschema: 2\n"
    document = parse_tokens(text.encode())
    added = TokenRecord("tok-2", "0" * 64, Role.ADMIN, (ProjectGrant("*"),), "2031-01-01T00:00:00Z")
    written = parse_tokens(dump_tokens(with_issued(document, added)))
    assert written.records == (RECORD, added)
    assert written.raw["schema"] == 2
    assert written.raw["name"] == "field-office-tokens"
    assert written.raw["tokens"][0] == document.raw["tokens"][0]
    assert written.raw["tokens"][0]["team"] == {"name": "night", "size": 3}


def test_the_written_form() -> None:
    record = TokenRecord(
        "tok-2", "0" * 64, Role.ADMIN, (ProjectGrant("*", Role.READER),), "2031-01-01T00:00:00.000Z"
    )
    assert dump_tokens(with_issued(parse_tokens(b""), record)).decode() == (
        "tokens:\n"
        '- id: "tok-2"\n'
        f'  hash: "{"0" * 64}"\n'
        '  role: "admin"\n'
        "  projects:\n"
        '  - name: "*"\n'
        '    role: "reader"\n'
        '  created_at: "2031-01-01T00:00:00.000Z"\n'
    )


def test_revoking_keeps_the_first_time_and_other_tokens() -> None:
    other = token(id="tok-9", hash="0a" * 32).removeprefix("tokens:\n")
    document = parse_tokens((token() + other).encode())
    once = with_revoked(document, "tok-1", "2031-01-01T00:00:00.000Z")
    twice = with_revoked(once, "tok-1", "2032-01-01T00:00:00.000Z")
    assert [record.revoked_at for record in twice.records] == ["2031-01-01T00:00:00.000Z", None]
    assert parse_tokens(dump_tokens(twice)) == twice


def test_the_public_form_has_no_hash() -> None:
    assert public_record(RECORD) == {
        "id": "tok-4be1c07a92d3",
        "role": "writer",
        "projects": [{"name": "permits"}, {"name": "roads_2", "role": "reader"}],
        "createdAt": "2031-02-03T04:05:06.789Z",
        "name": "night-import",
        "agentId": "agt-import",
        "userId": "u-17",
        "expiresAt": "2032-01-01T00:00:00.000Z",
        "revokedAt": "2031-06-01T00:00:00+02:00",
    }
    bare = TokenRecord("tok-2", HASH, Role.READER, (), "2031-01-01T00:00:00Z")
    assert public_record(bare) == {
        "id": "tok-2",
        "role": "reader",
        "projects": [],
        "createdAt": "2031-01-01T00:00:00Z",
    }


def test_no_repr_shows_a_hash() -> None:
    document = parse_tokens(FULL.encode())
    assert HASH not in repr(document)
    assert HASH not in repr(document.records)
