"""maad_scan: the structure of raw Markdown, file by file and as a corpus (spec 02 §3.1)."""

from __future__ import annotations

import msgspec
import pytest

from maadd.protocol.errors import MaadError
from maadd_worker.read.scan_patterns import detect_patterns

FILE = """\
---
kind: list
owner: Ada
---
intro 2031-01-05

# Items {#items}

Pay 1,250.00 USD to a@b.example, see https://x.example/y).
[[person:Ada|A]] `[[person:No|x]]` {{owner}} {{ no }}

```
# not a heading
[[person:No|x]] {{no}}
```
"""


def test_a_file_is_taken_apart(project):
    project.write("_import/raw/list.md", FILE)

    assert project.call("scan", path="_import/raw/list.md").data == {
        "filePath": "_import/raw/list.md",
        "sizeBytes": len(FILE),
        "lineCount": 16,
        "frontmatter": {"kind": "list", "owner": "Ada"},
        "frontmatterFields": ["kind", "owner"],
        "headings": [{"level": 1, "text": "Items", "line": 7}],
        "blockCount": 2,
        "annotations": [{"type": "person", "value": "Ada", "label": "A"}],
        "valueCalls": ["owner"],
        "detectedPatterns": {
            "dates": ["2031-01-05"],
            "emails": ["a@b.example"],
            "amounts": ["1,250.00 USD"],
            "urls": ["https://x.example/y"],
        },
    }


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("no frontmatter\n", 2),
        ("---\n- a list\n---\nbody\n", 5),
        ("---\nbroken: [\n---\n# H\n", 5),
        ("---\nnever closed\n", 3),
        ("", 1),
    ],
)
def test_frontmatter_that_is_none_leaves_the_whole_file_as_body(project, text, lines):
    project.write("_import/a.md", text)

    data = project.call("scan", path="_import/a.md").data

    assert data["frontmatter"] is None
    assert data["frontmatterFields"] == []
    assert data["lineCount"] == lines


def test_bytes_that_are_no_utf8_are_tolerated(project):
    project.write("_import/a.md", b"# Caf\xe9\n")
    assert project.call("scan", path="_import/a.md").data["headings"][0]["text"] == "Caf\ufffd"


def test_patterns_are_listed_once_and_ten_at_most():
    text = " ".join(f"2031-01-{day:02} 2031-01-{day:02}" for day in range(1, 20))
    assert detect_patterns(text)["dates"] == [f"2031-01-{day:02}" for day in range(1, 11)]


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("30 EUR, 5$ and 7.50 dollars", ["30 EUR", "5$", "7.50 dollars"]),
        ("1,000,000 usd", ["1,000,000 usd"]),
        ("30 EURO", []),
        ("USD 30", []),
    ],
)
def test_amounts_are_numbers_before_a_currency(text, amounts):
    assert detect_patterns(text)["amounts"] == amounts


@pytest.mark.parametrize("text", ["1," * 200_000, "a" * 400_000, "9" * 400_000, "a@" * 200_000])
def test_patterns_take_no_more_than_linear_time(text):
    assert detect_patterns(text) == {"dates": [], "emails": [], "amounts": [], "urls": []}


@pytest.fixture
def corpus(project):
    project.write(
        "_import/b.md", "---\ndoc_type: report\nkind: a\nowner: b\n---\n# Report\n## Items\n"
    )
    project.write("_import/a/c.md", "---\nowner: b\nkind: a\n---\n## Items\n[[person:Ada|x]]\n")
    project.write("_import/a-0.md", "## Items\n[[person:Ada|x]] [[site:North|y]]\n")
    project.write("_import/_hidden.md", "## Items\n")
    project.write("_import/.dot/x.md", "## Items\n")
    project.write("_import/node_modules/x.md", "## Items\n")
    project.write("_import/readme.txt", "## Items\n")
    return project


def test_a_directory_is_read_as_a_corpus(corpus):
    assert corpus.call("scan", path="_import").data == {
        "directory": "_import",
        "totalFiles": 3,
        "totalLines": 8 + 7 + 3,
        "files": [
            {"path": "a-0.md", "lineCount": 3, "hasFrontmatter": False, "frontmatterFields": []},
            {
                "path": "a/c.md",
                "lineCount": 7,
                "hasFrontmatter": True,
                "frontmatterFields": ["owner", "kind"],
            },
            {
                "path": "b.md",
                "lineCount": 8,
                "hasFrontmatter": True,
                "frontmatterFields": ["doc_type", "kind", "owner"],
            },
        ],
        "frontmatterFieldFrequency": {"owner": 2, "kind": 2, "doc_type": 1},
        "headingPatterns": [{"text": "Items", "level": 2, "occurrences": 3}],
        "likelyDocumentFamilies": [
            {
                "name": "report",
                "fileCount": 2,
                "sharedFields": ["kind", "owner"],
                "sharedHeadings": ["Items"],
                "sampleFiles": ["a/c.md", "b.md"],
            }
        ],
        "entitySummary": [
            {"type": "person", "value": "Ada", "occurrences": 2},
            {"type": "site", "value": "North", "occurrences": 1},
        ],
    }


