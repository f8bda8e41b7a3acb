"""What the declarations of activation memory share: which keys ask for them, and that measuring decides otherwise."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from dynotune.measure.evidence import Phase
from dynotune.speedups.contract import Context, No, Order, Setting, Speedup
from dynotune.speedups.expectation import Expected

if TYPE_CHECKING:
    from dynotune.config.whole import WholeConfig

PREFIX = "activation_"
POLICIES = ("none", "selective", "full", "offload")
"""What `activation_memory` takes besides `auto`, from the most memory to the least. `none` is that no other is there."""

PRODUCTS = (r"^aten::linear$", r"^LoraLinears$", r"^TrainedLinears$")
LAYER_AGAIN = (*PRODUCTS, r"^aten::layer_norm$", r"^CompiledFunction$")
"""Operations that only a forward pass has: seen in the backward pass, a layer is computed again."""


class ActivationPolicy(Speedup):
    """One way of holding less between forward and backward.

    None of them is installed because it is applicable: `auto` takes the fastest that fits, which is measured before the
    first step (`dynotune.train.start.dry_run`). Then it is put in by name.
    """

    policy: ClassVar[str]
    order = Order.CHECKPOINTING
    slot = "activation_memory"

    def asked(self, config: "WholeConfig") -> tuple[Setting, str] | None:
        asked = asked_policy(config)
        return None if asked is None else ("on" if asked[0] == self.policy else "off", asked[1])

    def rank(self, context: Context) -> int:
        return POLICIES.index(self.policy)

    def applicable(self, context: Context) -> No | None:
        config = context.config
        setting = config.speedups.get(self.name) or (self.asked(config) or ("auto", ""))[0]
        if setting != "on":
            return No("it is taken where memory needs it, which is measured before the first step", expected=True)
        return self.possible(context)

    def possible(self, context: Context) -> No | None:
        """None where it could be put in."""
        return None


def asked_policy(config: "WholeConfig") -> tuple[str, str] | None:
    """The policy that is asked for, and the key as written; None where it is to be chosen. What `speedups` switches off is
    not taken, whoever else asks: the next key has its turn, and where none is left everything is kept."""
    named = [name for name, setting in config.speedups.items() if setting == "on" and name.startswith(PREFIX)]
    if named and (policy := named[0].removeprefix(PREFIX)) in POLICIES:
        return policy, f"speedups: {{{named[0]}: on}}"
    instead: tuple[str, str] | None = None
    for policy, written in asked_by_others(config):
        if config.speedups.get(f"{PREFIX}{policy}") != "off":
            return policy, written
        instead = instead or ("none", f"speedups: {{{PREFIX}{policy}: off}}")
    return instead


def asked_by_others(config: "WholeConfig") -> list[tuple[str, str]]:
    """Of keys other than `speedups`, the policy that each asks for, and the key as written; who wins is first."""
    found: list[tuple[str, str]] = []
    if config.activation_memory != "auto":
        found.append((config.activation_memory, f"activation_memory: {config.activation_memory}"))
    if config.activation_offloading:
        found.append(("offload", "activation_offloading: true"))
    if config.gradient_checkpointing is not None:
        word = str(config.gradient_checkpointing).lower()
        found.append(("full" if config.gradient_checkpointing else "none", f"gradient_checkpointing: {word}"))
    return found


def layers_again(places: Sequence[str]) -> Expected:
    """That every one of these layers is computed a second time. Without places: that any operation is."""
    return Expected("layer computed again", Phase.BACKWARD, operators=LAYER_AGAIN, at=tuple(places))
