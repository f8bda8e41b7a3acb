"""Checkpoints: model or adapter, optimizer, schedule, random states and counters, without pickle.

A checkpoint is written into a temporary folder and renamed, so a folder named `step-N` is complete.
"""

import json
import random
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dynotune.config.keys.saving import SavingConfig
from dynotune.errors import TrainingError

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FORMAT = 1


@dataclass(slots=True)
class Progress:
    """Where a run stands: everything that is counted and goes on after a resume."""

    step: int = 0
    tokens: int = 0
    """Real tokens trained on so far."""

    label_tokens: int = 0
    train_seconds: float = 0.0
    best_metric: float | None = None
    best_step: int | None = None
    evaluations_without_gain: int = 0
    skipped_steps: list[int] = field(default_factory=list)
    """Steps whose loss or gradient was not finite."""


@dataclass(slots=True)
class Trainee:
    """What a checkpoint holds and a resume restores."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    optimizer: torch.optim.Optimizer
    schedule: "LRScheduler"
    progress: Progress
    plan: dict[str, Any]
    """What the plan says of itself (`Plan.to_json`): step N means the same examples only under the same plan."""

    @property
    def is_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")


def model_folder(is_adapter: bool) -> str:
    """The name under which a model or adapter lies in a run folder or checkpoint."""
    return "adapter" if is_adapter else "model"


def save_model(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write model or adapter with its tokenizer so that transformers or PEFT load the folder as it is."""
    half = folder.with_name(f".{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    # The cache is off while training; a model that is saved must generate with it.
    use_cache, model.config.use_cache = model.config.use_cache, True
    try:
        model.save_pretrained(half)
        tokenizer.save_pretrained(half)
    finally:
        model.config.use_cache = use_cache
    put_in_place(half, folder)


def put_in_place(new: Path, target: Path) -> None:
    """Rename a finished folder to its place. One that stands there steps aside first, so that no moment loses both."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)


class Checkpoints:
    """Writes, finds, restores and removes the checkpoints of a run."""

    def __init__(self, folder: Path, config: SavingConfig) -> None:
        self.folder, self.limit, self.only_model = folder, config.save_total_limit, config.save_only_model

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step}"

    def all(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        found = [
            p for p in self.folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name) and (p / "state.json").is_file()
        ]
        return sorted(found, key=lambda p: int(p.name.removeprefix("step-")))

    def save(self, trainee: Trainee) -> Path:
        """Write the checkpoint of the step just done, then remove what `save_total_limit` no longer keeps."""
        target = self.path(trainee.progress.step)
        half = target.with_name(f".{target.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        save_model(trainee.model, trainee.tokenizer, half / model_folder(trainee.is_adapter))
        tensors, state = ({}, {}) if self.only_model else _training_state(trainee)
        if tensors:
            from safetensors.torch import save_file

            save_file(tensors, half / "training.safetensors")
        state |= {
            "format": FORMAT,
            "plan": trainee.plan,
            "progress": asdict(trainee.progress),
            "resumable": not self.only_model,
        }
        (half / "state.json").write_text(json.dumps(state), encoding="utf-8")
        put_in_place(half, target)
        self._prune(keep={trainee.progress.step, trainee.progress.best_step})
        return target

    def _prune(self, keep: set[int | None]) -> None:
        if self.limit is None:
            return
        present = self.all()
        spare = [p for p in present if int(p.name.removeprefix("step-")) not in keep]
        for old in spare[: max(0, len(present) - self.limit)]:
            shutil.rmtree(old)

    def find(self, asked: str | bool) -> Path:
        """The checkpoint to resume from: the newest one, or the one that was named."""
        if isinstance(asked, bool) or asked.lower() == "true":
            present = self.all()
            if not present:
                raise TrainingError(
                    f"`resume_from_checkpoint: true`, but {self.folder} holds no complete checkpoint. Start without it, or"
                    " name a checkpoint."
                )
            return present[-1]
        path = Path(asked)
        if not (path / "state.json").is_file():
            raise TrainingError(
                f"`resume_from_checkpoint: {path}` is not a checkpoint of Dynotune (it has no state.json)."
            )
        return path

    def restore(self, path: Path, trainee: Trainee) -> None:
        """Put everything back as it was when the checkpoint was written."""
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise TrainingError(f"{path} has checkpoint format {state['format']}; this version reads {FORMAT}.")
        if not state["resumable"]:
            raise TrainingError(
                f"{path} was written with `save_only_model`: it holds no optimizer state. Give its"
                f" {model_folder(trainee.is_adapter)}/ as `model_name_or_path` to start a new run from it."
            )
        _check_same_plan(path, state["plan"], trainee.plan)
        load_weights(trainee.model, path / model_folder(trainee.is_adapter))
        from safetensors.torch import load_file

        _restore_training_state(trainee, load_file(path / "training.safetensors"), state)
        for key, value in state["progress"].items():
            setattr(trainee.progress, key, value)


def _check_same_plan(path: Path, saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Other data, another batch size or seed would train other examples at the steps that are left, and some twice."""
    may_differ = {"steps", "epochs"}  # a run may be made longer
    changed = [key for key in saved.keys() | now.keys() if key not in may_differ and saved.get(key) != now.get(key)]
    if changed:
        listed = "; ".join(f"{key}: {saved.get(key)} then, {now.get(key)} now" for key in sorted(changed))
        raise TrainingError(
            f"{path} was written under another plan ({listed}). Resume with the data, batch settings, `max_length` and seed"
            " of that run, or start a new run from its weights by naming them in `model_name_or_path`."
        )


def load_weights(model: "PreTrainedModel", folder: Path) -> None:
    """Load a saved model's or adapter's weights into the live one."""
    if hasattr(model, "peft_config"):
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        result: Any = set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))
        if result.unexpected_keys:
            raise TrainingError(
                f"{folder} does not belong to this adapter: it also holds {result.unexpected_keys[:3]}."
            )
        return
    # Through from_pretrained, because the names in the file may differ from the module's (fused experts, tied heads).
    dtype = next(model.parameters()).dtype
    saved = type(model).from_pretrained(folder, dtype=dtype, use_safetensors=True)
    model.load_state_dict(saved.state_dict())


