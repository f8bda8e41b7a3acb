"""Which policies of activation memory there are to choose from. `dynotune plan` and training both ask here, and so agree."""

from collections.abc import Callable, Mapping, Sequence

from dynotune.speedups.activation import POLICIES, PREFIX, ActivationPolicy
from dynotune.speedups.choose import Decision, conflict, giving_way
from dynotune.speedups.contract import Context, No
from dynotune.speedups.registry import speedups


def left_out(
    decisions: Sequence[Decision], context: Context, in_model: Callable[[ActivationPolicy], No | None]
) -> dict[str, No]:
    """Policies that cannot be taken where none was asked for, and why not. `none` always can.

    decisions: those without a `no` stand in the model, or will. in_model: why one cannot be put in there; asked last.
    """
    from dynotune.model.activations.cheap import adapter_drops_out

    standing = [one for one in decisions if one.no is None]
    drops = any(one.name == "compiled_layers" for one in standing) and adapter_drops_out(context.model)
    asked = {one.name: one for one in decisions}

    def why_not(name: str) -> No | None:
        policy = speedups()[name]
        assert isinstance(policy, ActivationPolicy)
        if asked[name].setting == "off":
            return No(f"`{asked[name].asked_by}` says so", expected=True)
        gone = giving_way(standing, policy)
        if beside := [one.name for one in standing if conflict(policy, one.speedup) and one not in gone]:
            return No(f"it cannot be beside {' and '.join(beside)}")
        if drops:  # PEFT issue 3020
            return No(
                "compiled layers would draw other masks of LoRA's dropout when they are computed again",
                "set `lora_dropout: 0`",
            )
        return policy.possible(context) or in_model(policy)

    found = {policy: why_not(f"{PREFIX}{policy}") for policy in POLICIES[1:]}
    return {policy: no for policy, no in found.items() if no is not None}


def in_words(out: Mapping[str, No], *, nothing_fits: bool) -> list[str]:
    """What is to be said of them where memory is short: that which may surprise, and everything where `nothing_fits`."""
    return [
        f"activation memory: {policy} is left out: {no.reason}{f' ({no.remedy})' if no.remedy else ''}"
        for policy, no in out.items()
        if nothing_fits or not no.expected
    ]
