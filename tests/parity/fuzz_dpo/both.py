"""A drawn case under TRL's DPOTrainer and under ours, from the same weights and on the same rows in the same order."""

import contextlib
import copy
import io
import json
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml
from peft import LoraConfig, get_peft_model
from rich.console import Console
from tokenizers import pre_tokenizers, processors
from transformers import TrainerCallback

from dynotune import DPOConfig, load_config, train_dpo
from dynotune.data.examples import IGNORE
from dynotune.errors import DynotuneError
from tests.data.made_tokenizer import made_tokenizer
from tests.parity.fuzz_dpo.draw import TEMPLATES, Case
from tests.parity.fuzz_dpo.rows import Row
from tests.tiny import tiny_model

COMMON: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "logging_steps": 1,
    "save_strategy": "no",
    "train_sampling_strategy": "sequential",
    "report_to": "none",
    "disable_tqdm": True,
}
Labelled = list[tuple[int, bool]]
"""Tokens, and whether each is a label."""


@dataclass
class Side:
    """What one of the two came to."""

    refusal: str | None = None
    """The words that ended it."""

    crash: str | None = None
    """The traceback, where no words of ours did."""

    rows: list[dict[str, float]] = field(default_factory=list)
    """Of training steps, as logged."""

    evaluations: list[dict[str, float]] = field(default_factory=list)
    before: dict[str, torch.Tensor] = field(default_factory=dict)
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """Trained ones, afterwards."""

    pairs: list[tuple[Labelled, Labelled]] = field(default_factory=list)
    """Chosen and rejected sequence of each pair that is trained on, in order."""

    held_out: int = 0
    steps: int = 0
    told: str = ""


class SameStart(TrainerCallback):
    """Gives what is random in a new adapter values that depend on its name alone, and keeps what training starts from."""

    def __init__(self, case: Case, side: Side) -> None:
        start = (case.lora or {}).get("init_lora_weights", True)
        fixed = case.trained_adapter or start in ("pissa", "olora", False)
        self.names = () if fixed else ("lora_A", "lora_embedding_B")
        self.side = side

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        draw_by_name(model, self.names, 0.2)
        self.side.before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


def draw_by_name(model: Any, names: tuple[str, ...], size: float) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad and any(part in name for part in names):
                generator = torch.Generator().manual_seed(sum(map(ord, name)))
                p.copy_(size * torch.randn(p.shape, generator=generator))


def tokenizer_of(case: Case) -> Any:
    made = made_tokenizer(TEMPLATES[case.template], eos="</s>")
    fast = made.backend_tokenizer
    single = {"bos": "<s> $A", "eos": "$A </s>", "bos-eos": "<s> $A </s>"}.get(case.tokenizer)
    if single is not None:
        special = [(word, fast.token_to_id(word)) for word in ("<s>", "</s>") if word in single]
        fast.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    if case.tokenizer == "prefix-space":
        fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


def model_of(case: Case, tokenizer: Any) -> Any:
    """Weights are large enough that attention matters and that tokens are told apart."""
    sizes = {"vocab_size": 424, "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 1024}
    made = tiny_model(case.kind, case.number % 7, **{**sizes, **case.changes})
    for name, p in made.named_parameters():
        if p.ndim == 2:
            p.data *= 5.0 if "attn" in name or "mlp" in name else 8.0
    if not case.trained_adapter:
        return made
    adapter = adapter_of(case)
    assert adapter is not None
    made = get_peft_model(made, adapter)
    draw_by_name(made, ("lora_A", "lora_B", "lora_embedding"), 0.1)
    return made


def adapter_of(case: Case) -> LoraConfig | None:
    return None if case.lora is None else LoraConfig(task_type="CAUSAL_LM", **copy.deepcopy(case.lora))


def write_inputs(case: Case, model: Any, tokenizer: Any, folder: Path) -> Path:
    """Model, tokenizer, rows and configuration in files; returns that of the configuration."""
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "data").mkdir(exist_ok=True)
    for name, rows in (("train", case.rows), ("test", case.held_out)):
        if rows:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "data" / f"{name}.jsonl").write_text(text, encoding="utf-8")
    lora = {
        key if key.startswith(("use_", "lora_")) else f"lora_{key}": value for key, value in (case.lora or {}).items()
    }
    places = {"model_name_or_path": str(folder / "model"), "dataset_name": str(folder / "data")}
    adapter = {} if case.lora is None else {"use_peft": True, **lora}
    path = folder / "dpo.yaml"
    path.write_text(yaml.safe_dump({**places, **adapter, **COMMON, **case.keys}), encoding="utf-8")
    return path


@contextlib.contextmanager
def heard_by(side: Side) -> Iterator[io.StringIO]:
    """What is printed inside becomes `told`; an error the refusal, or the crash where it is none of our errors."""
    heard = io.StringIO()
    try:
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
            yield heard
    except DynotuneError as error:
        side.refusal = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (TRL ends by anything; a crash of ours is to be reported)
        side.refusal = side.crash = f"{error!r} {heard.getvalue()[-300:]} {traceback.format_exc()[-1500:]}"
    finally:
        side.told = heard.getvalue()


