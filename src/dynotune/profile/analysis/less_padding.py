"""How a script that is not ours pads less without a kernel that takes documents side by side, by what its loop has."""

from collections.abc import Mapping
from typing import Any

from dynotune.profile.analysis.findings import Kind

Advice = tuple[str, Kind, str]
"""What to do, its kind, and the setting."""

LONGEST = "pad each batch to its own longest row and not to one length for all"
ALIKE = "batch rows of like length"

OLD, NEW = "group_by_length", "train_sampling_strategy"
"""What transformers' arguments call it up to version 4 and from 5 on."""


def less_padding(trainer: str, method: str, arguments: Mapping[str, Any], flash: bool) -> Advice | None:
    """None where nothing is left. method: of TRL. flash: whether there could be such a kernel.

    TRL's collators pad to the longest row already; that of transformers' Trainer does what the data set or the user's
    collator says. Rows of like length in a batch are another order of the data, and so another course of training. Of TRL's
    trainers only that of SFT has them: DPO and reward rows have no `input_ids` to take a length from, which raises, KTO with
    a KL term refuses any order but its own, and GRPO and RLOO have a sampler of their own.
    """
    if trainer == "torch":
        return f"{LONGEST}, and {ALIKE}{', or flatten it for a flash kernel' * flash}", Kind.BEHAVIOURAL, ""
    grouped = arguments.get(OLD) is True or arguments.get(NEW) == "group_by_length"
    if grouped:
        return (LONGEST, Kind.EXACT, "") if trainer == "transformers" else None
    if trainer == "trl" and method != "sft":
        return None
    setting = f"{OLD}=True" if OLD in arguments else f'{NEW}="group_by_length"'
    text = f"{LONGEST}, and {ALIKE}" if trainer == "transformers" else ALIKE
    return text, Kind.BEHAVIOURAL, setting
