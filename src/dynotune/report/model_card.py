"""The model card: what was run, taken from the files of the run folder, so that it cannot say anything else.

No secrets, and no paths of the machine: the last parts of local paths only.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from dynotune._version import __version__
from dynotune.config.reading.files import read_file
from dynotune.config.secrets import masked, without_secrets
from dynotune.printable import printable
from dynotune.report.curves import read_curves
from dynotune.report.settings import without_local_paths
from dynotune.report.speed import SHARES, percent

if TYPE_CHECKING:
    from huggingface_hub import ModelCard
    from pydantic.fields import FieldInfo

    from dynotune.merge.proof import MergeReport

DATA_SUFFIXES = {".jsonl", ".json", ".gz", ".zst", ".parquet", ".csv", ".arrow", ".txt"}
LOCATIONS = {"model_name_or_path", "tokenizer_name_or_path", "dataset_name", "datasets", "eval_dataset_name"}
LOCATIONS |= {"chat_template_path", "resume_from_checkpoint"}
PACKAGES = ("dynotune", "torch", "transformers", "peft", "tokenizers")
NOT_ABOUT_TRAINING = {"output_dir", "overwrite_output_dir", "run_name", "report_to", "project", "disable_tqdm"}
NOT_ABOUT_TRAINING |= {"push_to_hub", "hub_model_id", "hub_private_repo", "hub_strategy", "hub_revision"}


@dataclass(frozen=True, slots=True)
class _Trained:
    """What a card says of a way of training."""

    tag: str
    name: str

    def told(self, config: Mapping[str, Any]) -> str:
        losses = config.get("loss_type")
        return f"{self.name} ({', '.join(map(str, losses))})" if isinstance(losses, list) else self.name

    def fields(self) -> "Mapping[str, FieldInfo]":
        from dynotune.config.whole import METHODS

        return METHODS[self.tag].model_fields


_METHODS = {"sft": _Trained("sft", "supervised fine-tuning"), "dpo": _Trained("dpo", "preference training")}


def write_model_card(run: Path, summary: Mapping[str, Any]) -> None:
    """Write README.md into the run folder and beside the weights in `model/` or `adapter/`.

    Args:
        run: the finished run folder.
        summary: figures of the whole run by name, as the run itself reports them.
    """
    card = model_card(run, summary)
    for folder in (run, run / "adapter", run / "model"):
        if folder.is_dir():
            card.save(folder / "README.md")


def model_card(run: Path, summary: Mapping[str, Any]) -> "ModelCard":
    """The card of a run folder's model or adapter."""
    config = _read_config(run)
    lora = (run / "adapter").is_dir()
    method = _METHODS[summary.get("method", "sft")]
    base = public_name(config["model_name_or_path"]) if config.get("model_name_or_path") else None
    kind = "A LoRA adapter for" if lora else "A full fine-tune of"
    if config.get("random_weights"):
        kind = "A model trained from random weights in the shape of"
    body = [
        f"# {_title(config, run)}",
        f"{kind} **{base or 'a model that was passed in from Python'}**, made by {method.told(config)} with "
        f"Dynotune {__version__}.",
        _use(lora, base),
        "## Data",
        _data(_read_json(run / "ledger.json")),
        "## Results",
        _results(run, summary),
        "## Settings",
        _settings(config, method),
        "## Versions",
        _versions(_read_json(run / "environment.json")),
    ]
    return _card(config, [method.tag, *(["lora"] if lora else [])], body)


def write_merged_card(folder: Path, run: Path, report: "MergeReport") -> None:
    """Write the card of a merged model into its folder; the run's own card follows where there is one."""
    config = _read_config(run)
    base = public_name(report.base)
    body = [
        f"# {_title(config, run)}, merged",
        f"**{base}** with a LoRA adapter merged into it; needs no PEFT. Stored as {report.dtype}.",
        "## Merge",
        _table(
            ("measured", "value"),
            [
                ("modules changed by the adapter", str(report.layers)),
                ("largest change of a weight", f"{report.largest_change:.3g}"),
                ("rounding, as a share of the change (root mean square)", f"{report.rounding_share:.2%}"),
                (
                    f"logits against base + adapter on {report.tokens} tokens, largest difference",
                    f"{report.logit_difference:.3g}",
                ),
                ("the same, as a share of the logits (root mean square)", f"{report.logit_difference_share:.2e}"),
                ("same most likely next token", f"{report.same_tokens} of {report.tokens}"),
            ],
        ),
        *_run_card_sections(run),
    ]
    _card({**config, "model_name_or_path": report.base}, [], body).save(folder / "README.md")


def public_name(name: str) -> str:
    """A hub id as it is; of anything on this machine only the last part; never a password or token."""
    name = masked(name)
    local = name.startswith((".", "/", "~")) or name.count("/") > 1 or Path(name).suffix in DATA_SUFFIXES
    if local or Path(name).exists():
        return name.rstrip("/").rsplit("/", 1)[-1]
    return str(without_local_paths(name))


def _is_hub_id(name: Any) -> bool:
    return isinstance(name, str) and name.count("/") == 1 and public_name(name) == name


