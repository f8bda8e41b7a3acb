"""AdamW with states of 8 bits, by bitsandbytes: a quarter of the memory of float32 states, and another result (behavioural).

Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (arXiv 2110.02861): both moments are kept in 256 values of a
dynamic map, scaled by the largest of each 256.
"""

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor

from dynotune.config.fates.names import EIGHT_BIT_OPTIMIZERS
from dynotune.config.keys.optimizer import OptimizerConfig
from dynotune.errors import ConfigError
from dynotune.foreign import in_a_line
from dynotune.model.eight_bit_states import BLOCK, embeddings_of, has_8_bits

MAPS = frozenset({"qmap1", "qmap2"})
"""The 256 values of either moment."""


def why_not(optim: str) -> str | None:
    """What an optimizer lacks here, with the remedy; None where nothing. Imports nothing."""
    if optim not in EIGHT_BIT_OPTIMIZERS or importlib.util.find_spec("bitsandbytes") is not None:
        return None
    return (
        f"`optim: {optim}` is bitsandbytes', which is not installed. `pip install bitsandbytes`, or set `optim:"
        " adamw_torch_fused`, whose states take four times the memory."
    )


def adamw_8bit(
    model: torch.nn.Module, groups: Any, config: OptimizerConfig, more: dict[str, Any]
) -> torch.optim.Optimizer:
    """bitsandbytes' AdamW over `groups`. Raises `ConfigError` where it is not there or cannot be imported.

    It cannot leave a step out on the device, and waits for the device after each weight.
    """
    if (why := why_not(config.optim)) is not None:
        raise ConfigError(why)
    try:
        bitsandbytes: Any = importlib.import_module("bitsandbytes.optim")
    except (ImportError, OSError, RuntimeError) as error:  # a library for another CUDA, or none that loads
        raise ConfigError(f"`optim: {config.optim}`: bitsandbytes cannot be imported: {in_a_line(error)}") from error
    if more.get("amsgrad"):
        raise ValueError("bitsandbytes' AdamW has no AMSGrad, and would leave `amsgrad` out without a word")
    if other := {"optim_bits", "is_paged", "args"} & more.keys():
        raise ValueError(f"{' and '.join(sorted(other))} would make another optimizer of it")
    embeddings = embeddings_of(model)

    class AdamW8bit(bitsandbytes.AdamW):  # type: ignore[misc]
        """Asks each weight for its own number of bits: bitsandbytes' registry of exceptions is the whole process's."""

        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = super().get_config(gindex, pindex, group)
            if not self.has_8_bits(self.param_groups[gindex]["params"][pindex]):
                found["optim_bits"] = 32
            return found

        def init_state(self, group: dict[str, Any], p: Tensor, gindex: int, pindex: int) -> None:
            super().init_state(group, p, gindex, pindex)
            for name in MAPS & self.state[p].keys():  # all weights share one, and safetensors takes no shared memory
                self.state[p][name] = self.state[p][name].clone()

        def has_8_bits(self, parameter: Tensor) -> bool:
            return has_8_bits(parameter, embeddings, self.args.min_8bit_size)

        def load_state_dict(self, state_dict: dict[str, Any], move_to_device: bool = True) -> None:
            parameters = [p for group in self.param_groups for p in group["params"]]
            for i, state in state_dict["state"].items():
                _check(parameters[i], state, self.has_8_bits(parameters[i]))
            super().load_state_dict(state_dict, move_to_device)

    betas = (config.adam_beta1, config.adam_beta2)
    asked = {"lr": config.learning_rate, "betas": betas, "eps": config.adam_epsilon, "optim_bits": 8, **more}
    optimizer: torch.optim.Optimizer = AdamW8bit(groups, **asked)
    return optimizer


def states_of_8_bits(optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Of how many weights `adamw_8bit`'s optimizer keeps both moments in 8 bits, and of how many it should, of those that it
    has updated so far."""
    kept = [(p, state) for p, state in optimizer.state.items() if "state1" in state]
    in_8_bits = sum({state["state1"].dtype, state["state2"].dtype} == {torch.uint8} for _, state in kept)
    return in_8_bits, sum(optimizer.has_8_bits(p) for p, _ in kept)  # type: ignore[attr-defined]


def _check(parameter: Tensor, state: dict[str, Any], in_8_bits: bool) -> None:
    """bitsandbytes' kernels take addresses and look at no shape. Raises `ValueError`, `KeyError` or `AttributeError`."""
    moment = (torch.uint8 if in_8_bits else torch.float32, tuple(parameter.shape))
    wanted: dict[str, Any] = {"state1": moment, "state2": moment}
    if in_8_bits:
        blocks = (torch.float32, (-(-parameter.numel() // BLOCK),))
        wanted |= {"absmax1": blocks, "absmax2": blocks}
        wanted |= dict.fromkeys(MAPS, (torch.float32, (256,)))
    found = {name: (state[name].dtype, tuple(state[name].shape)) for name in wanted}
    if found != wanted or type(state["step"]) is not int or set(state) != {*wanted, "step"}:
        raise ValueError(f"states of {found}, {wanted} were expected")
