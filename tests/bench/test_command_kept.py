"""Promise: the command that a result keeps can be typed again, and tells nobody a secret."""

import shlex

from dynotune.cli_measure import _command
from dynotune.command_line import WORDS


def kept(*words: str) -> str:
    token = WORDS.set(words)
    try:
        return _command()
    finally:
        WORDS.reset(token)


def test_words_that_a_shell_would_read_are_quoted() -> None:
    words = ("bench", "--config", "a b.yaml", "--expect", "speed>=1.2, peak<=1.05")
    assert shlex.split(kept(*words)) == ["dynotune", *words]


def test_no_secret_is_in_it() -> None:
    """By its key, by its looks, and whatever `env` holds; the keys behind it are shown."""
    text = kept(
        "bench", "--hub_token", "plain", "--env", "A=nobody", "B=none", "--hub-token=open", "--seed", "3",
        "--set", "model_name_or_path=https://me:pw@host/x", "--", "tool", "hf_ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    )  # fmt: skip
    for secret in ("plain", "nobody", "none", "open", "pw@", "hf_ABC"):
        assert secret not in text
    assert "--seed 3" in text
    assert "tool" in text
