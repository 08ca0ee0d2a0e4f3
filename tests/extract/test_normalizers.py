from __future__ import annotations

import json

import pytest

from maadd_worker.extract.primitives import PRIMITIVES, normalize
from maadd_worker.extract.references import looks_like_contact


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("March 28, 2026", "2026-03-28"),
        ("Mar 28, 2026", "2026-03-28"),
        ("MAR 28 2026", "2026-03-28"),
        ("28 March 2026", "2026-03-28"),
        ("03/28/2026", "2026-03-28"),
        ("January 5, 2025", "2025-01-05"),
        ("July 14, 2031", "2031-07-14"),
        ("May 1, 2030", "2030-05-01"),
        ("2-25-26", "2026-02-25"),
        ("12-31-99", "1999-12-31"),
        ("1-2-50", "1950-01-02"),
        ("1/2/49", "2049-01-02"),
        ("2026-03-28T14:30:00Z", "2026-03-28T14:30:00Z"),
        ("2026-13-45", "2026-13-45"),
        ("2026-03-28 extra", "2026-03-28 extra"),
        (" 2026-03-28 ", "2026-03-28"),
        ("2026", None),
        ("2026-04", None),
        ("2026-3-1", None),
        ("20260328", None),
        ("March 2026", None),
        ("28 march, 2026", None),
        ("Sept 28, 2026", None),
        ("", None),
        ("February 30, 2026", None),
        ("31 April 2026", None),
        ("13/01/2026", None),
        ("02/30/26", None),
        ("0/1/2026", None),
        ("March 28, 2026\nx", None),
        ("٣/٢٨/٢٠٢٦", None),
    ],
)
def test_dates(text: str, normalized: str | None) -> None:
    assert normalize("date", text) == normalized


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("3 hours", "PT3H"),
        ("2 weeks", "P2W"),
        ("3 weeks", "P3W"),
        ("45 minutes", "PT45M"),
        ("1 hour 30 minutes", "PT1H30M"),
        ("2hrs", "PT2H"),
        ("30min", "PT30M"),
        ("1.5 hours", "PT1.5H"),
        ("1y2mo3d4h", "P1Y2M3DT4H"),
        ("1 hour 1 day", "P1DT1H"),
        ("PT3H", "PT3H"),
        ("pt5m", "PT5M"),
        ("P1Y2M", "P1Y2M"),
        ("P3D", "P3D"),
        ("3 days 4 hours 5 seconds", "P3DT4H5S"),
        ("about 3 hours", "PT3H"),
        ("-3 hours", "PT3H"),
        ("3 Hrs, 20 SECS", "PT3H20S"),
        ("P1DT2H", "P1DT2H"),
        ("P1Y2M10DT2H30M", "P1Y2M10DT2H30M"),
        ("p1dt0.5s", "P1DT0.5S"),
        ("5m", None),
        ("90", None),
        ("3 fortnights", None),
        ("3 hours 2 fortnights", None),
        ("not a duration", None),
        ("", None),
        ("P1DT", None),
    ],
)
def test_durations(text: str, normalized: str | None) -> None:
    assert normalize("duration", text) == normalized


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("100.00 USD", "100", "USD"),
        ("1,250.00 USD", "1250", "USD"),
        ("340.00 EUR", "340", "EUR"),
        (" 0.10 GBP ", "0.1", "GBP"),
        ("$100", "100", "USD"),
        ("$ 100", "100", "USD"),
        ("€50.00", "50", "EUR"),
        ("£1,234.5", "1234.5", "GBP"),
        ("$-5", "-5", "USD"),
        ("$100 USD", "100", "USD"),
        ("¥1000", "1000", "JPY"),
        ("₹5", "5", "INR"),
        ("₩9", "9", "KRW"),
        ("C$7.25", "7.25", "CAD"),
        ("A$8", "8", "AUD"),
    ],
)
def test_amounts(text: str, amount: str, currency: str) -> None:
    assert normalize("amount", text) == f'{{"amount":{amount},"currency":"{currency}"}}'


@pytest.mark.parametrize(
    "text",
    [
        "100 usd",
        "100USD",
        "USD 100",
        "-$5",
        "1.250,00 EUR",
        "R$5",
        "free",
        "$",
        "$free",
        ", USD",
        "100 USD\n100 USD",
        "",
        "9" * 400 + " USD",
    ],
)
def test_what_is_no_amount(text: str) -> None:
    assert normalize("amount", text) is None


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("500mg", "500", "mg"),
        ("6 feet", "6", "feet"),
        ("98.6°F", "98.6", "°F"),
        ("15 C", "15", "C"),
        ("1,200 sq ft", "1200", "sq ft"),
        ("6'2\"", "6", "'2\""),
    ],
)
def test_measures(text: str, value: str, unit: str) -> None:
    normalized = normalize("measure", text)
    assert normalized == f'{{"value":{value},"unit":{json.dumps(unit, ensure_ascii=False)}}}'


