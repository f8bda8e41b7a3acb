"""Which settings of a run may be shown to others."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

SECRET_NAMES = {"token", "hub_token", "use_auth_token", "api_key", "password", "secret"}
SECRET_ENDINGS = ("_api_key", "_password", "_secret", "_auth_token", "_access_token")


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without tokens, keys and passwords at any depth, and without `env` (variables may hold either)."""
    return {
        key: without_secrets(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if key != "env" and key.lower() not in SECRET_NAMES and not key.lower().endswith(SECRET_ENDINGS)
    }


def without_local_paths(value: Any) -> Any:
    """The value with every absolute path replaced by its last part, at any depth: where a disk was mounted concerns
    nobody else."""
    if isinstance(value, Mapping):
        return {key: without_local_paths(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_local_paths(item) for item in value]
    if isinstance(value, PurePath):
        value = str(value)
    if isinstance(value, str) and (value.startswith(("/", "~", "\\\\")) or value[1:3] in (":\\", ":/")):
        return value.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    return value
