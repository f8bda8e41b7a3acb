"""Keys of calls around a trainer that their functions do not take: PEFT's, bitsandbytes', the loader's."""

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.shapes.keys_from_a_file import keys_from_a_file


@dataclass(frozen=True, slots=True)
class _Takes:
    package: str | tuple[str, ...]
    """Where the name must be imported from, as it begins."""

    names: frozenset[str] = frozenset()
    """All that it takes; empty: only the ones below are judged."""

    instead: Mapping[str, str] | None = None
    """Names of others, and what they are called here."""

    stops: bool = True
    """Else it goes on without the key, with a line in the log."""

    gone: Mapping[str, str] = field(default_factory=dict)
    """Names that it took before `since`, and what to write instead."""

    since: tuple[int, ...] = ()


_OF_LIGHTNING = """
accelerator strategy devices num_nodes precision logger callbacks fast_dev_run max_epochs min_epochs max_steps min_steps
max_time limit_train_batches limit_val_batches limit_test_batches limit_predict_batches overfit_batches val_check_interval
check_val_every_n_epoch num_sanity_val_steps log_every_n_steps enable_checkpointing enable_progress_bar
enable_model_summary accumulate_grad_batches gradient_clip_val gradient_clip_algorithm deterministic benchmark
inference_mode use_distributed_sampler profiler detect_anomaly barebones plugins sync_batchnorm
reload_dataloaders_every_n_epochs default_root_dir enable_autolog_hparams model_registry
"""

