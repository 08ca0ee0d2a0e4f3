"""Names, contacts and media files as normalized text (spec 01 §6.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

from maadd_worker.markdown.text import JS_WHITESPACE, js_trim

_SPACES = re.compile(f"[{JS_WHITESPACE}]+")
_DETECTED_PHONE = re.compile(rf"\+?[0-9][0-9()\-.{JS_WHITESPACE}]{{6,}}")
_NOT_DIGIT = re.compile(r"[^0-9]+")

_FIELD_EMAIL = re.compile(r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}")
_FIELD_PHONE = re.compile(rf"\+?[0-9()\-.{JS_WHITESPACE}]{{7,}}")
_NUMERIC_DATE = re.compile(
    rf"(?:[0-9]{{4}}[-.][0-9]{{1,2}}[-.][0-9]{{1,2}}|[0-9]{{1,2}}[-.][0-9]{{1,2}}[-.][0-9]{{4}})"
    rf"(?:[{JS_WHITESPACE}].*)?",
    re.DOTALL,
)
_DIGIT = re.compile(r"[0-9]")

_EXTENSIONS_BY_KIND = {
    "image": "jpg jpeg png gif webp svg bmp tiff ico",
    "video": "mp4 mov avi mkv webm wmv",
    "audio": "mp3 wav ogg flac aac m4a",
    "document": "pdf doc docx xls xlsx ppt pptx txt csv",
    "diagram": "drawio mermaid puml",
}
_MEDIA_KINDS: Mapping[str, str] = MappingProxyType(
    {
        extension: kind
        for kind, extensions in _EXTENSIONS_BY_KIND.items()
        for extension in extensions.split()
    }
)


def normalize_name(text: str) -> str:
    """Trimmed, runs of white space as one space: entities, locations, identifiers."""
    if text.isprintable() and "  " not in text:  # then a blank is the only white space
        return text.strip(" ")
    return _SPACES.sub(" ", js_trim(text))


def normalize_contact(text: str, kind: str | None = None) -> str:
    """An address in comparable form.

    `kind` is the annotation type: `email`, `phone` and `url` are taken at their word, None and
    `contact` mean that the text decides, any other kind leaves the text as it is.
    """
    text = js_trim(text)
    if kind is None or kind == "contact":
        kind = _contact_kind(text)
    if kind == "email":
        return text.lower()
    if kind == "phone":
        return ("+" if text.startswith("+") else "") + _NOT_DIGIT.sub("", text)
    if kind == "url" and not text.lower().startswith(("http://", "https://")):
        return f"https://{text}"
    return text


def looks_like_contact(text: str) -> bool:
    """Whether the whole text of a string field is an e-mail address, a phone number or a URL.

    A numeric date is none, though it consists of the characters of a phone number.
    """
    if text.startswith(("http://", "https://")):
        return True
    if "@" in text:
        return _FIELD_EMAIL.fullmatch(text) is not None
    return (
        _FIELD_PHONE.fullmatch(text) is not None
        and _DIGIT.search(text) is not None
        and _NUMERIC_DATE.fullmatch(text) is None
    )


def normalize_media(text: str) -> str | None:
    """A file with its kind by extension: `{"path":"a.png","mediaType":"image"}`."""
    path = js_trim(text)
    if not path:
        return None
    kind = _MEDIA_KINDS.get(path.rpartition(".")[2].lower(), "unknown")
    return f'{{"path":{json.dumps(path, ensure_ascii=False)},"mediaType":"{kind}"}}'


def _contact_kind(text: str) -> str | None:
    if "@" in text and "." in text:
        return "email"
    if _DETECTED_PHONE.fullmatch(text):
        return "phone"
    return "url" if text.startswith(("http://", "https://", "www.")) else None
