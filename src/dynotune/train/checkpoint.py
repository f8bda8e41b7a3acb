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
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dynotune.config.keys.saving import SavingConfig
from dynotune.errors import ModelError, TrainingError
from dynotune.train.resume import check_same
from dynotune.train.whole_folders import put_in_place, recover, remove

if TYPE_CHECKING:
    from torch.optim.lr_scheduler import LRScheduler
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FORMAT = 1
TRAINABLE = "trainable.safetensors"


@dataclass(slots=True)
class Progress:
    """Where a run stands: everything that is counted and goes on after a resume."""

    step: int = 0
    tokens: int = 0
    """Real tokens trained on so far."""

    label_tokens: int = 0
    train_seconds: float = 0.0
    loss_sum: float = 0.0
    """Sum of the losses of the steps that were finite, and how many they were."""

    finite_steps: int = 0
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

    settings: dict[str, Any]
    """The settings that shape an update (`resume.settings_of`)."""

    @property
    def is_adapter(self) -> bool:
        return hasattr(self.model, "peft_config")


def model_folder(is_adapter: bool) -> str:
    """The name under which a model or adapter lies in a run folder or checkpoint."""
    return "adapter" if is_adapter else "model"


def make_saveable(model: "PreTrainedModel") -> str | None:
    """Mend what would stop transformers from saving the model hours later; says what was done.

    Many published models carry sampling values without `do_sample`: transformers loads that and refuses to write it.
    """
    generation: Any = model.generation_config
    if generation is None:
        return None
    try:
        generation.validate(strict=True)
    except ValueError:
        generation.do_sample = True
        try:
            generation.validate(strict=True)
        except ValueError as error:
            raise ModelError(
                f"The model's generation_config.json is not valid, so the model could not be saved: {error}. Correct it."
            ) from error
        return "generation_config.json: its sampling values need `do_sample: true`, which is set in what is saved"
    return None


