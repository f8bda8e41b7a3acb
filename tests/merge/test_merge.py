"""A merge writes a model that computes what base and adapter compute, or writes nothing and says why."""

import json
from collections import namedtuple
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from dynotune import ModelError, SFTConfig, train_sft
from dynotune.merge import merge as module
from dynotune.merge.merge import merge_adapter
from tests.tiny import tiny_model, tiny_tokenizer


def save_base(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> Path:
    tiny_model(**changes).to(dtype).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def save_adapter(base: Path, folder: Path, scale: float = 0.3, **settings: Any) -> Path:
    """An adapter whose weights are all drawn, so that it moves the logits much."""
    settings = {"target_modules": ["q_proj", "v_proj", "down_proj"], "task_type": "CAUSAL_LM", "r": 4} | settings
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype="auto"), LoraConfig(**settings))
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) * scale
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    base = save_base(tmp_path / "base")
    save_adapter(base, tmp_path / "run" / "adapter")
    return tmp_path / "run"


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=torch.arange(5, 60)[None]).logits
    return out


def test_the_saved_model_computes_what_base_and_adapter_compute(run: Path, tmp_path: Path) -> None:
    report = merge_adapter(run, tmp_path / "out")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    alone = logits(base)
    with_adapter = logits(PeftModel.from_pretrained(base, str(run / "adapter")))
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out"))
    torch.testing.assert_close(merged, with_adapter, rtol=1e-4, atol=1e-5)
    assert (alone - with_adapter).abs().max() > 0.1  # else an unmerged model would have passed
    assert report.layers == 6
    assert report.logit_difference < 1e-4
    assert report.adapter_effect_share > 0.1
    assert report.same_tokens == report.tokens > 5