_TAKES: Mapping[str, _Takes] = {
    "LoraConfig": _Takes(
        "peft",
        instead={
            "alpha": "lora_alpha",
            "dropout": "lora_dropout",
            "rank": "r",
            "lora_r": "r",
            "lora_rank": "r",
            "lora_target_modules": "target_modules",
            "target": "target_modules",
            "use_rs_lora": "use_rslora",
        },
    ),
    "BitsAndBytesConfig": _Takes(
        "transformers",
        frozenset(
            {
                *("load_in_8bit", "load_in_4bit", "llm_int8_threshold", "llm_int8_skip_modules"),
                *("llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "bnb_4bit_compute_dtype"),
                *("bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "bnb_4bit_quant_storage"),
                *("bnb_4bit_target_parameters", "target_parameters"),
            }
        ),
        {"bnb_4bit_use_nested_quant": "bnb_4bit_use_double_quant", "use_nested_quant": "bnb_4bit_use_double_quant"},
        stops=False,
    ),
    "DataLoader": _Takes(
        "torch.utils.data",
        frozenset(
            {
                *(
                    "dataset",
                    "batch_size",
                    "shuffle",
                    "sampler",
                    "batch_sampler",
                    "num_workers",
                    "collate_fn",
                    "pin_memory",
                ),
                *("drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
                *("persistent_workers", "pin_memory_device", "in_order"),
            }
        ),
        {
            "workers": "num_workers",
            "num_worker": "num_workers",
            "dataloader_num_workers": "num_workers",
            "dataloader_pin_memory": "pin_memory",
            "collator": "collate_fn",
            "data_collator": "collate_fn",
        },
    ),
    "Accelerator": _Takes(
        "accelerate",
        instead={
            "bf16": "mixed_precision",
            "precision": "mixed_precision",
            "accumulation_steps": "gradient_accumulation_steps",
            "gradient_accumulation": "gradient_accumulation_steps",
            "report_to": "log_with",
            "output_dir": "project_dir",
        },
        gone=dict.fromkeys(
            ("dispatch_batches", "even_batches", "use_seedable_sampler"),
            "`dataloader_config=DataLoaderConfiguration(...)` takes it",
        ),
        since=(1,),
    ),
    "Trainer": _Takes(
        ("lightning", "pytorch_lightning"),
        frozenset(_OF_LIGHTNING.split()),
        {
            **dict.fromkeys(("num_train_epochs", "epochs", "num_epochs", "max_epoch"), "max_epochs"),
            "gradient_accumulation_steps": "accumulate_grad_batches",
            "max_grad_norm": "gradient_clip_val",
            "logging_steps": "log_every_n_steps",
            "eval_steps": "val_check_interval",
            **dict.fromkeys(("bf16", "fp16", "mixed_precision"), "precision"),
            **dict.fromkeys(("gpus", "num_gpus"), "devices"),
            "output_dir": "default_root_dir",
            "resume_from_checkpoint": "ckpt_path` of `fit",
            "replace_sampler_ddp": "use_distributed_sampler",
        },
        since=(2,),
    ),
}
"""By the signatures in accelerate 0.20 to 1.13, Lightning 2.0 to 2.5, peft 0.5 to 0.18, transformers 4.30 to 5.23 (`Unused
kwargs` in utils/quantization_config.py) and torch 2.0 to 2.9."""


def keys_of_calls(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        if not any(name in script.source for name in _TAKES):
            continue
        for node in ast.walk(script.tree):
            name = _called(node, script)
            if name and isinstance(node, ast.Call) and _is_of(_TAKES[name], project):
                yield from _of_a_call(node, name, script, project)


def _called(node: ast.AST, script: Script) -> str:
    """Which of the functions a call is of; empty: none, or one of the project's own of that name."""
    func = node.func if isinstance(node, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name not in _TAKES or func is None:
        return ""
    root = ast.unparse(func).partition(".")[0]
    origin = script.imports.get(root, "")
    whole = origin + ast.unparse(func)[len(root) :] if origin else ""
    return name if whole.startswith(_TAKES[name].package) else ""


def _is_of(takes: _Takes, project: Project) -> bool:
    """The release that is asked for may be one of those whose arguments these are."""
    packages = (takes.package,) if isinstance(takes.package, str) else takes.package
    if not takes.since:
        return True
    for package in packages:
        name = package.replace("_", "-")
        pinned = project.pinned(name)
        if pinned is not None and pinned < takes.since:
            return False
        if pinned is None and any(
            one.name == name and one.operator in ("<", "<=", "~=", "==") for one in project.asked
        ):
            return False
    return True


def _of_a_call(call: ast.Call, name: str, script: Script, project: Project) -> Iterator[Said]:
    for keyword in call.keywords:
        if keyword.arg is not None:
            place = place_of(script, keyword)
            yield from _key(name, keyword.arg, Place(place.file, place.line, key=keyword.arg, cell=place.cell))
            continue
        for key, place in keys_from_a_file(keyword.value, script, project):
            yield from _key(name, key, place, also=(place_of(script, call),))


def _key(name: str, key: str, place: Place, also: tuple[Place, ...] = ()) -> Iterator[Said]:
    takes = _TAKES[name]
    if key in takes.names:
        return
    known, gone = (takes.instead or {}).get(key, ""), takes.gone.get(key, "")
    if not known and not gone and not takes.names:
        return
    close = known or next(iter(difflib.get_close_matches(key, sorted(takes.names), 1, 0.7)), "")
    happens = "stops with a TypeError" if takes.stops else "goes on without it: what it asks for does not happen"
    meant = f" Did you mean `{close}`?" if close else ""
    since = f" from {'.'.join(map(str, (*takes.since, 0)))} on" if gone else ""
    yield Finding(
        f"`{name}` has no `{key}`{since}, and {happens}.{f' {gone[0].upper()}{gone[1:]}.' if gone else meant}",
        place=place,
        evidence=Evidence(Level.TEXT, {"call": name, "key": key}),
        stake=Stake(AtStake.STOPS if takes.stops else AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"{gone[0].upper()}{gone[1:]}."
            if gone
            else f"Call it `{close}`."
            if close
            else "Remove it, or give it its right name.",
            accuracy="what the key asks for starts to happen" if close else "",
        ),
        also=also,
    )