@pytest.mark.parametrize("text", ["500", "98.6", "heavy", "-5 C", ".5 kg", "10 20 kg", ", kg", ""])
def test_what_is_no_measure(text: str) -> None:
    assert normalize("measure", text) is None


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("42", "42"),
        ("3.5", "3.5"),
        ("1,000", "1000"),
        ("12 apples", "12"),
        ("-5", "-5"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("0x10", "0"),
        ("3.0", "3"),
        ("9007199254740993", "9007199254740993"),
        ("1e21", "1e+21"),
        ("0.0000001", "1e-7"),
        ("Infinity", None),
        ("nan", None),
        ("1e999", None),
        ("twelve", None),
        ("", None),
        ("٣", None),
    ],
)
def test_quantities(text: str, normalized: str | None) -> None:
    assert normalize("quantity", text) == normalized


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("15%", "0.15"),
        ("15 %", "0.15"),
        ("150%", "1.5"),
        ("8%", "0.08"),
        ("7%", "0.07"),
        ("0.57%", "0.0057"),
        ("85 Percent", "0.85"),
        ("0.15", "0.15"),
        ("1", "1"),
        ("0", "0"),
        ("15", None),
        ("1.5", None),
        ("-5%", None),
        ("high", None),
        ("%", None),
        (".%", None),
        ("", None),
    ],
)
def test_percentages(text: str, normalized: str | None) -> None:
    assert normalize("percentage", text) == normalized


@pytest.mark.parametrize("primitive", ["entity", "location", "identifier"])
def test_names_keep_their_words_and_lose_extra_space(primitive: str) -> None:
    assert normalize(primitive, "  Ana\t Maria\u00a0 Roe \ufeff") == "Ana Maria Roe"
    assert normalize(primitive, "ANA") == "ANA"


@pytest.mark.parametrize(
    ("text", "kind", "normalized"),
    [
        ("(555) 010-0100", "phone", "5550100100"),
        ("+1-555-010-0100", "phone", "+15550100100"),
        ("+44 (20) 555-0101", "phone", "+44205550101"),
        ("acme.com", "url", "https://acme.com"),
        ("http://acme.com", "url", "http://acme.com"),
        ("https://Acme.com/A", "url", "https://Acme.com/A"),
        ("Jane@Acme.COM", "email", "jane@acme.com"),
        (" Ask at the Desk ", "hotline", "Ask at the Desk"),
        ("J@K.com", "hotline", "J@K.com"),
        ("J@K.com", "contact", "j@k.com"),
        ("+1-555-010-0100", "contact", "+15550100100"),
        ("www.acme.com", "contact", "https://www.acme.com"),
        ("Jane@Acme.COM", None, "jane@acme.com"),
        ("555 010 0100", None, "5550100100"),
        ("www.acme.com", None, "https://www.acme.com"),
        ("https://acme.com", None, "https://acme.com"),
        (" The Desk ", None, "The Desk"),
    ],
)
def test_contacts(text: str, kind: str | None, normalized: str) -> None:
    assert normalize("contact", text, kind) == normalized


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("img/gentian.JPG", "image"),
        ("a.b.svg", "image"),
        ("clip.webm", "video"),
        ("talk.flac", "audio"),
        ("report.docx", "document"),
        ("table.csv", "document"),
        ("flow.puml", "diagram"),
        ("archive.zip", "unknown"),
        ("noextension", "unknown"),
        ('say "hi".png', "image"),
    ],
)
def test_media(path: str, kind: str) -> None:
    normalized = normalize("media", f" {path} ")
    assert normalized == f'{{"path":{json.dumps(path)},"mediaType":"{kind}"}}'


def test_an_empty_path_is_no_medium() -> None:
    assert normalize("media", "  ") is None


def test_every_primitive_has_a_normal_form() -> None:
    assert all(isinstance(normalize(primitive, "1"), str | None) for primitive in PRIMITIVES)


@pytest.mark.parametrize("primitive", PRIMITIVES)
@pytest.mark.parametrize("text", ["1" * 200_000, "1 " * 100_000, "a.b@" * 50_000, ", " * 100_000])
def test_long_hostile_text_is_read_in_linear_time(primitive: str, text: str) -> None:
    normalize(primitive, text)


@pytest.mark.parametrize(
    ("text", "contact"),
    [
        ("ines@seedbank.example", True),
        ("a+b.c@x-y.co.uk", True),
        ("+44 (20) 555-0101", True),
        ("5550100", True),
        ("http://x.y", True),
        ("https://x.y/z?q=1", True),
        ("write to ines@seedbank.example", False),
        ("ines@localhost", False),
        ("555010", False),
        ("www.x.y", False),
        ("2026-04-01", False),
        ("2026.04.01", False),
        ("01-04-2026", False),
        ("1.4.2026", False),
        ("2026-04-01 2026-04-02", False),
        ("- - - - -", False),
        ("Ridge Crew", False),
        ("5550100\n", True),
        ("", False),
    ],
)
def test_contacts_are_recognised_in_string_fields(text: str, contact: bool) -> None:
    assert looks_like_contact(text) is contact