def test_nobody_is_warned_of_what_he_cannot_mend(run: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    merge_adapter(run, tmp_path / "out")
    assert [str(one.message) for one in recwarn if issubclass(one.category, FutureWarning)] == []


def test_the_output_is_whole_safetensors_tokenizer_template_and_card(run: Path, tmp_path: Path) -> None:
    merge_adapter(run, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"model.safetensors", "config.json", "generation_config.json", "tokenizer.json", "README.md"} <= names
    assert not any(name.startswith("adapter") or name.endswith((".bin", ".pt")) for name in names)
    assert not list(tmp_path.glob(".*half"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.chat_template == tiny_tokenizer().chat_template
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.use_cache is True
    card = (tmp_path / "out" / "README.md").read_text()
    assert "largest change of a weight" in card
    assert str(tmp_path) not in card


@pytest.mark.parametrize("settings", [{"use_dora": True}, {"use_rslora": True}, {"target_modules": "all-linear"}])
def test_peft_variants_merge_too(settings: dict[str, Any], tmp_path: Path) -> None:
    adapter = save_adapter(save_base(tmp_path / "base"), tmp_path / "adapter", **settings)
    assert merge_adapter(adapter, tmp_path / "out").logit_difference_share < 1e-4


def test_a_trained_head_and_new_tokens_come_with_the_adapter(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"<new{i}>" for i in range(40)])
    model = AutoModelForCausalLM.from_pretrained(base)
    assert len(tokenizer) > model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(len(tokenizer))
    new = list(range(len(tiny_tokenizer()), len(tokenizer)))
    config = LoraConfig(
        target_modules=["q_proj"],
        task_type="CAUSAL_LM",
        trainable_token_indices={"embed_tokens": new},
        modules_to_save=["lm_head"],
    )
    peft_model = get_peft_model(model, config)
    with torch.no_grad():
        for parameter in peft_model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    peft_model.save_pretrained(tmp_path / "adapter", save_embedding_layers=True)
    tokenizer.save_pretrained(tmp_path / "adapter")
    expected = peft_model.eval()(input_ids=torch.tensor([[7, new[-1], 9, new[0]]])).logits
    merge_adapter(tmp_path / "adapter", tmp_path / "out")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(merged(input_ids=torch.tensor([[7, new[-1], 9, new[0]]])).logits, expected)


@pytest.mark.parametrize("tied", [False, True])
def test_a_run_with_new_tokens_merges_to_what_was_trained(tied: bool, tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", tie_word_embeddings=tied)
    new = [f"<new{i}>" for i in range(30)]
    config = SFTConfig(
        model_name_or_path=str(base),
        output_dir=str(tmp_path / "run"),
        use_peft=True,
        lora_target_modules=["q_proj", "down_proj"],
        added_tokens=new,
        max_steps=5,
        learning_rate=1e-2,
        save_strategy="no",
        use_cpu=True,
    )
    rows = [{"text": f"{a} hello {b}"} for a, b in pairwise(new)]
    result = train_sft(config, train_dataset=rows, console=Console(quiet=True))
    merge_adapter(tmp_path / "run", tmp_path / "out")
    ids = result.tokenizer(new[3] + " the " + new[29], return_tensors="pt")["input_ids"]
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    trained: Any = result.model.eval()
    torch.testing.assert_close(merged(input_ids=ids).logits, trained(input_ids=ids).logits, rtol=1e-4, atol=1e-5)
    assert merged.config.tie_word_embeddings is tied


def test_bfloat16_rounds_once_and_says_how_much_of_the_change_it_costs(tmp_path: Path) -> None:
    base = save_base(tmp_path / "base", torch.bfloat16)
    adapter = save_adapter(base, tmp_path / "adapter", scale=0.1)
    report = merge_adapter(adapter, tmp_path / "out")
    assert report.dtype == "bfloat16"
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    exact = merge_adapter(adapter, tmp_path / "exact", dtype="float32")
    assert exact.largest_rounding == exact.rounding_share == 0
    wide = load_file(tmp_path / "exact" / "model.safetensors")
    # Once: the stored weight is the one nearest to the exact one, which adding a rounded change would miss.
    assert all(torch.equal(stored[name], wide[name].bfloat16()) for name in stored)
    measured = max(float((stored[n].float() - wide[n]).abs().max()) for n in stored)
    assert report.largest_rounding == pytest.approx(measured)
    assert 0 < report.rounding_share < 1


def test_an_adapter_that_is_not_finite_leaves_nothing_behind(run: Path, tmp_path: Path) -> None:
    weights = load_file(run / "adapter" / "adapter_model.safetensors")
    next(iter(weights.values()))[0, 0] = float("inf")
    save_file(weights, run / "adapter" / "adapter_model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"does not merge|broken"):
        merge_adapter(run, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "run"]


def forget(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    """A merge that leaves out what parameters of this name have learned."""
    real = module._merge_layers

    def merged(model: Any, adapter: Path) -> Any:
        for name, parameter in model.named_parameters():
            if part in name:
                parameter.data.zero_()
        return real(model, adapter)

    monkeypatch.setattr(module, "_merge_layers", merged)


def test_a_merge_that_computes_something_else_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control of the proof: a merge that forgets the adapter."""
    forget(monkeypatch, "lora_B")
    with pytest.raises(ModelError, match="does not compute what base and adapter compute"):
        merge_adapter(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*half"))


@pytest.mark.parametrize("forgets", [True, False])
def test_an_adapter_of_small_effect_cannot_be_forgotten_in_bfloat16(
    forgets: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its whole effect is below what bfloat16 may differ by."""
    base = save_base(tmp_path / "base", torch.bfloat16)
    adapter = save_adapter(base, tmp_path / "adapter", scale=0.022)
    if not forgets:
        report = merge_adapter(adapter, tmp_path / "out")
        assert report.logit_difference_share < 0.5 * report.adapter_effect_share < 0.5 * module.TOLERANCE["bfloat16"]
        return
    forget(monkeypatch, "lora_B")
    with pytest.raises(ModelError, match=r"cannot be shown that the merged model has the adapter.*--dtype float32"):
        merge_adapter(adapter, tmp_path / "out")


def test_new_tokens_are_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge that forgets nothing but the rows of new tokens is refused."""
    base = save_base(tmp_path / "base")
    new = len(tiny_tokenizer())
    adapter = save_adapter(base, tmp_path / "adapter", trainable_token_indices={"embed_tokens": [new, new + 1]})
    weights = load_file(adapter / "adapter_model.safetensors")
    rows = next(name for name in weights if "embed_tokens" in name)
    weights[rows] = weights[rows] + 1.0
    save_file(weights, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    merge_adapter(adapter, tmp_path / "good")
    forget(monkeypatch, "trainable_tokens_delta")
    with pytest.raises(ModelError, match="does not compute what base and adapter compute"):
        merge_adapter(adapter, tmp_path / "out")


def test_a_full_output_is_not_touched_and_an_empty_one_is_used(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine.txt").write_text("keep")
    with pytest.raises(ModelError, match="not an empty folder"):
        merge_adapter(run, output)
    assert (output / "mine.txt").read_text() == "keep"
    (output / "mine.txt").unlink()
    merge_adapter(run, output)
    assert (output / "model.safetensors").exists()


def test_a_full_disk_is_seen_before_writing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage(100, 0, 1000))
    with pytest.raises(ModelError, match=r"takes .* GiB, and .* has 0.0 GiB free"):
        merge_adapter(run, tmp_path / "out")


def test_a_base_that_moved_is_named_and_can_be_given(run: Path, tmp_path: Path) -> None:
    (tmp_path / "base").rename(tmp_path / "moved")
    with pytest.raises(ModelError, match="base"):
        merge_adapter(run, tmp_path / "out")
    assert merge_adapter(run, tmp_path / "out", base=str(tmp_path / "moved")).base == str(tmp_path / "moved")


def test_generation_stops_where_the_tuned_end_token_says(run: Path, tmp_path: Path) -> None:
    settings = json.loads((tmp_path / "base" / "generation_config.json").read_text())
    settings["eos_token_id"] = 77
    (tmp_path / "base" / "generation_config.json").write_text(json.dumps(settings))
    report = merge_adapter(run, tmp_path / "out")
    assert "generation also ends at" in report.notices[0]
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert model.generation_config.eos_token_id == [tiny_tokenizer().eos_token_id, 77]


def test_a_flipped_byte_of_a_merged_model_is_found(run: Path, tmp_path: Path) -> None:
    from dynotune.train.folder.verify import verify

    merge_adapter(run, tmp_path / "out")
    assert verify(tmp_path / "out").whole
    weights = tmp_path / "out" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + bytes([weights.read_bytes()[-1] ^ 1]))
    assert verify(tmp_path / "out").parts == {"model": ["model.safetensors differs from its checksum"]}


def test_sampling_values_that_transformers_refuses_to_write_do_not_stop_a_merge(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "base" / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 77, "temperature": 0.6}))
    report = merge_adapter(run, tmp_path / "out")
    assert any("do_sample" in notice for notice in report.notices)
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").generation_config.temperature == 0.6
    file.write_text(json.dumps(json.loads(file.read_text()) | {"max_new_tokens": -5}))
    with pytest.raises(ModelError, match="`max_new_tokens` must be greater than 0"):
        merge_adapter(run, tmp_path / "broken")


def test_a_disk_that_fails_while_writing_keeps_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("I/O error: File too large (os error 27)")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full)
    with pytest.raises(ModelError, match=r"could not be written to .*File too large.*--output"):
        merge_adapter(run, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "run"]


def test_the_report_for_a_person_has_every_figure(run: Path, tmp_path: Path) -> None:
    text = "\n".join(merge_adapter(run, tmp_path / "out").lines())
    for part in ("merged 6 modules", "stored as float32", "largest rounding 0", "same next token at"):
        assert part in text
