"""Where stores lie."""

from __future__ import annotations

from pathlib import Path

from dynotune.cache_folder import cache_folder as dynotunes_folder


def cache_folder(token_cache_dir: str | None) -> Path:
    """The folder of all token stores: the key, or `tokens` in Dynotune's cache folder."""
    if token_cache_dir is not None:
        return Path(token_cache_dir).expanduser().absolute()
    return dynotunes_folder() / "tokens"