def save_model(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write model or adapter with its tokenizer so that transformers or PEFT load the folder as it is."""
    half = folder.with_name(f".{folder.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    # The cache is off while training; a model that is saved must generate with it.
    use_cache, model.config.use_cache = model.config.use_cache, True
    try:
        model.save_pretrained(half)
        tokenizer.save_pretrained(half)
        put_in_place(half, folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(half, ignore_errors=True)
        raise TrainingError(f"{folder} could not be written: {error}. Make room on the disk.") from error
    finally:
        model.config.use_cache = use_cache


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
        try:
            self._write(trainee, half)
            put_in_place(half, target)
        except (OSError, SafetensorError, TrainingError) as error:
            shutil.rmtree(half, ignore_errors=True)
            whole = self.all()
            kept = f"the newest complete one is {whole[-1]}" if whole else "there is none before it"
            raise TrainingError(
                f"The checkpoint of step {trainee.progress.step} could not be written ({error}); {kept}. Make room on the"
                " disk, then go on with `resume_from_checkpoint: true`."
            ) from error
        self._prune(keep={trainee.progress.step, trainee.progress.best_step})
        return target

    def _write(self, trainee: Trainee, half: Path) -> None:
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        save_model(trainee.model, trainee.tokenizer, half / model_folder(trainee.is_adapter))
        if trainee.is_adapter:
            # PEFT's file holds what inference needs, under PEFT's names. This one holds what was trained, as it was.
            save_file(trainable_tensors(trainee.model), half / TRAINABLE)
        tensors, state = ({}, {}) if self.only_model else _training_state(trainee)
        if tensors:
            save_file(tensors, half / "training.safetensors")
        state |= {
            "format": FORMAT,
            "plan": trainee.plan,
            "settings": trainee.settings,
            "progress": asdict(trainee.progress),
            "resumable": not self.only_model,
        }
        (half / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def _prune(self, keep: set[int | None]) -> None:
        if self.limit is None:
            return
        present = self.all()
        spare = [p for p in present if int(p.name.removeprefix("step-")) not in keep]
        for old in spare[: max(0, len(present) - self.limit)]:
            remove(old)

    def find(self, asked: str | bool) -> Path:
        """The checkpoint to resume from: the newest one, or the one that was named."""
        if self.folder.is_dir():
            recover(self.folder)
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
                f"`resume_from_checkpoint: {path}` is not a checkpoint of Dynotune (it has no state.json). A checkpoint is a"
                " folder `checkpoints/step-N` of a run folder."
            )
        return path

    def abandon_after(self, step: int) -> list[Path]:
        """Set checkpoints of steps that will be done again aside, so that none is taken for the run that goes on."""
        later = [p for p in self.all() if int(p.name.removeprefix("step-")) > step]
        moved = []
        for path in later:
            target = path.with_name(f"abandoned-{path.name}")
            if target.exists():
                remove(target)
            moved.append(path.rename(target))
        return moved

    def restore(self, path: Path, trainee: Trainee) -> None:
        """Put everything back as it was when the checkpoint was written."""
        state = _read_state(path)
        if state["format"] != FORMAT:
            raise TrainingError(f"{path} has checkpoint format {state['format']}; this version reads {FORMAT}.")
        if not state["resumable"]:
            raise TrainingError(
                f"{path} was written with `save_only_model`: it holds no optimizer state. To start a new run from it,"
                + (
                    f" put the adapter into its base (`dynotune merge {path} --output DIR`) and give that folder as"
                    if trainee.is_adapter
                    else f" give {path / 'model'} as"
                )
                + " `model_name_or_path`."
            )
        check_same(path, state, trainee.plan, trainee.settings)
        load_weights(trainee.model, path)
        tensors = _load_tensors(path / "training.safetensors")
        try:
            _restore_training_state(trainee, tensors, state)
            progress = Progress(**state["progress"])
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
            raise TrainingError(
                f"{path} does not hold what a resume needs ({type(error).__name__}: {error}): it was edited or damaged. Name"
                " another checkpoint."
            ) from error
        for key, value in asdict(progress).items():
            setattr(trainee.progress, key, value)


def _read_state(path: Path) -> dict[str, Any]:
    """state.json with everything that a resume needs, or an error that names the file."""
    needed = {"format", "resumable", "plan", "settings", "progress"}
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{path / 'state.json'} cannot be read: {error}. Name an older checkpoint.") from error
    missing = needed - state.keys() if isinstance(state, dict) else needed
    if missing:
        raise TrainingError(
            f"{path / 'state.json'} lacks {', '.join(sorted(missing))}: it was edited, or another version wrote it. Name"
            " another checkpoint."
        )
    return dict(state)


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path} cannot be read: {error}. Name an older checkpoint.") from error


def trainable_tensors(model: "PreTrainedModel") -> dict[str, Tensor]:
    """Every trainable parameter under its own name."""
    return {name: p.detach().contiguous() for name, p in model.named_parameters() if p.requires_grad}


def load_weights(model: "PreTrainedModel", checkpoint: Path) -> None:
    """Load a checkpoint's trained weights into the live model."""
    if hasattr(model, "peft_config"):
        saved = _load_tensors(checkpoint / TRAINABLE)
        live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        wrong = [
            n for n in saved.keys() | live.keys() if n not in saved or n not in live or saved[n].shape != live[n].shape
        ]
        if wrong:
            raise TrainingError(
                f"{checkpoint} was trained with another adapter: {len(wrong)} trained weights differ in name or shape"
                f" ({sorted(wrong)[0]}). Resume with the adapter settings of that run."
            )
        with torch.no_grad():
            for name, p in live.items():
                p.copy_(saved[name])
        return
    # Through from_pretrained, because the names in the file may differ from the module's (fused experts, tied heads).
    dtype = next(model.parameters()).dtype
    try:
        loaded: Any = type(model).from_pretrained(
            checkpoint / "model", dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise TrainingError(f"{checkpoint / 'model'} cannot be loaded: {error}. Name another checkpoint.") from error
    saved_model, info = loaded
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        raise TrainingError(
            f"{checkpoint / 'model'} lacks {len(missing)} weights ({missing[0]}). Name another checkpoint."
        )
    model.load_state_dict(saved_model.state_dict())


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
    # Every parameter has a state or none has; matrices may have other states than vectors (adafactor).
    kinds = {(parameters[i].dim() > 1, frozenset(v)) for i, v in values.items()}
    if values and (len(values) != len(parameters) or len(kinds) != len({matrix for matrix, _ in kinds})):
        raise ValueError(f"optimizer states of {len(values)} parameters, of {len(parameters)} that are trained")
    groups = trainee.optimizer.state_dict()["param_groups"]
    for group, saved in zip(groups, state["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in saved.items()})
    trainee.optimizer.load_state_dict({"state": values, "param_groups": groups})
    _restore_schedule(trainee, dict(state["schedule"]))
    version, internal, gauss = state["rng_python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["rng_numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), *rest))
    torch.set_rng_state(tensors["rng/torch"])
    if torch.cuda.is_available():
        saved_cuda = [tensors[k] for k in sorted(tensors) if k.startswith("rng/cuda/")]
        if len(saved_cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(saved_cuda)


def _restore_schedule(trainee: Trainee, saved: dict[str, Any]) -> None:
    schedule = trainee.schedule
    if not hasattr(schedule, "lr_lambdas"):
        schedule.load_state_dict(saved)
        return
    schedule.load_state_dict({**saved, "lr_lambdas": [None] * len(schedule.lr_lambdas)})
    # The rates follow from the step and from how long the run is now: a run that was made longer goes on along the longer
    # schedule instead of from the end of the shorter one. Where the length is the same, these are the saved values.
    rates = [base * f(schedule.last_epoch) for base, f in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)]
    for group, rate in zip(trainee.optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    schedule._last_lr = rates
