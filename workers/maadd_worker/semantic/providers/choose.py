"""From the settings to a provider (spec 02 §6.1)."""

from __future__ import annotations

from pathlib import Path

from maadd.protocol.messages import PROVIDER_GROUP, EmbeddingSettings
from maadd_worker.semantic.layout import MAX_DIM
from maadd_worker.semantic.providers.embedder import Embedder, ProviderUnusable


def make_embedder(settings: EmbeddingSettings) -> Embedder | None:
    """The provider that the settings name, None without a name; ProviderUnusable says why there
    is none."""
    embedder = _made(settings)
    if embedder is not None and not 1 <= embedder.dim <= MAX_DIM:
        raise ProviderUnusable(f"vectors have 1 to {MAX_DIM} dimensions, not {embedder.dim}")
    return embedder


def _made(settings: EmbeddingSettings) -> Embedder | None:
    match settings.provider:
        case None:
            return None
        case "fake":
            from maadd_worker.semantic.providers.fake import FakeEmbedder

            return FakeEmbedder(settings.dim or 64)
        case "local":
            from maadd_worker.semantic.providers import local

            given = settings.model_path
            folder = local.package_folder() if given is None else Path(given)
            model = settings.model or local.DEFAULT_MODEL
            return local.LocalEmbedder(folder, model, settings.dim or local.NATIVE_DIM)
        case "openai":
            from maadd_worker.semantic.providers.openai import OpenAIEmbedder

            return OpenAIEmbedder(
                settings.openai_base_url,
                settings.openai_api_key,
                settings.model,
                settings.dim,
                query_timeout_s=settings.timeout_ms / 1000,
            )
        case name:
            return _of_others(name, settings)


def _of_others(name: str, settings: EmbeddingSettings) -> Embedder:
    from importlib.metadata import entry_points  # brings the mail and archive modules with it

    for entry in entry_points(group=PROVIDER_GROUP, name=name):
        try:
            embedder: Embedder = entry.load()(settings)
        except ProviderUnusable:
            raise
        except Exception as error:
            # Code of another package: whatever it raises, records are served without it.
            raise ProviderUnusable(
                f'the embedding provider "{name}" could not be made ({type(error).__name__}: '
                f"{error})"
            ) from error
        return embedder
    raise ProviderUnusable(f'no installed package has the embedding provider "{name}"')