def _training_state(trainee: Trainee) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Optimizer, schedule and random states as named tensors and plain JSON."""
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    tensors: dict[str, Tensor] = {"rng/torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"rng/cuda/{i}": s for i, s in enumerate(torch.cuda.get_rng_state_all())}
    plain: dict[str, dict[str, Any]] = {}
    for parameter, values in trainee.optimizer.state.items():
        name = names[id(parameter)]
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer/{name}/{key}"] = value.detach().contiguous()
            else:
                plain.setdefault(name, {})[key] = value
    numpy_state: Any = np.random.get_state()  # the global generator is what libraries draw from
    schedule = {k: v for k, v in trainee.schedule.state_dict().items() if k != "lr_lambdas"}
    state = {
        "optimizer": plain,
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in trainee.optimizer.param_groups],
        "schedule": schedule,
        "rng_python": random.getstate(),
        "rng_numpy": [numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]],
    }
    return tensors, state


def _restore_training_state(trainee: Trainee, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    # Through the optimizer's own loader: it knows which values belong on the device and which (step counters) do not.
    names = {id(p): name for name, p in trainee.model.named_parameters()}
    parameters = [p for group in trainee.optimizer.param_groups for p in group["params"]]
    index = {names[id(p)]: i for i, p in enumerate(parameters)}
    values: dict[int, dict[str, Any]] = {index[name]: dict(plain) for name, plain in state["optimizer"].items()}
    for key, tensor in tensors.items():
        if key.startswith("optimizer/"):
            owner, what = key.removeprefix("optimizer/").rsplit("/", 1)
            values.setdefault(index[owner], {})[what] = tensor
    groups = trainee.optimizer.state_dict()["param_groups"]
    for group, saved in zip(groups, state["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in saved.items()})
    trainee.optimizer.load_state_dict({"state": values, "param_groups": groups})
    schedule = dict(state["schedule"])
    if hasattr(trainee.schedule, "lr_lambdas"):
        schedule["lr_lambdas"] = [None] * len(trainee.schedule.lr_lambdas)
    trainee.schedule.load_state_dict(schedule)
    version, internal, gauss = state["rng_python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["rng_numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    torch.set_rng_state(tensors["rng/torch"])
    if torch.cuda.is_available():
        saved_cuda = [tensors[k] for k in sorted(tensors) if k.startswith("rng/cuda/")]
        if len(saved_cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(saved_cuda)
