"""Promise: a tokenizer is loaded as asked for, or the error says what to do; SentencePiece models keep their tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from dynotune.config.keys.data import DataConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ModelError, TemplateError
from dynotune.model.tokenizer import apply_settings, load_tokenizer, load_tokenizer_and_changes
from tests.data.made_tokenizer import CHATML, GENERATION, made_tokenizer


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made_tokenizer(CHATML, eos="</s>").save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def load(folder: Path | str, template: str | None = None, **model: Any) -> Any:
    config = ModelConfig(model_name_or_path=str(folder), **model)
    return load_tokenizer_and_changes(config, DataConfig(chat_template_path=template))


def test_loaded_as_it_is(saved: Path) -> None:
    tokenizer, changes = load(saved)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("</s>", "<pad>")
    assert (changes.new_ids, changes.new_eos) == ([], False)
    elsewhere = ModelConfig(model_name_or_path="nowhere", tokenizer_name_or_path=str(saved))
    assert len(load_tokenizer(elsewhere, DataConfig())) == len(tokenizer)


def test_end_and_padding_tokens_as_in_trl(saved: Path) -> None:
    tokenizer, changes = load(saved, eos_token="<|im_end|>", pad_token="</s>")
    assert (tokenizer.eos_token, tokenizer.pad_token, changes.new_eos) == ("<|im_end|>", "</s>", True)
    tokenizer = made_tokenizer()
    tokenizer.pad_token = None
    apply_settings(tokenizer, ModelConfig(), DataConfig())
    assert tokenizer.pad_token == tokenizer.eos_token


@pytest.mark.parametrize("key", ["eos_token", "pad_token"])
def test_a_token_outside_the_vocabulary_is_refused(saved: Path, key: str) -> None:
    with pytest.raises(ModelError, match=f"{key}: <nope>.*added_tokens"):
        load(saved, **{key: "<nope>"})


def test_neither_end_nor_padding_token() -> None:
    tokenizer = made_tokenizer(eos=None)
    tokenizer.pad_token = None
    with pytest.raises(ModelError, match="eos_token"):
        apply_settings(tokenizer, ModelConfig(), DataConfig())


def test_added_tokens_are_new_and_whole(saved: Path) -> None:
    tokenizer, changes = load(saved, added_tokens=["<think>", "<pad>", "</think>"], eos_token="</think>")
    old = len(made_tokenizer())
    assert changes.new_ids == [old, old + 1]
    assert tokenizer("a<think>b")["input_ids"][1] == old
    assert tokenizer.eos_token_id == old + 1
    with pytest.raises(ModelError, match="blank"):
        load(saved, added_tokens=[" "])


def test_a_template_from_a_file(saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text(GENERATION, encoding="utf-8")
    assert load(saved, str(file))[0].chat_template == GENERATION


def test_a_template_from_another_tokenizer_brings_its_tokens_and_its_end(saved: Path, tmp_path: Path) -> None:
    """As TRL's clone_chat_template; an end token that the user names wins."""
    source = made_tokenizer(GENERATION, eos="</s>")
    source.add_tokens(["<|turn|>"])
    source.eos_token = "<|turn|>"
    source.save_pretrained(tmp_path / "source")
    tokenizer, changes = load(saved, str(tmp_path / "source"))
    assert tokenizer.chat_template == GENERATION
    assert tokenizer.eos_token == "<|turn|>"
    assert changes.new_ids == [tokenizer.convert_tokens_to_ids("<|turn|>")]
    assert load(saved, str(tmp_path / "source"), eos_token="<|im_end|>")[0].eos_token == "<|im_end|>"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.jinja", None, "does not exist"),
        ("empty.jinja", b" \n", "is empty"),
        ("latin.jinja", b"\xe9\xff", "UTF-8"),
        ("template.txt", b"x", "not a template"),
    ],
)
def test_template_files_that_cannot_be_used(
    saved: Path, tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TemplateError, match=says):
        load(saved, str(tmp_path / name))


def test_a_source_without_template(saved: Path, tmp_path: Path) -> None:
    made_tokenizer(None).save_pretrained(tmp_path / "base")
    with pytest.raises(TemplateError, match="without a chat template"):
        load(saved, str(tmp_path / "base"))


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="set `model_name_or_path`"):
        load_tokenizer(ModelConfig(), DataConfig())
    with pytest.raises(ModelError, match="empty"):
        load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"model\.safetensors.*tokenizer_name_or_path"):
        load(tmp_path)
    with pytest.raises(ModelError, match="no folder here"):
        load("nobody/no-such-model")
    with pytest.raises(ModelError, match=r"^\./no-such-model does not exist \(looked in "):
        load("./no-such-model")


def test_a_run_folder_in_the_place_of_a_model_says_where_the_model_is(tmp_path: Path) -> None:
    for part in ("model", "adapter"):
        (tmp_path / part / "checkpoints").mkdir(parents=True)
        (tmp_path / part / part).mkdir()
        with pytest.raises(ModelError, match=rf"is a run folder: what it trained lies in .*/{part}/{part}\. Name that"):
            load(tmp_path / part)


