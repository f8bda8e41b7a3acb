"""Runs of pairs that stand before their first step, put together as the flow does, around a small model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from rich.console import Console

from dynotune.config.dpo import DPOConfig
from dynotune.data.examples import IGNORE
from dynotune.data.pairs import Pairs
from dynotune.execution.pairs import PairItems
from dynotune.execution.paths import PairPaths
from dynotune.execution.side_by_side import SideBySidePath
from dynotune.model.forward import logits_of_document
from dynotune.model.precision import Precision
from dynotune.objectives.preference.objective import PreferenceObjective
from dynotune.parallel.ranks import Ranks
from dynotune.plan.pairs import groups_of, pair_spans
from dynotune.plan.plan import Plan
from dynotune.speedups.choose import decide
from dynotune.speedups.contract import Context
from dynotune.speedups.installed import Installed
from dynotune.speedups.registry import speedups
from dynotune.speedups.site import Site
from dynotune.train.evaluate import HeldOut
from dynotune.train.faults.ways import Ways
from dynotune.train.preference.bring import bring_reference
from dynotune.train.start.recipe import Start
from tests.tiny import tiny_model

CPU, FULL = torch.device("cpu"), Precision(torch.float32, False)


def adapted(seed: int = 0, model: Any = None, **changes: Any) -> Any:
    """A small model, or this one, with a LoRA adapter."""
    base = tiny_model() if model is None else model
    torch.manual_seed(seed)
    config = {"r": 4, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **changes}
    return get_peft_model(base, LoraConfig(**config))


class Beginning:
    """`bring()` does what a run does before its first step; `said` is what it told."""

    def __init__(self, start: Start, config: DPOConfig, objective: PreferenceObjective) -> None:
        self.start, self.config, self.objective = start, config, objective
        self.said: list[str] = []
        self.bringing: Any = None

    @property
    def items(self) -> Any:
        return self.start.material.items

    @property
    def path(self) -> Any:
        return self.start.execution.path

    def bring(self) -> list[str]:
        self.said, self.bringing = bring_reference(self.config, self.objective, self.start)
        return self.said


@contextmanager
def beginning(
    model: Any,
    pairs: Pairs,
    *,
    held_out: Mapping[str, Pairs] | None = None,
    ranks: Ranks | None = None,
    tokens: int = 192,
    precision: Precision = FULL,
    console: Console | None = None,
    start: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Iterator[Beginning]:
    """start: fields of `Start` that differ. keys: of the configuration."""
    ranks = ranks or Ranks()
    config = DPOConfig(**{"per_device_train_batch_size": 4, "packed_execution": "on", "max_steps": 4, **keys})
    objective = PreferenceObjective(config)
    spans = pair_spans(pairs, groups_of(config))
    others = [
        (name, some, pair_spans(some, groups_of(config, held_out=True))) for name, some in (held_out or {}).items()
    ]
    longest = int(max(of.lengths.max() for of in (spans, *(of for _, _, of in others))))
    compute = torch.bfloat16 if precision.compute_bf16 else next(model.parameters()).dtype
    context = Context(config, model, CPU, compute, precision, longest)
    autocast = lambda: torch.autocast("cpu", torch.bfloat16, enabled=precision.compute_bf16)  # noqa: E731
    site = Site(context, autocast)
    installed = Installed(decide(config, context, speedups()), site)
    paths = PairPaths(objective)
    path = paths.packed(site) if site.packed else paths.plain(model)
    spans, others = path.units(spans), [(name, some, path.units(of)) for name, some, of in others]
    held = {name: HeldOut(PairItems(some, of), of, np.arange(len(some))) for name, some, of in others}
    longest = max([int(spans.lengths.max()), *(one.longest for one in held.values())])
    plan = Plan(spans, np.arange(len(pairs)), config, 0, rank=ranks.rank, world=ranks.world)
    plan = plan.executed(tokens if site.packed else None, longest)
    begun = Start(
        execution=SimpleNamespace(
            path=path,
            plan=plan,
            site=site,
            installed=installed,
            ways=Ways(model, paths, path, installed, autocast),
        ),  # type: ignore[arg-type]
        material=SimpleNamespace(items=PairItems(pairs, spans), held_out=held),  # type: ignore[arg-type]
        model=model,
        device=CPU,
        ranks=ranks,
        **{  # type: ignore[arg-type]
            "resumed": False,
            "continued_adapter": False,
            "as_in_files": False,
            "trained": False,
            "rehearsal": False,
            "say": lambda line: None,
            "console": console or Console(quiet=True),
            **(start or {}),
        },
    )
    try:
        yield Beginning(begun, config, objective)
    finally:
        if isinstance(path, SideBySidePath):
            path.close()
        installed.close()


def one_by_one(model: Any, pairs: Pairs, numbers: Sequence[int], adapter: bool = False) -> np.ndarray:
    """Log-probabilities [n, 2] through stock transformers, a side at a time, with the adapter off or on."""
    found = []
    off = hasattr(model, "peft_config") and not adapter
    with torch.no_grad(), model.disable_adapter() if off else nullcontext():
        for number in numbers:
            for side in pairs[number]:
                logits_TV = logits_of_document(model, torch.from_numpy(side.ids_T).long())
                targets_T = torch.from_numpy(side.labels_T).long()[1:]
                kept = targets_T != IGNORE
                log_p = logits_TV[:-1].log_softmax(-1)[kept].gather(-1, targets_T[kept][:, None])
                found.append(float(log_p.sum()))
    return np.array(found).reshape(-1, 2)