@pytest.mark.parametrize(
    ("types", "folders", "name"),
    [
        (("memo", None), ("x", "x"), "memo"),
        (("memo", "letter"), ("x", "x"), "x"),
        ((None, None), ("x", "y"), "x"),
        ((None, None), ("", ""), "_import"),
    ],
)
def test_a_family_is_named_by_its_type_else_by_its_folder(project, types, folders, name):
    for number, (doc_type, folder) in enumerate(zip(types, folders, strict=True)):
        typed = f"doc_type: {doc_type}\n" if doc_type else ""
        project.write(f"_import/{folder}/{number}.md", f"---\n{typed}kind: a\n---\n")

    families = project.call("scan", path="_import").data["likelyDocumentFamilies"]

    assert [family["name"] for family in families] == [name]


def test_families_headings_and_entities_come_in_their_order(project):
    for number in range(4):
        kind = "kind: a\n" if number < 2 else "owner: b\n"
        body = "# Top\n\n## One\n\n## Two\n" if number else "# Top\n\n## Two\n"
        people = " ".join(f"[[person:P{n:02}|x]]" for n in range(40)) + " [[person:P39|x]]"
        project.write(f"{number}.md", f"---\n{kind}---\n{body}{people if number == 3 else ''}\n")
    project.write("4.md", "---\nowner: b\n---\n# Top\n")

    data = project.call("scan", path=".").data

    families = data["likelyDocumentFamilies"]
    assert [(one["name"], one["fileCount"], one["sharedHeadings"]) for one in families] == [
        ("family-1", 3, ["Top"]),
        ("family-2", 2, ["Top", "Two"]),
    ]
    assert families[0]["sampleFiles"] == ["2.md", "3.md", "4.md"]
    assert [(one["text"], one["occurrences"]) for one in data["headingPatterns"]] == [
        ("Top", 5), ("Two", 4), ("One", 3),
    ]  # fmt: skip
    assert len(data["entitySummary"]) == 30
    assert data["entitySummary"][0] == {"type": "person", "value": "P39", "occurrences": 2}


def test_the_project_itself_can_be_scanned(project):
    project.record("vendor", "ven-1", name="N")
    data = project.call("scan", path=".").data
    assert data["directory"] == "."
    assert [file["path"] for file in data["files"]] == ["vendors/ven-1.md"]


@pytest.mark.parametrize(
    ("limits", "read", "skipped"),
    [
        ({"scan_max_files": 2}, 2, 1),
        ({"scan_max_bytes": 60}, 1, 2),
        ({"max_doc_bytes": 50}, 1, 2),
    ],
)
def test_the_walk_is_bounded_and_says_what_it_left_out(corpus, limits, read, skipped):
    corpus.settings = msgspec.structs.replace(corpus.settings, **limits)

    data = corpus.call("scan", path="_import").data

    assert data["totalFiles"] == read
    assert data["truncated"] is True
    assert data["skippedFiles"] == skipped


def test_links_below_the_start_are_not_followed(corpus, tmp_path):
    (tmp_path / "secret.md").write_text("secret")
    (corpus.path / "_import/link.md").symlink_to(tmp_path / "secret.md")
    (corpus.path / "_import/loop").symlink_to(".")

    assert corpus.call("scan", path="_import").data["totalFiles"] == 3


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "out", "out/x.md"])
def test_nothing_outside_the_project_is_scanned(project, tmp_path, path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x.md").write_text("x")
    (project.path / "out").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(MaadError, match="PATH_OUTSIDE_PROJECT"):
        project.call("scan", path=path)


@pytest.mark.parametrize(
    "path", ["none.md", "_import/none", "_auth/tokens.yaml", "_backend/maad.db", ".git/config"]
)
def test_what_is_not_there_or_not_for_reading_is_not_found(project, path):
    project.write("_auth/tokens.yaml", "tokens: []")
    project.write(".git/config", "[core]")

    with pytest.raises(MaadError, match="PATH_NOT_FOUND"):
        project.call("scan", path=path)


def test_a_file_over_the_document_cap_is_refused(corpus):
    corpus.settings = msgspec.structs.replace(corpus.settings, max_doc_bytes=10)
    with pytest.raises(MaadError, match="DOC_TOO_LARGE"):
        corpus.call("scan", path="_import/b.md")