# SentencePiece

spm = pytest.importorskip("sentencepiece", reason="sentencepiece makes and checks these models")
TEXT = [
    "Hello  world, this is   a line.",
    "naïve café",
    "中文 text 🙂",
    "def f(x):\n    return x + 1\n",
    " a <|im_end|> b",
]


def made_spm(folder: Path, kind: str, identity: bool, prefix: bool, bytes_: bool = True) -> Any:
    folder.mkdir()
    (folder.parent / "corpus.txt").write_text(
        "\n".join(
            f"{n} The quick brown fox jumps over {n * n} lazy dogs; naïve café, 中文 text, x = f({n})"
            for n in range(300)
        ),
        encoding="utf-8",
    )
    rules = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False} if identity else {}
    spm.SentencePieceTrainer.train(
        input=str(folder.parent / "corpus.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=450 if bytes_ else 190,
        model_type=kind,
        byte_fallback=bytes_,
        add_dummy_prefix=prefix,
        user_defined_symbols=["<|im_end|>"],
        minloglevel=2,
        **rules,
    )
    (folder / "tokenizer.vocab").unlink()
    return spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("prefix", [True, False])
def test_a_folder_with_only_a_sentencepiece_model_keeps_its_tokens(
    tmp_path: Path, kind: str, identity: bool, prefix: bool
) -> None:
    processor = made_spm(tmp_path / "spm", kind, identity, prefix)
    tokenizer, _ = load(tmp_path / "spm", eos_token="</s>")
    for text in TEXT[:4]:
        assert tokenizer.encode(text, add_special_tokens=False) == processor.encode(text), text
    assert tokenizer("x <|im_end|>")["input_ids"][-1] == processor.piece_to_id("<|im_end|>")
    if identity and kind == "bpe":
        assert tokenizer.decode(tokenizer.encode(TEXT[3], add_special_tokens=False)) == TEXT[3]
    tokenizer.save_pretrained(tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert [again(t)["input_ids"] for t in TEXT] == [tokenizer(t)["input_ids"] for t in TEXT]


def test_the_plain_conversion_does_change_tokens(tmp_path: Path) -> None:
    """Negative control: why the comparison with SentencePiece is made."""
    processor = made_spm(tmp_path / "spm", "unigram", identity=False, prefix=True)
    plain = AutoTokenizer.from_pretrained(tmp_path / "spm")
    assert any(plain.encode(text, add_special_tokens=False) != processor.encode(text) for text in TEXT[:4])


def test_a_conversion_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_spm(tmp_path / "spm", "unigram", identity=False, prefix=True)
    monkeypatch.setattr("dynotune.model.spm._convert", lambda *_: AutoTokenizer.from_pretrained(tmp_path / "spm"))
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        load(tmp_path / "spm")


def test_a_damaged_sentencepiece_model(tmp_path: Path) -> None:
    (tmp_path / "spm").mkdir()
    (tmp_path / "spm" / "tokenizer.model").write_bytes(b"\x00\x01 not a model")
    with pytest.raises(ModelError, match=r"SentencePiece|tokenizer\.json"):
        load(tmp_path / "spm")


@pytest.mark.parametrize(
    ("file", "settings", "said"),
    [
        ("tokenizer_config.json", {"model_max_length": "abc"}, r"`model_max_length` .* 'abc', not a number"),
        ("config.json", {"model_type": "llama", "hidden_size": "64"}, "hidden_size"),
        ("config.json", {"model_type": "llama", "num_attention_heads": 7, "hidden_size": 64}, "attention heads"),
    ],
)
def test_settings_that_cannot_be_are_named(saved: Path, file: str, settings: dict[str, Any], said: str) -> None:
    known = json.loads((saved / file).read_text()) if (saved / file).exists() else {}
    known.pop("tokenizer_class", None)
    (saved / file).write_text(json.dumps(known | settings))
    with pytest.raises(ModelError, match=said):
        load(saved)


@pytest.mark.parametrize("key", ["eos_token", "pad_token"])
def test_no_escape_sequence_is_printed(saved: Path, key: str) -> None:
    broken = saved.parent / "\x1b[31m"
    broken.mkdir()
    (broken / "\x1b[2J.json").write_text("{")
    for folder, more in ((saved, {key: "\x1b]0;pwn\x07"}), (broken, {})):
        with pytest.raises(ModelError) as caught:
            load(folder, **more)
        assert str(caught.value).isprintable()
        assert "\\x1b" in str(caught.value)


def test_a_configuration_without_end_is_named(saved: Path) -> None:
    (saved / "config.json").write_text('{"a":' + "[" * 100_000 + "}")
    (saved / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelError, match="recursion"):
        load(saved)


def test_a_folder_without_a_tokenizer_is_not_an_empty_tokenizer(tmp_path: Path) -> None:
    """transformers makes one without a word, and every row of the data would be blamed."""
    from tests.tiny import tiny_model

    tiny_model("qwen2").config.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="tokenizer_name_or_path"):
        load_tokenizer(ModelConfig(model_name_or_path=str(tmp_path)), DataConfig())
