"""Keys of calls around a trainer that their functions do not take: PEFT's, bitsandbytes', the loader's."""

import ast
import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.steps import place_of
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class _Takes:
    package: str
    """Where the name must be imported from, as it begins."""

    names: frozenset[str] = frozenset()
    """All that it takes; empty: only the ones below are judged."""

    instead: Mapping[str, str] | None = None
    """Names of others, and what they are called here."""

    stops: bool = True
    """Else it goes on without the key, with a line in the log."""


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
}
"""By the signatures in peft 0.5 to 0.18, transformers 4.30 to 5.23 (`Unused kwargs` in utils/quantization_config.py) and
torch 2.0 to 2.9."""


def keys_of_calls(project: Project) -> Iterator[Said]:
    for script in project.scripts:
        if not any(name in script.source for name in _TAKES):
            continue
        for node in ast.walk(script.tree):
            name = _called(node, script)
            if name and isinstance(node, ast.Call):
                yield from _of_a_call(node, name, script)


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


def _of_a_call(call: ast.Call, name: str, script: Script) -> Iterator[Said]:
    takes = _TAKES[name]
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in takes.names:
            continue
        known = (takes.instead or {}).get(keyword.arg, "")
        if not known and not takes.names:
            continue
        close = known or next(iter(difflib.get_close_matches(keyword.arg, sorted(takes.names), 1, 0.7)), "")
        happens = "stops with a TypeError" if takes.stops else "goes on without it: what it asks for does not happen"
        meant = f" Did you mean `{close}`?" if close else ""
        place = place_of(script, keyword)
        yield Finding(
            f"`{name}` has no `{keyword.arg}`, and {happens}.{meant}",
            place=Place(place.file, place.line, key=keyword.arg, cell=place.cell),
            evidence=Evidence(Level.TEXT, {"call": name, "key": keyword.arg}),
            stake=Stake(AtStake.STOPS if takes.stops else AtStake.RESULT),
            remedy=Remedy(
                Risk.BEHAVIOURAL,
                f"Call it `{close}`." if close else "Remove it, or give it its right name.",
                accuracy="what the key asks for starts to happen" if close else "",
            ),
        )
