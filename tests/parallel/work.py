"""What ranks do in tests. Imported once by the server that they are forked from."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import save_file
from transformers import TrainerCallback

from dynotune import SFTConfig, train_sft
from dynotune.objectives.sft import SFTObjective
from dynotune.parallel.group import RankGroup
from dynotune.parallel.watchdog import Watchdog
from tests.tiny import chats, tiny_model, tiny_tokenizer

ROWS = chats(13)
HELD_OUT = chats(7, seed=5)
LORA = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.0, "lora_target_modules": ["q_proj", "v_proj", "down_proj"]}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "full, packed": {},
    "full, plain": {"packed_execution": "off"},
    "LoRA, packed": LORA,
    "LoRA, plain": {**LORA, "packed_execution": "off"},
    "several micro-batches": {"micro_batch_tokens": 128, "learning_rate": 1e-2, "optim": "adamw_torch"},
}


class KeepGradients(TrainerCallback):
    """The gradients of the first two steps, as the optimizer gets them."""

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step < 2:
            for name, p in more["model"].named_parameters():
                if p.grad is not None:
                    self.kept[f"{state.global_step}/{name}"] = p.grad.detach().clone()


def settings(folder: Path, **more: Any) -> SFTConfig:
    given = {
        "output_dir": str(folder),
        "use_cpu": True,
        "global_batch_size": 3,
        "num_train_epochs": 1,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "steps",
        "eval_steps": 3,
        "optim": "sgd",
        "learning_rate": 0.5,
        "max_grad_norm": 0.0,
        **more,
    }
    return SFTConfig(**given)


def train(
    folder: Path,
    callbacks: Sequence[Any] = (),
    console: Console | None = None,
    rows: Any = None,
    model: Any = None,
    **more: Any,
) -> Any:
    return train_sft(
        settings(folder, **more),
        model=tiny_model() if model is None else model,
        tokenizer=tiny_tokenizer(),
        train_dataset=ROWS if rows is None else rows,
        eval_dataset=HELD_OUT,
        callbacks=callbacks,
        console=console or Console(quiet=True),
    )


def variants(folder: Path, names: Sequence[str]) -> None:
    """One run of each, with its gradients and weights beside it."""
    for name in names:
        torch.manual_seed(0)
        keep = KeepGradients()
        result = train(folder / name, [keep], **VARIANTS[name])
        if os.environ.get("RANK", "0") == "0":
            save_file(keep.kept, folder / name / "gradients.safetensors")
            weights = {key: p.detach().contiguous() for key, p in result.model.named_parameters() if p.requires_grad}
            save_file(weights, folder / name / "weights.safetensors")


def without_a_sum(folder: Path) -> None:
    RankGroup.sum_gradients = lambda self, parameters: None  # type: ignore[method-assign]
    variants(folder, ["full, packed"])


def over_its_own_tokens(folder: Path) -> None:
    """Each rank divides by the label tokens that it has itself: a mean of means."""

    def counts(self: Any, spans: Any, rows: Any) -> tuple[int, ...]:
        mine = rows[rank() :: 2]
        return (max(1, int(spans.label_tokens[mine].sum())),) * (1 + len(self.sums))

    SFTObjective.counts = counts  # type: ignore[method-assign]
    variants(folder, ["full, packed"])


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


class AtStep(TrainerCallback):
    """Does something on one rank when a step begins."""

    def __init__(self, on_rank: int, step: int, what: Callable[[Any], None], event: str = "step_begin") -> None:
        def do(args: Any, state: Any, control: Any, **more: Any) -> None:
            if rank() == on_rank and state.global_step == step:
                what(control)

        setattr(self, f"on_{event}", do)


def killed(folder: Path, victim: int) -> None:
    """One rank is killed in the middle of step 4, behind a checkpoint of step 2."""
    kill = AtStep(victim, 3, lambda control: os.kill(os.getpid(), signal.SIGKILL))
    train(folder / "run", [kill], **SAVES)


SAVES = {
    "save_strategy": "steps",
    "save_steps": 2,
    "learning_rate": 1e-2,
    "optim": "adamw_torch",
    "lr_scheduler_type": "constant",
}


def hung(folder: Path, victim: int) -> None:
    """One rank sleeps when step 3 begins. Patience is short from there on: a busy host may take as long for a step that does
    not hang."""
    watched: list[Watchdog] = []
    start = Watchdog.start

    def kept(self: Watchdog) -> None:
        assert self.timeout == 900, "as was asked for"
        watched.append(self)
        start(self)

    def hang(control: Any) -> None:
        watched[0].timeout = 2.0
        if rank() == victim:
            time.sleep(3600)

    Watchdog.start = kept  # type: ignore[method-assign]
    train(folder / "run", [AtStep(rank(), 2, hang)], ddp_timeout=900, **{**SAVES, "save_steps": 1})


def fails_alone(folder: Path) -> None:
    """Rank 1 cannot find its data: the first thing that it alone does."""
    train(folder / "run", rows=[{"nothing": 1}] if rank() == 1 else None)


def differs(folder: Path, how: str) -> None:
    """Rank 1 differs in one thing."""
    other = rank() == 1
    if how == "configuration":
        train(folder / "run", learning_rate=0.1 if other else 0.5)
    elif how == "data":
        train(folder / "run", rows=ROWS[:-1] if other else ROWS)
    elif how == "trained weights":
        run_with(folder / "run", tiny_model(seed=rank()))
    else:
        assert how == "frozen weights"
        run_with(folder / "run", tiny_model(seed=rank()), **LORA)


def run_with(folder: Path, model: Any, **more: Any) -> Any:
    return train_sft(
        settings(folder, eval_strategy="no", **more),
        model=model,
        tokenizer=tiny_tokenizer(),
        train_dataset=ROWS,
        console=Console(quiet=True),
    )


def asks_alone(folder: Path) -> None:
    """Rank 1's callback asks for a checkpoint at step 2 and for the end at step 3."""

    def save(control: Any) -> None:
        control.should_save = True

    def stop(control: Any) -> None:
        control.should_training_stop = True

    seen = []
    look = AtStep(rank(), 1, lambda control: seen.append(True))
    result = train(folder / "run", [AtStep(1, 2, save, "step_end"), AtStep(1, 3, stop, "step_end"), look])
    (folder / f"steps-{rank()}").write_text(f"{result.steps} {seen}")


