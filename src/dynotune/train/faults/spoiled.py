"""Weights that are not finite themselves when a step is examined, and who could have made them so.

An update cannot be among what is left out one at a time: it came behind the loss and the gradients of its own step, which
were judged before it, and it was made from weights that are gone when the next one fails. So it is named as a suspect.
"""

from typing import TYPE_CHECKING

from dynotune.train.faults.first_bad import finite

if TYPE_CHECKING:
    from torch import nn

    from dynotune.speedups.installed import Installed


def spoiled_weights(model: "nn.Module", installed: "Installed", step: int) -> str:
    """What to say of them where step number `step` is not finite; empty where they are finite. Waits for the device."""
    bad = [name for name, p in model.named_parameters() if p.requires_grad and not finite(p)]
    if not bad:
        return ""
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    weights = f"{bad[0]}{more}, which training changes, is not finite itself"
    if step == 1:
        return f"{weights}: it was so before the first step, or the update of this one wrote it"
    by = ""
    if installed.get("fused_optimizer") is not None:
        by = (
            " (`fused_optimizer`, which cannot be tried on an update that is over: go on from an earlier checkpoint with"
            " `speedups: {fused_optimizer: off}`)"
        )
    return f"{weights}: the update of step {step - 1} wrote it{by}, or a callback or hook"
