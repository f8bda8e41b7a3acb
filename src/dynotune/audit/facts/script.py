"""What a Python file says, read and never run."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dynotune.audit.facts.setting import Setting
from dynotune.audit.place import Place


@dataclass(frozen=True, slots=True)
class Around:
    """What a call stands in, outermost first."""

    kind: str
    """`for`, `while`, `function`, `class`, `with`, `if`, `main` (under `if __name__ == "__main__"`)."""

    name: str
    """Of the function or class; for loops and conditions the expression's source."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call, its name followed through imports and aliases."""

    name: str
    """Fully qualified: `transformers.TrainingArguments`, `torch.Tensor.item` for methods of what is known to be a tensor,
    `.item` for methods of what is not known."""

    arguments: Mapping[str, Setting]
    """By keyword; positional ones by their place (`0`, `1`), or by name where the callee is known. Values followed."""

    place: Place
    around: tuple[Around, ...] = ()
    result: str = ""
    """The variable that it is assigned to, if it is."""

    in_training_loop: bool = False
    """It runs once a step or more: in a loop that also runs a backward pass or an optimizer's step, or in a `forward`."""

    on: str = ""
    """For methods: the source of what it is called on (`outputs.loss` in `outputs.loss.item()`)."""

    each_step: bool = False
    """In a training loop and under no condition there: at every micro-batch, not only at some."""

    loop: Place | None = None
    """The innermost training loop it runs in, or the function that a trainer calls each step (`forward`, `compute_loss`)."""


@dataclass(frozen=True, slots=True)
class Script:
    file: str
    source: str
    tree: ast.Module
    """As the running Python parses it, whose spans are of `source`; empty where it does not parse. Syntax trees that keep
    the layout take 60 times as long to make, and are for edits."""

    calls: Sequence[Call]
    imports: Mapping[str, str]
    """What local names mean: `{"np": "numpy", "SFTConfig": "trl.SFTConfig"}`."""

    comments: Mapping[int, str]
    """By line, without the mark."""

    constants: Mapping[str, Setting] = field(default_factory=dict)
    """Module-level names with values that could be followed, and flags (`--lr`) of argparse and of dataclasses with their
    defaults. `given_value` of a flag that takes no value: what it comes to where it is given."""

    unread: Sequence[str] = ()
    """What could not be followed, as sentences."""

    def calls_of(self, *names: str) -> list[Call]:
        """Calls of these: fully qualified, or the last part alone (`from_pretrained`)."""
        return [call for call in self.calls if call.name in names or call.name.rpartition(".")[2] in names]
