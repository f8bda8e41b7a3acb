"""Every call of a file as a rule sees it."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.facts.script import Call
from dynotune.audit.facts.setting import Setting
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.module import Module, Scope, Site
from dynotune.audit.read.python.modules import Modules
from dynotune.audit.read.python.training import Stands, training
from dynotune.audit.read.python.value import setting

POSITIONS = {
    "from_pretrained": ("pretrained_model_name_or_path",),
    "TrainingArguments": ("output_dir",),
    "Seq2SeqTrainingArguments": ("output_dir",),
    "SFTConfig": ("output_dir",),
    "DPOConfig": ("output_dir",),
    "DataLoader": ("dataset", "batch_size", "shuffle"),
    "Trainer": ("model", "args", "data_collator"),
    "Seq2SeqTrainer": ("model", "args", "data_collator"),
    "SFTTrainer": ("model", "args", "data_collator"),
    "get_peft_model": ("model", "peft_config"),
    "AdamW": ("params", "lr"),
    "Adam": ("params", "lr"),
    "SGD": ("params", "lr"),
}
"""Parameters by position, where the callee's are known."""


def calls(module: Module, evaluator: Evaluator) -> list[Call]:
    alone = Evaluator(module, Modules(), {})  # what the file itself says, since others may not be read yet
    stands = training(module, lambda test, scope: _every_time(test, scope, alone))
    return [_call(module, evaluator, site, stands.get(site.node)) for site in module.sites]


def _every_time(test: ast.expr, scope: Scope, evaluator: Evaluator) -> bool:
    """`step % LOG_EVERY == 0` with a constant of 1; what a command may set is left alone."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq) and ast.unparse(test.comparators[0]) == "0":
        test = test.left
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    else:
        return False
    if not isinstance(test, ast.BinOp) or not isinstance(test.op, ast.Mod):
        return False
    every = evaluator.fresh().value(test.right, scope)
    return every.value == 1 and not every.others and not any(place.key.startswith("-") for place in every.via)


def positional(name: str, number: int) -> str:
    names = POSITIONS.get(name.rpartition(".")[2], ())
    return names[number] if number < len(names) else str(number)


class Arguments(Mapping[str, Setting]):
    """Of one call. Followed when they are first asked for: rules ask about few calls of many."""

    def __init__(self, module: Module, evaluator: Evaluator, site: Site) -> None:
        self._of = (module, evaluator, site)
        self._found: dict[str, Setting] | None = None

    def _all(self) -> dict[str, Setting]:
        if self._found is None:
            module, evaluator, site = self._of
            self._found = {}
            for key, value in evaluator.fresh().objects.arguments(site.node, site.scope, {}).items():
                called = positional(module.called(site), int(key)) if key.isdigit() else key
                self._found[called] = setting(called, value, value.place or module.place(site.node))
        return self._found

    def __getitem__(self, key: str) -> Setting:
        return self._all()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


def _call(module: Module, evaluator: Evaluator, site: Site, stands: Stands | None) -> Call:
    func = site.node.func
    return Call(
        module.called(site),
        Arguments(module, evaluator, site) if site.node.args or site.node.keywords else {},
        module.place(site.node),
        site.around,
        site.result,
        stands is not None,
        module.source(func.value) if isinstance(func, ast.Attribute) else "",
        stands is not None and stands.each,
        module.place(stands.loop) if stands is not None else None,
    )