def trl_side(case: Case, model: Any, tokenizer: Any, folder: Path, path: Path | None) -> Side:
    """path: of the configuration, where everything is read from files."""
    import datasets
    from trl import DPOConfig as TRLConfig
    from trl import DPOTrainer

    side = Side()
    callbacks = [SameStart(case, side)]
    with heard_by(side):
        if path is not None:
            trainer = _trl_from_file(path, folder, callbacks)
        else:
            args = TRLConfig(output_dir=str(folder / "trl"), **{**COMMON, **case.keys})
            trainer = DPOTrainer(
                model=model,
                ref_model=None if case.lora is not None or args.precompute_ref_log_probs else copy.deepcopy(model),
                args=args,
                train_dataset=datasets.Dataset.from_list(case.rows),
                eval_dataset=datasets.Dataset.from_list(case.held_out) if case.held_out else None,
                processing_class=tokenizer,
                peft_config=None if case.trained_adapter else adapter_of(case),
                callbacks=callbacks,
            )
        side.pairs = [_collated(trainer.data_collator, row) for row in trainer.train_dataset]
        side.held_out = len(trainer.eval_dataset or ())
        trainer.train()
        side.rows = [row for row in trainer.state.log_history if "loss" in row]
        side.evaluations = [row for row in trainer.state.log_history if "eval_loss" in row]
        side.weights = {name: p.detach() for name, p in trainer.model.named_parameters() if p.requires_grad}
        side.steps = trainer.state.global_step
    return side


def _collated(collator: Any, row: dict[str, Any]) -> tuple[Labelled, Labelled]:
    batch = collator([row])
    columns = [batch[key].tolist() for key in ("input_ids", "completion_mask", "attention_mask")]
    chosen, rejected = (
        [(token, bool(label)) for token, label, real in zip(*(column[at] for column in columns), strict=True) if real]
        for at in (0, 1)
    )
    return chosen, rejected


def _trl_from_file(path: Path, folder: Path, callbacks: Any) -> Any:
    """The trainer that `trl dpo --config` makes."""
    from datasets import load_dataset
    from trl import DatasetMixtureConfig, DPOTrainer, ModelConfig, ScriptArguments, TrlParser, get_peft_config
    from trl import DPOConfig as TRLConfig

    parser = TrlParser((ScriptArguments, TRLConfig, ModelConfig, DatasetMixtureConfig))
    told = ["--config", str(path), "--output_dir", str(folder / "trl")]
    script, args, model, _ = parser.parse_args_and_config(args=told, fail_with_unknown_args=False)
    args.model_init_kwargs = {"attn_implementation": model.attn_implementation, "dtype": model.dtype}
    data = load_dataset(script.dataset_name, cache_dir=str(folder / "datasets"))
    return DPOTrainer(
        model=model.model_name_or_path,
        args=args,
        train_dataset=data[script.dataset_train_split],
        eval_dataset=data[script.dataset_test_split] if args.eval_strategy != "no" else None,
        peft_config=get_peft_config(model),
        callbacks=callbacks,
    )


@contextlib.contextmanager
def pairs_kept(side: Side) -> Iterator[None]:
    """Keep the pairs that a run is planned with."""
    from dynotune.train.start import opened

    read_material = opened.read_material

    def read(*args: Any, **kwargs: Any) -> Any:
        found = read_material(*args, **kwargs)
        for pair in found.items.at(found.plan.rows):
            chosen, rejected = (
                list(zip(ids_T.tolist(), (labels_T != IGNORE).tolist(), strict=True))
                for ids_T, labels_T in (pair.chosen, pair.rejected)
            )
            side.pairs.append((chosen, rejected))
        return found

    with mock.patch.object(opened, "read_material", read):
        yield


def _given(case: Case, rows: list[Row]) -> Any:
    """A list or a data set, in which Arrow gives every row the columns of all."""
    import datasets

    return datasets.Dataset.from_list(rows) if case.number % 2 and rows else copy.deepcopy(rows)


def our_side(case: Case, model: Any, tokenizer: Any, folder: Path, path: Path | None, **more: Any) -> Side:
    """more: settings that TRL does not get."""
    side = Side()
    own: dict[str, Any] = {"output_dir": str(folder / "ours"), **more}
    if case.execution != "auto":
        own["speedups"] = {"packed_execution": case.execution}
    with heard_by(side) as heard, pairs_kept(side):
        told: dict[str, Any] = {"callbacks": [SameStart(case, side)], "console": Console(file=heard, width=4000)}
        if path is not None:
            result = train_dpo(load_config(path, own, into=DPOConfig), **told)
        else:
            result = train_dpo(
                DPOConfig(**{**COMMON, **case.keys, **own}),
                model=model,
                tokenizer=tokenizer,
                train_dataset=_given(case, case.rows),
                eval_dataset=_given(case, case.held_out) or None,
                peft_config=None if case.trained_adapter else adapter_of(case),
                **told,
            )
        side.rows = [row for row in result.metrics if "loss" in row]
        side.evaluations = [row for row in result.metrics if "eval_loss" in row]
        side.weights = {name: p.detach() for name, p in result.model.named_parameters() if p.requires_grad}
        side.steps = result.steps
    return side
