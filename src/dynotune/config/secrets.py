"""What is secret in a configuration, in one place: all that is written, shown or sent asks here.

A secret is known by its key, by the name of an entry at any depth of a mapping, or by its looks (a URL with a password,
the prefix of an access token). Values of `env` are all secret: anyone may choose the names of variables.
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

HIDDEN = "(hidden)"
_FLAG = re.compile(r"--([\w.-]+)(=)?")
SECRET_KEYS = frozenset(
    {"hub_token", "push_to_hub_token", "hf_hub_token", "aws_access_key_id", "aws_secret_access_key"}
)
_SECRET_WORDS = frozenset(
    {
        *("secret", "secrets", "password", "passwd", "passphrase", "pwd", "credential", "credentials", "bearer"),
        *(
            "auth",
            "authorization",
            "apikey",
            "apitoken",
            "accesskey",
            "secretkey",
            "privatekey",
            "cookie",
            "pat",
            "jwt",
        ),
    }
)
_MISSPELT = ("token", "secret", "password", "passwd", "credential")
"""Also where a letter is missing, doubled or another: a key nobody knows may be one of these."""

_NO_MISSPELLING = frozenset({"tokens", "secrets", "credentials"})
_KEYS_OF = frozenset({"api", "access", "private", "secret", "account", "shared", "signing", "service", "encryption"})
_TOKENS_OF_VOCABULARY = frozenset(
    {
        *("eos", "bos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "end", "start", "stop"),
        *("special", "new", "added", "per", "think", "system", "user", "assistant", "tool"),
    }
)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LOOKS = (
    # The part of a URL before `@`; a password that holds a slash ends at the `@` too, a port does not begin one.
    (re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s:@]*:(?!\d+[/?#])[^\s@]*@)"), f"{HIDDEN}@"),
    (re.compile(r"(?<![\w.+%:/-])[\w.+%-]+:[^\s/@:\\'\"`]+@(?=[A-Za-z0-9])"), f"{HIDDEN}@"),
    (
        re.compile(
            r"(?i)([?&][\w-]*(?:token|secret|password|signature|credential|api_?key|sig)=)[^&#\s'\"`]+",
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(
            r"(?<![A-Za-z0-9])(?:(?:hf|ghp|gho|ghu|ghs|ghr|glpat|github_pat|wandb_v1|api_org)[_-](?=\w*[A-Z0-9])\w{10,}"
            r"|hf_[A-Za-z0-9]{20,}|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[A-Z0-9]{12,}|eyJ[\w-]{10,}\.[\w.-]{10,})"
        ),
        HIDDEN,
    ),
)


def is_secret(key: str, name: str | None = None) -> bool:
    """Whether a key, or the entry `name` at any depth of a mapping that it holds, is a secret."""
    if name is None:
        return key in SECRET_KEYS
    return key == "env" or names_a_secret(name)


def names_a_secret(name: str) -> bool:
    """Whether a name says that its value is a secret: `token`, `accessToken`, `MY_API_KEY`, but not `eos_token`."""
    parts = [_spelt(part.lower()) for part in _PARTS.findall(name)]
    if _SECRET_WORDS & set(parts):
        return True
    before = [None, *parts]
    return any(
        (part == "token" and above not in _TOKENS_OF_VOCABULARY and following not in {"id", "ids", "type", "name"})
        or (part == "key" and above in _KEYS_OF)
        for above, part, following in zip(before, parts, [*parts[1:], None], strict=False)
    )


def _spelt(part: str) -> str:
    if part in ("keyy", "kye"):
        return "key"
    if part in _NO_MISSPELLING or len(part) < 4:
        return part
    return next(iter(get_close_matches(part, _MISSPELT, 1, cutoff=0.88)), part)


def masked(text: str) -> str:
    """`text` without what looks like a secret: user and password of URLs, access tokens."""
    for looks, instead in _LOOKS:
        text = looks.sub(instead, text)
    return text


def without_secret_words(words: Sequence[str]) -> list[str]:
    """The words of a command, ours or another: of a flag that holds a secret, all words are hidden."""
    found, hides = [], False
    for word in words:
        if flag := _FLAG.match(word):
            key = flag[1].replace("-", "_")
            hides = key == "env" or is_secret(key) or names_a_secret(key)
            found.append(f"--{flag[1]}={HIDDEN}" if hides and flag[2] else word)
        else:
            hides = hides and word not in ("--", "::")
            found.append(HIDDEN if hides else word)
    return found


def hidden(key: str, value: Any) -> Any:
    """A value in which every secret is replaced by `(hidden)`, for messages."""
    return HIDDEN if is_secret(key) else _without(key, value, drop=False)


def public(key: str, value: Any) -> Any:
    """A value for others: entries of a mapping that are secret are left out, what looks like a secret is masked."""
    return _without(key, value, drop=True)


def secret_names(key: str, value: Any) -> list[str]:
    """The entries that `public` leaves out, as `storage_options.secret`."""
    if isinstance(value, Mapping):
        return [
            found
            for name, item in value.items()
            for found in (
                [str(name)] if _hides(key, name, item) else [f"{name}.{inner}" for inner in secret_names(key, item)]
            )
        ]
    if isinstance(value, list | tuple):
        return [f"{place}.{inner}" for place, item in enumerate(value) for inner in secret_names(key, item)]
    return []


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without tokens, keys and passwords, and without `env`."""
    return {key: public(key, value) for key, value in settings.items() if key != "env" and not is_secret(key)}


def _hides(key: str, name: Any, value: Any) -> bool:
    # `token: true` says where to look for one.
    return not (value is None or isinstance(value, bool)) and is_secret(key, str(name))


def _without(key: str, value: Any, *, drop: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            masked(name) if isinstance(name, str) else name: HIDDEN
            if _hides(key, name, item)
            else _without(key, item, drop=drop)
            for name, item in value.items()
            if not (drop and _hides(key, name, item))
        }
    if isinstance(value, list | tuple):
        return [_without(key, item, drop=drop) for item in value]
    return masked(value) if isinstance(value, str) else value
