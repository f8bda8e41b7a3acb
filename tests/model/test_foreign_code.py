"""Promise: nothing that a model's files name is run unless it was asked for."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dynotune import SFTConfig
from dynotune.config.load import load_config
from dynotune.errors import ModelError, TemplateError
from dynotune.model.load import load_model
from dynotune.model.precision import Precision
from dynotune.model.tokenizer import LARGEST_ID, load_tokenizer
from tests.tiny import tiny_model, tiny_tokenizer


def changed(file: Path, **more: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_model().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def load(folder: Path, **settings: Any) -> Any:
    config = SFTConfig(model_name_or_path=str(folder), **settings)
    return load_model(config, Precision(torch.float32, compute_bf16=False), torch.device("cpu"))


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {"attn_implementation": "kernels-community/flash-attn"},
        {"_attn_implementation": "somebody/kernel:fast"},
        {"attn_implementation": {"": "paged|somebody/kernel"}},
        {"text_config": {"attn_implementation": "somebody/kernel"}},
        {"_attn_implementation_internal": "somebody/kernel"},
    ],
    ids=str,
)
def test_kernels_that_a_model_names_are_not_fetched(folder: Path, more: dict[str, Any], random: bool) -> None:
    changed(folder / "config.json", **more)
    with pytest.raises(ModelError, match="compiled code that transformers would download"):
        load(folder, random_weights=random)
    if random:
        with pytest.raises(ModelError, match="compiled code that transformers would download"):
            load(folder / "config.json", random_weights=True)


def test_an_attention_of_transformers_own_loads(folder: Path) -> None:
    """Negative control."""
    changed(folder / "config.json", attn_implementation="eager", note="a/b")
    assert load(folder).config._attn_implementation == "eager"


def test_code_that_is_run_is_said(tmp_path: Path) -> None:
    said = [note for note in load_config(None, {"trust_remote_code": True}).notices if "trust_remote_code" in note]
    assert said
    assert "runs Python code" in said[0]
    assert not [note for note in load_config(None, {"seed": 1}).notices if "trust_remote_code" in note]


def tokenizer(folder: Path) -> Any:
    config = SFTConfig(model_name_or_path=str(folder))
    return load_tokenizer(config, config)


@pytest.mark.parametrize("name", ["../../outside", "a/b", "/etc/x", "x" * 300, "a\x1b[2J"])
def test_a_template_cannot_be_saved_outside(folder: Path, name: str) -> None:
    """A named template is saved as a file of that name: found at loading, not after the training."""
    (folder / "chat_template.jinja").unlink()
    changed(
        folder / "tokenizer_config.json",
        chat_template=[{"name": "default", "template": "x"}, {"name": name, "template": "y"}],
    )
    with pytest.raises(TemplateError, match="cannot be the name of a file"):
        tokenizer(folder)


def test_named_templates_load(folder: Path) -> None:
    """Negative control."""
    (folder / "chat_template.jinja").unlink()
    changed(
        folder / "tokenizer_config.json",
        chat_template=[{"name": "default", "template": "x"}, {"name": "rag", "template": "y"}],
    )
    tokenizer(folder).save_pretrained(folder / "saved")
    assert (folder / "saved" / "additional_chat_templates" / "rag.jinja").read_text() == "y"


def test_names_with_control_characters_are_refused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`tokenizers` prints a key that it does not know as it is."""
    added = {
        "5": {"content": "q", "lstrip": False, "rstrip": False, "normalized": False, "special": False, "\x1b[2J": 1}
    }
    changed(folder / "tokenizer_config.json", added_tokens_decoder=added)
    with pytest.raises(ModelError, match="with control characters"):
        tokenizer(folder)
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err


def test_an_id_beyond_every_vocabulary_is_refused(folder: Path) -> None:
    """Saving such a tokenizer would end the process: found by the fuzz."""
    content = json.loads((folder / "tokenizer.json").read_text())
    last = max(content["model"]["vocab"], key=content["model"]["vocab"].get)
    content["model"]["vocab"][last] = 2**32 - 1
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=f"limit {LARGEST_ID:,}"):
        tokenizer(folder)


def test_a_tokenizer_file_of_nonsense_is_refused_in_words(folder: Path) -> None:
    """`tokenizers` raises a bare `Exception`: found by the fuzz."""
    changed(folder / "tokenizer.json", model={"type": "BPE", "vocab": 3})
    with pytest.raises(ModelError, match="No tokenizer could be loaded from the folder"):
        tokenizer(folder)
