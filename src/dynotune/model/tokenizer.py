"""The tokenizer: loaded, given the tokens and the template that were asked for, and checked."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.config.keys.data import DataConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.data.tokens.from_rust import named_failures
from dynotune.errors import ModelError, TemplateError
from dynotune.model.failures import loading_failures, words_of
from dynotune.model.weight_files import fetched, stands_here
from dynotune.printable import printable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TEMPLATE_FILES = (".jinja", ".j2")

LARGEST_ID = 1 << 24
"""The largest id that a token may have."""


@dataclass(frozen=True)
class TokenizerChanges:
    """What the settings changed, for those who must make the model agree."""

    new_ids: list[int] = field(default_factory=list)
    """Ids that the tokenizer did not have before: their embedding rows are untrained, whether or not the embedding has
    spare rows for them."""

    new_eos: bool = False
    """The end token is no longer the one that the tokenizer came with."""


def load_tokenizer(config: ModelConfig, data: DataConfig) -> "PreTrainedTokenizerBase":
    """The tokenizer of `config` with every setting applied. `load_tokenizer_and_changes` also says what changed."""
    return load_tokenizer_and_changes(config, data)[0]


def load_tokenizer_and_changes(
    config: ModelConfig, data: DataConfig
) -> tuple["PreTrainedTokenizerBase", TokenizerChanges]:
    """Load the tokenizer that `config` names and apply its settings.

    Raises `ModelError` when it cannot be loaded or a token is not in its vocabulary, `TemplateError` when
    `chat_template_path` gives no template.
    """
    name = config.tokenizer_name_or_path or config.model_name_or_path
    if not name:
        raise ModelError("No tokenizer: set `model_name_or_path`, or `tokenizer_name_or_path` where it lies elsewhere.")
    tokenizer = _from_pretrained(name, config.model_revision, config.trust_remote_code)
    return tokenizer, apply_settings(tokenizer, config, data)


def apply_settings(tokenizer: "PreTrainedTokenizerBase", config: ModelConfig, data: DataConfig) -> TokenizerChanges:
    """Apply `added_tokens`, `eos_token`, `chat_template_path` and `pad_token` to a tokenizer, in place.

    Also for a tokenizer that a Python user passes. The order is TRL's, with the added tokens first so that
    `eos_token` and `pad_token` may name one of them.
    """
    before = set(tokenizer.get_vocab().values())
    eos_before = tokenizer.eos_token
    _add_tokens(tokenizer, config.added_tokens)
    if config.eos_token is not None:
        _require_in_vocabulary(tokenizer, "eos_token", config.eos_token)
        tokenizer.eos_token = config.eos_token
    if data.chat_template_path is not None:
        _take_template(
            tokenizer, data.chat_template_path, keep_eos=config.eos_token is not None, trust=config.trust_remote_code
        )
    pad_token = config.pad_token or tokenizer.pad_token or tokenizer.eos_token
    if pad_token is None:
        raise ModelError(
            f"The tokenizer {_name(tokenizer)} has neither a padding nor an end token. Set `eos_token`"
            " (and `pad_token`, if it is to be another one) to tokens of its vocabulary, or to ones in `added_tokens`."
        )
    _require_in_vocabulary(tokenizer, "pad_token", pad_token)
    tokenizer.pad_token = pad_token
    new_ids = sorted(set(tokenizer.get_vocab().values()) - before)
    return TokenizerChanges(new_ids, new_eos=tokenizer.eos_token != eos_before)


def _from_pretrained(name: str, revision: str, trust_remote_code: bool) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    from dynotune.model.spm import faithful_tokenizer, sentencepiece_only

    folder = Path(name)
    spm = sentencepiece_only(folder)
    if stands_here(folder) and folder.is_dir() and not any(folder.iterdir()):
        raise ModelError(f"The folder {printable(name)} is empty: it holds no tokenizer.")
    _check_names(name, revision)
    failures: tuple[type[Exception], ...] = (*loading_failures(), ImportError)
    try:
        with named_failures():
            tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                name, revision=revision, trust_remote_code=trust_remote_code
            )
    except failures as error:
        raise ModelError(_load_failure(printable(name, 200), folder, spm, error)) from error
    if len(tokenizer.get_vocab()) <= len(tokenizer.get_added_vocab()):
        # transformers makes an empty tokenizer of a folder that has none; every row would come out without a token.
        raise ModelError(
            f"{printable(name)} holds no tokenizer with a vocabulary. Name one in `tokenizer_name_or_path`."
        )
    _check_vocabulary(tokenizer, printable(name))
    _check_templates(tokenizer, printable(name))
    if not isinstance(tokenizer.model_max_length, int | float):
        raise ModelError(
            f"The tokenizer {printable(name)} is broken: `model_max_length` in its tokenizer_config.json is"
            f" {printable(repr(tokenizer.model_max_length), 60)}, not a number. Correct it, or take it out."
        )
    return tokenizer if spm is None else faithful_tokenizer(tokenizer, spm)


def _check_names(name: str, revision: str) -> None:
    """Refuse names that are made to do harm: `tokenizers` prints unknown ones as they are."""
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            found = fetched(name, file, revision, {})
            content = None if found is None else json.loads(found.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue  # the loader says it
        todo = [content]
        while todo:
            one = todo.pop()
            if isinstance(one, dict):
                todo += one.values()
                if raw := next((key for key in one if not key.isprintable()), None):
                    raise ModelError(
                        f"{printable(name)}: {file} has the name {printable(raw, 60)}, with control characters. No tool"
                        " writes that. Take the tokenizer from a source that you trust."
                    )
            elif isinstance(one, list):
                todo += one


def _check_templates(tokenizer: "PreTrainedTokenizerBase", shown: str) -> None:
    templates: Any = tokenizer.chat_template
    if templates is not None and not isinstance(templates, str | dict):
        raise TemplateError(f"{shown}: its chat template is no text ({type(templates).__name__}). Download it again.")
    for title, text in templates.items() if isinstance(templates, dict) else ():
        # Each is saved as a file of this name.
        if not isinstance(title, str) or not title.isprintable() or title != Path(title).name or len(title) > 100:
            raise TemplateError(
                f"{shown} has a chat template named {printable(str(title), 60)}, which cannot be the name of a file in"
                " its folder. Rename it in tokenizer_config.json, or take the tokenizer from a source that you trust."
            )
        if not isinstance(text, str):
            raise TemplateError(f"{shown}: its chat template {printable(title)} is no text. Download it again.")


def _check_vocabulary(tokenizer: "PreTrainedTokenizerBase", shown: str) -> None:
    # `tokenizers` writes a line for every id up to the largest: one of 4 billion would end the process at the first save.
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if largest > LARGEST_ID:
        raise ModelError(
            f"{shown} gives the token {printable(token, 40)} the id {largest:,}, and no model has so many rows (limit"
            f" {LARGEST_ID:,}). Its tokenizer.json is broken: download it again."
        )


def _load_failure(name: str, folder: Path, spm: Path | None, error: Exception) -> str:
    said = f"transformers said: {words_of(error)}"
    if "trust_remote_code" in str(error):
        return (
            f"The tokenizer {name} brings Python code of its own, which is not run unasked. Read that code and set"
            " `trust_remote_code: true`, or convert the tokenizer to a `tokenizer.json`."
        )
    if spm is not None:
        return (
            f"{printable(str(spm))} is a SentencePiece model that could not be loaded ({said})."
            " Is it whole? Is `sentencepiece` installed (`pip install dynotune[sentencepiece]`)?"
        )
    run = next(
        (part for part in ("model", "adapter") if stands_here(folder / "checkpoints") and (folder / part).is_dir()),
        None,
    )
    if run is not None:
        return f"{name} is a run folder: what it trained lies in {name}/{run}. Name that."
    if stands_here(folder) and folder.is_dir():
        held = ", ".join(sorted(printable(p.name) for p in folder.iterdir())[:12])
        return (
            f"No tokenizer could be loaded from the folder {name}, which holds: {held}. It needs a `tokenizer.json`"
            f" or a SentencePiece `tokenizer.model`; or set `tokenizer_name_or_path`. {said}"
        )
    if name.startswith((".", "/", "~")):
        if folder.is_file():
            return f"{name} is a file, and a folder with a tokenizer and a model is needed. {said}"
        looked = "" if name.startswith("/") else f" (looked in {printable(str(Path.cwd()))})"
        return f"{name} does not exist{looked}. Check the path{', where `~` is not expanded' * name.startswith('~')}."
    return (
        f"The tokenizer {name} could not be loaded: it is no folder here, and the hub gave none. Check the name,"
        f" `model_revision`, the network and your hub login. {said}"
    )


def _add_tokens(tokenizer: "PreTrainedTokenizerBase", tokens: list[str]) -> None:
    from transformers import AddedToken

    if any(not token.strip() for token in tokens):
        raise ModelError("`added_tokens` holds an empty or blank token. Remove it: it would match everywhere.")
    known = tokenizer.get_vocab()
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in tokens if token not in known])


def _require_in_vocabulary(tokenizer: "PreTrainedTokenizerBase", key: str, token: str) -> None:
    if token not in tokenizer.get_vocab():
        raise ModelError(
            f"`{key}: {printable(token)}` is not in the vocabulary of the tokenizer {_name(tokenizer)}"
            f" ({len(tokenizer):,} tokens). Name a token that it has, or also list it in `added_tokens`."
        )


def _take_template(tokenizer: "PreTrainedTokenizerBase", path: str, *, keep_eos: bool, trust: bool) -> None:
    """Take the chat template from a file, or with its added tokens and end token from another tokenizer."""
    if path.endswith(_TEMPLATE_FILES):
        tokenizer.chat_template = _read_template(Path(path))
        return
    if Path(path).is_file():
        raise TemplateError(
            f"`chat_template_path: {printable(str(path))}` is a file, but not a template: give a"
            f" {' or '.join(_TEMPLATE_FILES)} file, or a tokenizer's folder or hub id."
        )
    source = _from_pretrained(path, "main", trust)
    if source.chat_template is None:
        raise TemplateError(f"`chat_template_path: {printable(str(path))}` is a tokenizer without a chat template.")
    tokenizer.chat_template = source.get_chat_template()
    known = tokenizer.get_vocab()
    tokenizer.add_tokens([token for token in source.added_tokens_decoder.values() if token.content not in known])
    if source.eos_token is not None and not keep_eos:
        tokenizer.eos_token = source.eos_token


def _read_template(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TemplateError(
            f"`chat_template_path: {printable(str(path))}` does not exist (looked in {printable(str(Path.cwd()))})."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(
            f"`chat_template_path: {printable(str(path))}` cannot be read as UTF-8 text: {words_of(error)}"
        ) from error
    if not text.strip():
        raise TemplateError(f"`chat_template_path: {printable(str(path))}` is empty.")
    return text


def _name(tokenizer: "PreTrainedTokenizerBase") -> str:
    return printable(str(tokenizer.name_or_path or type(tokenizer).__name__))
