"""What a run's reference is known by: what it depends on, and what computes it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

from dynotune.config.keys.model import ModelConfig
from dynotune.environment import installed
from dynotune.model.weight_files import weight_paths
from dynotune.parallel.ranks import Ranks
from dynotune.reference import Key, key_of
from dynotune.speedups.contract import Scope
from dynotune.speedups.installed import Installed
from dynotune.speedups.machine import machine_of
from dynotune.speedups.site import Site


def files_of(config: ModelConfig) -> Sequence[Path]:
    """The files that hold the weights of the model which `config` names."""
    assert config.model_name_or_path
    return weight_paths(config.model_name_or_path, config.model_revision, dict(config.model_init_kwargs))


def key_here(model: nn.Module, files: Sequence[Path], site: Site, *, keep_adapter: bool, tails: bool) -> Key:
    """`key_of` for a run's precision."""
    computed_in = torch.bfloat16 if site.context.precision.compute_bf16 else None
    return key_of(model, files, computed_in=computed_in, keep_adapter=keep_adapter, tails=tails)


def of_first_rank(key: Callable[[], Key], ranks: Ranks) -> Key:
    """The key, found by the first rank for all: the weights are read once."""
    found = None
    with ranks.first_alone("reading the weights that the reference depends on") as mine:
        if mine:
            found = key()
    return Key(**ranks.from_first(found.told() if found else None))


def made_by(site: Site, speedups: Installed) -> dict[str, str]:
    """Backend, device and versions: what may change the last digits of a log-probability, and nothing else of it."""
    machine = machine_of(site.context.device)
    standing = sorted(one.name for one in speedups if one.speedup.scope is Scope.MODEL)
    facts = {
        "path": "packed" if site.packed else "plain",
        "attention": site.attention if site.packed else "transformers",
        "speed-ups": " ".join(standing),
        "device": machine.device,
        "driver": machine.driver,
        "CUDA": machine.cuda,
        "torch": machine.torch,
        "Triton": machine.triton,
        "Dynotune": machine.dynotune,
        **installed(("transformers", "peft")),
    }
    return {name: value for name, value in facts.items() if value}


def is_exact(site: Site) -> bool:
    """Whether matrix products keep what float32 has, so that no bound needs to be measured."""
    low = site.context.compute not in (torch.float32, torch.float64)
    stored_low = any(p.is_floating_point() and p.dtype.itemsize < 4 for p in site.model.parameters())
    return not (low or stored_low or (site.context.on_gpu and torch.backends.cuda.matmul.allow_tf32))
