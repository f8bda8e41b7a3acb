"""Promise: a run leaves what the run folder promises, and what it leaves loads elsewhere."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer

from dynotune.errors import ConfigError, DataError, ModelError
from tests.tiny import chats, plain_texts, tiny_model, tiny_tokenizer


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_run_folder_holds_what_the_docs_say(run_tiny: Any) -> None:
    result = run_tiny(
        eval_dataset=chats(4, seed=9), eval_strategy="steps", eval_steps=3, save_strategy="steps", save_steps=4
    )
    present = {path.name for path in result.folder.iterdir()}
    assert {
        "config.yaml", "environment.json", "plan.json", "ledger.json", "metrics.jsonl", "checkpoints", "model", "loss.svg",
        "report.html",
    } <= present  # fmt: skip
    rows = rows_of(result.folder)
    assert [r["step"] for r in rows if "loss" in r] == [1, 2, 3, 4, 5, 6]
    assert [r["step"] for r in rows if "eval_loss" in r] == [3, 6]
    assert rows == result.metrics
    assert all(r["tokens_per_second"] > 0 for r in rows if "loss" in r)
    plan = json.loads((result.folder / "plan.json").read_text())
    ledger = json.loads((result.folder / "ledger.json").read_text())
    assert plan["steps"] == 6
    assert ledger["rows_used"] == plan["examples"] == 12
    assert {p.name for p in (result.folder / "checkpoints").iterdir()} == {"step-4", "step-6"}  # the last step too


def test_the_saved_model_is_the_trained_one_in_plain_transformers(run_tiny: Any) -> None:
    before = tiny_model().state_dict()
    result = run_tiny()
    loaded = AutoModelForCausalLM.from_pretrained(result.folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(result.folder / "model")
    trained = result.model.state_dict()
    assert all(torch.equal(v, trained[k]) for k, v in loaded.state_dict().items())
    assert not all(torch.equal(v, before[k]) for k, v in loaded.state_dict().items())
    assert loaded.config.use_cache
    ids = tokenizer.apply_chat_template(chats(1)[0]["messages"][:1], add_generation_prompt=True, return_tensors="pt")
    assert loaded.generate(ids["input_ids"], max_new_tokens=4, do_sample=False).shape[1] > ids["input_ids"].shape[1]


def test_the_saved_adapter_is_the_trained_one_in_plain_peft(run_tiny: Any, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path / "base")
    tiny_tokenizer().save_pretrained(tmp_path / "base")
    result = run_tiny(
        model=AutoModelForCausalLM.from_pretrained(tmp_path / "base"), use_peft=True, lora_r=4,
        lora_target_modules="all-linear",
    )  # fmt: skip
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    loaded = PeftModel.from_pretrained(base, result.folder / "adapter")
    ids = torch.arange(5, 25)[None]
    result.model.eval()
    torch.testing.assert_close(loaded(ids).logits, result.model(ids).logits)
    with loaded.disable_adapter():
        assert not torch.equal(loaded(ids).logits, result.model(ids).logits)


def test_lora_trains_only_the_adapter_and_in_fp32(run_tiny: Any) -> None:
    model = tiny_model()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    result = run_tiny(model=model, use_peft=True, lora_dropout=0.0, lora_target_modules=["q_proj", "down_proj"])
    trainable = {n: p for n, p in result.model.named_parameters() if p.requires_grad}
    assert trainable
    assert all("lora_" in n and p.dtype == torch.float32 for n, p in trainable.items())
    base = result.model.unload().state_dict()
    assert all(torch.equal(base[k], v) for k, v in before.items())


@pytest.mark.parametrize("variant", [{"use_dora": True}, {"init_lora_weights": "pissa"}, {"use_rslora": True}])
def test_peft_variants_train(run_tiny: Any, variant: dict[str, Any]) -> None:
    console = Console(record=True, file=io.StringIO(), width=200)
    result = run_tiny(use_peft=True, lora_target_modules="all-linear", lora_r=4, console=console, **variant)
    fused_by_name = "use_rslora" in variant  # plain LoRA with another factor
    assert ("not fused" in console.export_text()) != fused_by_name
    assert rows_of(result.folder)[-1]["loss"] < rows_of(result.folder)[0]["loss"]
    assert (result.folder / "adapter" / "adapter_config.json").is_file()


def test_a_peft_config_of_another_kind_may_be_passed(tmp_path: Path) -> None:
    from peft import LoHaConfig
    from rich.console import Console

    from dynotune import SFTConfig, train_sft

    result = train_sft(
        SFTConfig(output_dir=str(tmp_path / "run"), max_steps=2, save_strategy="no", use_cpu=True),
        model=tiny_model(), tokenizer=tiny_tokenizer(), train_dataset=chats(8), console=Console(quiet=True),
        peft_config=LoHaConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    )  # fmt: skip
    assert json.loads((result.folder / "adapter" / "adapter_config.json").read_text())["peft_type"] == "LOHA"


def test_a_target_that_matches_nothing_is_an_error_that_lists_what_there_is(run_tiny: Any) -> None:
    with pytest.raises(
        (ConfigError, ModelError), match=r"q_porj.*Its linears are named.*q_proj.*`all-linear`"
    ) as caught:
        run_tiny(use_peft=True, lora_target_modules=["q_porj", "k_proj"])
    assert "embed_tokens" not in str(caught.value)
    assert "norm" not in str(caught.value)


def test_the_loss_of_an_evaluation_is_the_mean_over_label_tokens(run_tiny: Any) -> None:
    held_out = plain_texts(5, seed=3)
    result = run_tiny(rows=plain_texts(8), eval_dataset=held_out, eval_strategy="steps", eval_steps=6)
    tokenizer = tiny_tokenizer()
    total, count = 0.0, 0
    result.model.eval()
    for row in held_out:
        ids = torch.tensor(tokenizer(row["text"] + "<eos>")["input_ids"])[None]
        with torch.no_grad():
            logps = result.model(ids).logits.log_softmax(-1)
        total -= float(logps[0, :-1].gather(-1, ids[0, 1:, None]).sum())
        count += ids.shape[1] - 1
    assert result.metrics[-1]["eval_loss"] == pytest.approx(total / count, rel=1e-5)


def test_the_last_training_losses_are_logged_where_an_evaluation_ends_the_run(run_tiny: Any) -> None:
    result = run_tiny(max_steps=5, logging_steps=3, eval_dataset=chats(2, 5), eval_strategy="steps", eval_steps=5)
    assert [r["step"] for r in result.metrics if "loss" in r] == [3, 5]
    losses = run_tiny(max_steps=5, overwrite_output_dir=True).metrics
    assert result.summary["train_loss"] == pytest.approx(sum(r["loss"] for r in losses) / 5)


def test_samples_need_a_prompt_and_say_so(run_tiny: Any) -> None:
    console = Console(record=True, file=io.StringIO(), width=200)
    result = run_tiny(eval_dataset=chats(2, 5), eval_strategy="epoch", eval_samples=1, console=console)
    assert "eval_samples" in console.export_text()
    assert not (result.folder / "samples.jsonl").exists()


def test_a_sample_shows_the_end_of_its_prompt_and_that_it_is_one(run_tiny: Any) -> None:
    for words, cut in ((1, False), (40, True)):
        console = Console(record=True, file=io.StringIO(), width=2000)
        rows = [{"prompt": " ".join(["red"] * words), "completion": " blue"}] * 8
        run_tiny(rows=rows, eval_dataset=rows[:2], eval_strategy="epoch", eval_samples=1, max_steps=1, console=console,
            overwrite_output_dir=True)  # fmt: skip
        sample = next(line for line in console.export_text().splitlines() if line.startswith("sample: "))
        assert sample.startswith("sample: ...") == cut


def test_an_attention_that_packed_execution_does_not_use_is_said(run_tiny: Any) -> None:
    for execution, said in (("on", True), ("off", False)):
        console = Console(record=True, file=io.StringIO(), width=200)
        run_tiny(attn_implementation="eager", packed_execution=execution, console=console, max_steps=1,
            overwrite_output_dir=True)  # fmt: skip
        assert ("packed execution has its own attention" in console.export_text().replace("\n", " ")) == said


@pytest.mark.parametrize(("asked", "said"), [("on", "execution: packed"), ("off", "execution: plain")])
def test_the_run_folder_says_how_the_run_executed(run_tiny: Any, asked: str, said: str) -> None:
    folder = run_tiny(max_steps=1, packed_execution=asked).folder
    assert json.loads((folder / "environment.json").read_text())["execution"][0].startswith(said)


@pytest.mark.parametrize(("strategy", "said"), [("bfd", "isolated documents"), ("wrapped", "isolated bins")])
def test_wrapped_bins_are_not_called_isolated_documents(run_tiny: Any, strategy: str, said: str) -> None:
    console = Console(record=True, file=io.StringIO(), width=400)
    run_tiny(packing=True, packing_strategy=strategy, max_length=64, max_steps=1, console=console)
    assert f"execution: packed, {said}: " in console.export_text()


def test_several_evaluation_sets_have_names(run_tiny: Any) -> None:
    result = run_tiny(eval_dataset={"a": chats(2, 5), "b": chats(3, 6)}, eval_strategy="epoch", eval_samples=1,
        assistant_only_loss=True,
    )  # fmt: skip
    last = [r for r in result.metrics if "eval_a_loss" in r][-1]
    assert last["eval_a_loss"] != last["eval_b_loss"]
    samples = [json.loads(line) for line in (result.folder / "samples.jsonl").read_text().splitlines()]
    assert {s["dataset"] for s in samples} == {"a", "b"}


def test_the_best_checkpoint_is_taken_and_patience_ends_the_run(run_tiny: Any) -> None:
    """A learning rate far too high makes the first evaluation the best one."""
    result = run_tiny(
        learning_rate=3.0, optim="sgd", max_steps=40, eval_dataset=chats(4, 8), eval_strategy="steps", eval_steps=1,
        save_strategy="steps", save_steps=1, load_best_model_at_end=True, early_stopping_patience=2, save_total_limit=2,
        on_nonfinite_step="skip",
    )  # fmt: skip
    losses = {r["step"]: r["eval_loss"] for r in result.metrics if "eval_loss" in r}
    best = min(losses, key=lambda step: losses[step])
    assert result.steps == max(losses) < 40
    assert result.summary["best_step"] == best < result.steps
    kept = AutoModelForCausalLM.from_pretrained(result.folder / "checkpoints" / f"step-{best}" / "model").state_dict()
    final = AutoModelForCausalLM.from_pretrained(result.folder / "model").state_dict()
    assert all(torch.equal(v, final[k]) for k, v in kept.items())
    assert len(list((result.folder / "checkpoints").iterdir())) == 2


def test_the_best_evaluation_is_kept_even_between_two_saves(run_tiny: Any) -> None:
    result = run_tiny(
        learning_rate=3.0, optim="sgd", max_steps=8, eval_dataset=chats(4, 8), eval_strategy="steps", eval_steps=1,
        save_strategy="steps", save_steps=100, load_best_model_at_end=True, on_nonfinite_step="skip",
    )  # fmt: skip
    losses = {r["step"]: r["eval_loss"] for r in result.metrics if "eval_loss" in r}
    best = min(losses, key=lambda step: losses[step])
    assert best % 100  # no save was due there
    kept = AutoModelForCausalLM.from_pretrained(result.folder / "checkpoints" / f"step-{best}" / "model").state_dict()
    assert all(torch.equal(v, kept[k]) for k, v in result.model.state_dict().items())


def test_a_folder_that_holds_a_run_is_refused_unless_it_may_be_replaced(run_tiny: Any) -> None:
    run_tiny(max_steps=1)
    with pytest.raises(ConfigError, match=r"already holds a run.*resume_from_checkpoint.*overwrite_output_dir"):
        run_tiny(max_steps=1)
    assert run_tiny(max_steps=2, overwrite_output_dir=True).steps == 2


def test_data_of_another_tokenizer_is_refused(run_tiny: Any) -> None:
    with pytest.raises(DataError, match=r"5000.*another tokenizer"):
        run_tiny(rows=[{"input_ids": [5, 6, 5000]}])


@pytest.mark.parametrize("tied", [True, False])
def test_new_tokens_grow_the_embedding_and_are_trained_under_lora(run_tiny: Any, tied: bool) -> None:
    model = tiny_model(vocab_size=340, tie_word_embeddings=tied)
    old = model.get_input_embeddings().weight.detach().clone()
    rows = [{"text": f"a <new{i % 20}> b"} for i in range(12)]
    result = run_tiny(
        model=model,
        rows=rows,
        use_peft=True,
        lora_target_modules=["q_proj"],
        added_tokens=[f"<new{i}>" for i in range(20)],
    )
    new = slice(len(tiny_tokenizer()), len(tiny_tokenizer()) + 20)
    wrapper = result.model.get_input_embeddings()
    trained, start = wrapper.weight.detach(), wrapper.token_adapter.base_layer.weight.detach()
    assert trained.shape[0] == start.shape[0] == 360
    assert torch.equal(trained[: new.start], old)  # rows of old tokens stay as they were
    seen = [i for i in range(new.start, new.stop) if i - new.start < 12]  # the other new tokens are in no row
    assert bool((trained[seen] != start[seen]).any(-1).all())
    # The saved adapter brings them to a base that never saw them.
    base = tiny_model(vocab_size=340, tie_word_embeddings=tied)
    torch.manual_seed(7)
    base.resize_token_embeddings(360)
    again = PeftModel.from_pretrained(base, result.folder / "adapter")
    ids = torch.arange(new.start - 5, new.stop)[None]
    torch.testing.assert_close(again.get_input_embeddings().weight[new], trained[new])
    torch.testing.assert_close(again(ids).logits, result.model.eval()(ids).logits)


def test_lora_on_a_bfloat16_base_trains_on_the_cpu_too(run_tiny: Any) -> None:
    """The GPU's default: bfloat16 base, float32 adapters, head and new rows, autocast."""
    result = run_tiny(
        model=tiny_model().to(torch.bfloat16),
        rows=[{"text": f"a <new> b {i}"} for i in range(12)],
        bf16=True,
        use_peft=True,
        lora_target_modules="all-linear",
        lora_modules_to_save=["lm_head"],
        added_tokens=["<new>"],
    )
    losses = [r["loss"] for r in result.metrics]
    assert losses[-1] < losses[0]
    assert {p.dtype for p in result.model.parameters() if p.requires_grad} == {torch.float32}


def test_gradient_checkpointing_changes_no_loss(run_tiny: Any) -> None:
    calls = []

    def counted() -> Any:
        model = tiny_model()
        calls.append(0)
        attention = model.model.layers[1].self_attn

        def count(*_: Any) -> None:
            calls[-1] += torch.is_grad_enabled()  # not when the model is tried out

        attention.register_forward_pre_hook(count)
        return model

    plain = run_tiny(model=counted()).metrics
    checkpointed = run_tiny(model=counted(), gradient_checkpointing=True, overwrite_output_dir=True).metrics
    assert [r["loss"] for r in plain] == [r["loss"] for r in checkpointed]
    assert calls[1] == 2 * calls[0] > 0  # each layer ran again in the backward pass