def interrupted_and_resumed(folder: Path, steps: Sequence[int]) -> None:
    """The same run, to each of these steps in turn."""
    for n in steps:
        resume = (folder / "checkpoints").exists()
        train(folder, max_steps=n, resume_from_checkpoint=resume or None, **SAVES)


def dropout(folder: Path) -> None:
    train(folder / "run", **{**LORA, "lora_dropout": 0.5}, save_strategy="steps", save_steps=2)


def meetings(folder: Path) -> None:
    """What ranks do together, by itself."""
    ranks = RankGroup(rank(), int(os.environ["WORLD_SIZE"]), rank(), torch.device("cpu"), 60.0)
    world, me = ranks.world, ranks.rank
    assert ranks.agree(me == world - 1, False, True) == (True, False, True)
    assert ranks.gather({"rank": me, "text": "ä" * me}) == [{"rank": r, "text": "ä" * r} for r in range(world)]
    assert ranks.from_first(f"from {me}") == "from 0"
    assert ranks.sum(torch.tensor([1.0, me])).tolist() == [world, sum(range(world))]
    weights = torch.full((3,), float(me))
    ranks.broadcast([weights])
    assert weights.tolist() == [0.0, 0.0, 0.0]
    gradients(ranks)
    for n in range(20):
        began = time.monotonic()
        with ranks.first_alone("something") as mine:
            assert mine == (me == 0)
            if mine and n == 0:
                time.sleep(0.3)
                (folder / "done").touch()
        assert (folder / "done").exists()
        with ranks.one_after_another("reading"):
            if me == 0 and n == 0:
                (folder / "read").touch()
            assert (folder / "read").exists()
        assert time.monotonic() - began < 200
    ranks.close()


def gradients(ranks: RankGroup) -> None:
    """Small and large, of two types, missing on some ranks and on all."""
    made = [(3,), (5, 7), (1 << 21,), (2,), (4,), (1 << 22,)]
    generator = torch.Generator().manual_seed(1)
    whole = [torch.rand(ranks.world, *shape, generator=generator) for shape in made]
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in made]
    parameters.append(torch.nn.Parameter(torch.zeros(6, dtype=torch.bfloat16)))
    whole.append(torch.ones(ranks.world, 6, dtype=torch.bfloat16))
    for i, (p, of_ranks) in enumerate(zip(parameters, whole, strict=True)):
        if i == 3 or (i == 4 and ranks.rank != 0):
            of_ranks[0 if i == 3 else slice(1, None)] = 0
            continue
        p.grad = of_ranks[ranks.rank].clone()
    before = [p.grad for p in parameters]
    ranks.sum_gradients(iter(parameters))
    for i, (p, of_ranks) in enumerate(zip(parameters, whole, strict=True)):
        if i == 3:
            assert p.grad is None  # it has none anywhere, and so the optimizer leaves it alone, as on one rank
            continue
        expected = of_ranks[:1].sum(0) if i == 4 else of_ranks.sum(0)
        torch.testing.assert_close(p.grad, expected)
        assert before[i] is None or p.grad is before[i]