def _public(value: Any) -> Any:
    """The names in a setting that says where something lies, at any depth."""
    if isinstance(value, Mapping):
        return {key: _public(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_public(item) for item in value]
    return public_name(value) if isinstance(value, str) else value


def _card(config: Mapping[str, Any], tags: Sequence[str], body: list[str]) -> "ModelCard":
    from huggingface_hub import ModelCard, ModelCardData

    base = config.get("model_name_or_path")
    names = [config.get("dataset_name"), *(entry.get("path") for entry in config.get("datasets") or [])]
    data = ModelCardData(
        base_model=base if _is_hub_id(base) else None,
        datasets=[name for name in names if _is_hub_id(name)] or None,
        library_name="peft" if "lora" in tags else "transformers",
        pipeline_tag="text-generation",
        tags=["dynotune", *tags],
    )
    text = "\n\n".join(part for part in body if part)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}\n")


def _title(config: Mapping[str, Any], run: Path) -> str:
    return printable(str(config.get("run_name") or run.resolve().name), 200)


def _use(lora: bool, base: str | None) -> str:
    if lora:
        return (
            "```python\nfrom peft import AutoPeftModelForCausalLM\nfrom transformers import AutoTokenizer\n\n"
            'model = AutoPeftModelForCausalLM.from_pretrained("THIS FOLDER OR REPOSITORY")'
            + (f"  # loads {base} too\n" if base else "\n")
            + 'tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER OR REPOSITORY")\n```'
        )
    return (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'model = AutoModelForCausalLM.from_pretrained("THIS FOLDER OR REPOSITORY")\n'
        'tokenizer = AutoTokenizer.from_pretrained("THIS FOLDER OR REPOSITORY")\n```'
    )


def _data(ledger: Mapping[str, Any]) -> str:
    if not ledger:
        return "The run left no ledger."
    rows = [_data_row(public_name(name), counts) for name, counts in ledger.get("sources", {}).items()]
    if len(rows) != 1:
        rows.append(_data_row("all", ledger))
    parts = [_table(("source", "rows read", "rows used", "tokens used", "of them with loss", "truncated"), rows)]
    for title, key in (("Skipped rows, by reason", "skipped"), ("Noticed in rows that train", "notices")):
        if counted := ledger.get(key):
            parts.append(f"{title}: " + ", ".join(f"{name} {count:,}" for name, count in counted.items()) + ".")
    return "\n\n".join(parts)


def _data_row(name: str, counts: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("rows_read", "rows_used", "tokens_used", "label_tokens", "tokens_truncated")
    return (name, *(f"{counts[key]:,}" if key in counts else "" for key in keys))


OF_THE_RUN = (
    "method",
    "definitions",
    "time/",
    "set_up/",
    "meter_",
    "wasted/",
    "steady_",
    "failed_saves",
    "data_wait",
    "no_mfu",
    "process_seconds",
    "wall_seconds",
    "goodput",
    "measured_steps",
)
"""Figures that tell how a run went and nothing of the model: they stand in summary.json and on the run's page."""


def _results(run: Path, summary: Mapping[str, Any]) -> str:
    rows = [
        (_spelt(name), percent(value) if name in SHARES else _figure(value))
        for name, value in summary.items()
        if value not in (None, []) and not name.startswith(OF_THE_RUN)
    ]
    metrics = run / "metrics.jsonl"
    for curve in read_curves(metrics) if metrics.is_file() else []:
        what = "training loss" if curve.is_train else f"{curve.name} loss"
        rows.append((f"{what}, first logged (step {curve.steps[0]})", f"{curve.losses[0]:.4f}"))
        rows.append((f"{what}, last logged (step {curve.steps[-1]})", f"{curve.losses[-1]:.4f}"))
    return _table(("figure", "value"), rows) if rows else "The run logged no metrics."


def _spelt(name: str) -> str:
    return name.replace("_", " ").replace("mfu", "MFU").replace("hfu", "HFU")


def _figure(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _settings(config: Mapping[str, Any], method: _Trained) -> str:
    """Every setting that is not the default, as YAML that can be used again."""
    fields = method.fields()
    shown = {}
    for key, value in without_secrets(config).items():
        field = fields.get(key)
        is_default = field is not None and value == field.get_default(call_default_factory=True)
        if key not in NOT_ABOUT_TRAINING and not is_default:
            shown[key] = _public(value) if key in LOCATIONS else without_local_paths(value)
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).strip() if shown else "# all defaults"
    fence = "`" * (2 + max(map(len, re.findall("`+", text)), default=1))  # what stands in a value must not end it
    return f"What differs from the defaults:\n\n{fence}yaml\n{text}\n{fence}"


def _versions(environment: Mapping[str, Any]) -> str:
    packages = environment.get("packages") or {name: version(name) for name in PACKAGES}
    parts = [f"{name} {packages[name]}" for name in PACKAGES if name in packages]
    if "python" in environment:
        parts.insert(0, f"Python {environment['python']}")
    gpus = Counter(gpu["name"] for gpu in environment.get("gpus") or ())
    where = ", ".join(f"{count} x {name}" for name, count in gpus.items())
    return ", ".join(parts) + (f"; GPUs of the machine: {where}." if gpus else ".")


def _run_card_sections(run: Path) -> list[str]:
    """Data, results, settings and versions of the run, from its own card."""
    from huggingface_hub import ModelCard

    path = run / "README.md"
    if not path.is_file():
        return []
    text = str(ModelCard.load(path).text)
    start = text.find("## Data")
    return ["# The adapter's training", text[start:].strip()] if start >= 0 else []


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" if i == 0 else "---:" for i in range(len(head))), *rows]
    return "\n".join("| " + " | ".join(printable(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _read_config(run: Path) -> dict[str, Any]:
    """Bounded as a configuration is: the run folder may be somebody else's, whose adapter is merged."""
    path = run / "config.yaml"
    return read_file(path).values if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    return found if isinstance(found, dict) else {}
