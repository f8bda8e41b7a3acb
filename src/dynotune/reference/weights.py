"""A digest of the files of a model's weights, many threads at once and remembered, and one of its configuration."""

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import xxhash

from dynotune.cache_folder import cache_folder
from dynotune.data.sources.contents import FileState

_PART = 1 << 29
"""Bytes that one thread reads: a file of 15 GB is read by all of them."""

_READ = 1 << 23
_THREADS = 8
_MOST = 4096
"""Files that are remembered. The oldest are forgotten."""

NOT_MATHEMATICS = frozenset(
    {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache", "output_attentions"}
    | {"output_hidden_states", "return_dict", "_attn_implementation", "id2label", "label2id"}
)
"""Of a model's configuration. Precision is a part of the key of its own; anything that is not named here counts."""


def files_digest(files: Sequence[Path], memory: Path | None = None) -> str:
    """XXH3-128 of what these safetensors files hold and of their names, whatever folder they lie in.

    A file of unchanged path, size, times and inode is not read again: `memory` (by default in Dynotune's cache folder)
    knows it. Raises `OSError` where one cannot be read.
    """
    memory = memory or cache_folder() / "reference" / "weights.json"
    known = _remembered(memory)
    states = [FileState.of(path.resolve(strict=True)) for path in files]
    old = [known.get(state.path) for state in states]
    hashes = [
        then.hash if then is not None and then.is_still(now) else "" for then, now in zip(old, states, strict=True)
    ]
    unread = [i for i, known_hash in enumerate(hashes) if not known_hash]
    if unread:
        for i, read in zip(unread, _read([(states[i].path, states[i].size) for i in unread]), strict=True):
            hashes[i] = read
            known.pop(states[i].path, None)
            known[states[i].path] = FileState(**{**states[i].__dict__, "hash": read})
        _remember(memory, known)
    whole = blake2b(digest_size=16)
    for name, one in sorted((path.name, one) for path, one in zip(files, hashes, strict=True)):
        whole.update(f"{name}\0{one}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def config_digest(config: Mapping[str, Any]) -> str:
    """Of a model's configuration (`config.to_dict()`): a rope base or a soft-cap changes what the same weights compute."""
    told = {key: value for key, value in config.items() if key not in NOT_MATHEMATICS}
    return blake2b(json.dumps(told, sort_keys=True, default=_plain).encode(), digest_size=16).hexdigest()


def _plain(value: Any) -> Any:
    """Of what JSON does not know. A set has another order in another process."""
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


def _read(files: list[tuple[str, int]]) -> list[str]:
    parts = [(i, start) for i, (_, size) in enumerate(files) for start in range(0, max(1, size), _PART)]
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        read = list(pool.map(lambda part: _part_digest(files[part[0]][0], part[1]), parts))
    wholes = [xxhash.xxh3_128() for _ in files]
    for (i, _), digest in zip(parts, read, strict=True):
        wholes[i].update(digest)
    return [whole.hexdigest() for whole in wholes]


def _part_digest(path: str, start: int) -> bytes:
    digest, left = xxhash.xxh3_128(), _PART
    buffer = memoryview(bytearray(_READ))
    with Path(path).open("rb", buffering=0) as file:
        file.seek(start)
        while left and (count := file.readinto(buffer[: min(_READ, left)])):
            digest.update(buffer[:count])
            left -= count
    return digest.digest()


def _remembered(memory: Path) -> dict[str, FileState]:
    try:
        return {state["path"]: FileState(**state) for state in json.loads(memory.read_bytes())}
    except (OSError, ValueError, TypeError, KeyError):
        return {}  # nothing is lost but the time to read the files again


def _remember(memory: Path, known: dict[str, FileState]) -> None:
    beside = memory.with_name(f".{memory.name}.{os.getpid()}")
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps([state.__dict__ for state in known.values()][-_MOST:]))
        beside.replace(memory)
    except OSError:
        pass  # a cache that cannot be written costs the time to read the files again
