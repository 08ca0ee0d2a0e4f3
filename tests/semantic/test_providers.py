"""Providers by themselves (spec 02 §6.2)."""

from __future__ import annotations

import importlib.metadata
import math
import struct
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from maadd.protocol.messages import EmbeddingSettings
from maadd_worker.semantic.providers.choose import make_embedder
from maadd_worker.semantic.providers.embedder import (
    ProviderUnavailable,
    ProviderUnusable,
    packed,
)
from maadd_worker.semantic.providers.fake import FakeEmbedder, word_hash
from maadd_worker.semantic.providers.openai import OpenAIEmbedder


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("ledger", 0xEE7C1C8C),
        ("pump", 0x932F6B6B),
        ("valve", 0x626144C1),
        ("é", 0x6C0B6C44),
        ("𝛼", 0xF6DDF744),
    ],
)
def test_words_are_hashed_by_their_utf_16_units(word: str, number: int) -> None:
    assert word_hash(word) == number


def test_the_fake_vector_of_a_text() -> None:
    [vector] = FakeEmbedder(8).embed(["Pump valve, pump ledger"], "document")
    expected = [0, -0.408248, 0, -0.816497, 0.408248, 0, 0, 0]
    assert vector == pytest.approx(expected, abs=1e-6)
    assert FakeEmbedder(4).embed([" ."], "query") == [[1, 0, 0, 0]]
    assert FakeEmbedder().dim == 64


@pytest.mark.parametrize(
    ("model", "dim", "width", "dimensions"),
    [
        (None, None, 1536, None),
        ("text-embedding-3-large", None, 3072, None),
        ("text-embedding-3-large", 256, 256, 256),
        ("text-embedding-3-small", 1536, 1536, None),
        ("text-embedding-ada-002", 1536, 1536, None),
        ("nomic", 768, 768, None),
    ],
)
def test_the_width_of_an_openai_model(
    model: str | None, dim: int | None, width: int, dimensions: int | None
) -> None:
    made = OpenAIEmbedder("http://x/", "k", model, dim)
    assert (made.dim, made._dimensions) == (width, dimensions)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (EmbeddingSettings(provider="openai"), "MAAD_OPENAI_API_KEY"),
        (EmbeddingSettings(provider="openai", openai_api_key="k", model="x"), "MAAD_EMBED_DIM"),
        (EmbeddingSettings(provider="openai", openai_api_key="k", dim=1537), "above"),
        (
            EmbeddingSettings(
                provider="openai", openai_api_key="k", model="text-embedding-ada-002", dim=5
            ),
            "no other",
        ),
        (EmbeddingSettings(provider="fake", dim=8193), "8192"),
        (EmbeddingSettings(provider="nobody"), "nobody"),
        (EmbeddingSettings(provider="local", model_path="/nowhere"), "/nowhere"),
    ],
)
def test_settings_that_make_no_provider_say_what_to_change(
    settings: EmbeddingSettings, told: str
) -> None:
    with pytest.raises(ProviderUnusable, match=told):
        make_embedder(settings)


def test_without_a_name_there_is_no_provider() -> None:
    assert make_embedder(EmbeddingSettings()) is None


def _own_provider(settings: EmbeddingSettings) -> FakeEmbedder:
    if settings.dim == 13:
        raise ZeroDivisionError
    return FakeEmbedder(settings.dim or 5)


def test_another_package_can_bring_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str, name: str) -> list[EntryPoint]:
        assert (group, name) == ("maadd.embedding_providers", "own")
        return [EntryPoint("own", f"{__name__}:_own_provider", group)]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setattr(EntryPoint, "load", lambda self: _own_provider)
    made = make_embedder(EmbeddingSettings(provider="own"))
    assert made is not None
    assert made.dim == 5
    with pytest.raises(ProviderUnusable, match="ZeroDivisionError"):
        make_embedder(EmbeddingSettings(provider="own", dim=13))


@pytest.mark.parametrize(
    ("vectors", "told"),
    [
        ([[1.0, 2.0]], "1 vectors for 2 texts"),
        ([[1.0, 2.0], [1.0]], "width 1 instead of 2"),
        ([bytes(8), bytes(7)], "7 bytes instead of 8"),
        ([bytes(8), struct.pack("<2f", 1, math.nan)], "not finite"),
        ([bytes(8), [math.inf, 1]], "not finite"),
        ([bytes(8), ["a", 1]], "numbers"),
        ([bytes(8), [1e300, 1]], "numbers"),
    ],
)
def test_wrong_vectors_are_refused(vectors: Any, told: str) -> None:
    with pytest.raises(ProviderUnavailable, match=told):
        packed(vectors, 2, 2)


def test_vectors_are_kept_as_little_endian_floats() -> None:
    assert packed([[1.0, -2.0], struct.pack("<2f", 3, 4)], 2, 2) == [
        struct.pack("<2f", 1, -2),
        struct.pack("<2f", 3, 4),
    ]


class TestLocal:
    """The vectors of the package wordllama, where the extra `local` is installed."""

    @pytest.fixture(autouse=True)
    def _needs_the_extra(self) -> None:
        pytest.importorskip("safetensors", reason="the extra local is not installed")
        pytest.importorskip("tokenizers", reason="the extra local is not installed")
        pytest.importorskip("wordllama", reason="the extra local is not installed")

    def embed(self, *texts: str, dim: int | None = None) -> list[tuple[float, ...]]:
        made = make_embedder(EmbeddingSettings(provider="local", dim=dim))
        assert made is not None
        data = packed(made.embed(texts, "document"), len(texts), made.dim)
        return [struct.unpack(f"<{made.dim}f", vector) for vector in data]

    def test_texts_about_the_same_are_near(self) -> None:
        car, vehicle, soup = self.embed(
            "The car needs a new engine.",
            "Repair the motor of the vehicle!",
            "Add salt and pepper to the soup.",
        )
        assert math.dist(car, vehicle) < math.dist(car, soup)

    def test_vectors_have_length_one_also_for_nothing_and_shorter_ones(self) -> None:
        for vector in (*self.embed("a word", "", " \n"), *self.embed("a word", dim=64)):
            assert math.hypot(*vector) == pytest.approx(1, abs=1e-6)

    def test_a_text_has_the_same_vector_in_any_company(self) -> None:
        alone = self.embed("some words")
        assert self.embed("other", "some words", "x" * 5000)[1] == alone[0]

    def test_weights_from_another_folder(self, tmp_path: Path) -> None:
        from maadd_worker.semantic.providers.local import package_folder

        for name in ("weights", "tokenizers"):
            (tmp_path / name).symlink_to(package_folder() / name)
        made = make_embedder(EmbeddingSettings(provider="local", model_path=str(tmp_path)))
        assert made is not None
        assert [made.embed(["x y"], "query")[0]] == make_embedder(
            EmbeddingSettings(provider="local")
        ).embed(["x y"], "query")

    def test_it_is_not_wider_than_its_model(self) -> None:
        with pytest.raises(ProviderUnusable, match="256"):
            make_embedder(EmbeddingSettings(provider="local", dim=257))
