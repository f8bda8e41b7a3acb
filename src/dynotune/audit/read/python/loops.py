"""The job of a loop that somebody wrote in PyTorch, with or without Accelerate."""

import ast
from collections.abc import Iterator

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.place import Place
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.model import Said, of_adapter, of_model
from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.training import trains
from dynotune.audit.read.python.value import Made, Value, setting

LOADER = {
    "batch_size": "per_device_train_batch_size",
    "1": "per_device_train_batch_size",
    "num_workers": "dataloader_num_workers",
    "pin_memory": "dataloader_pin_memory",
    "prefetch_factor": "dataloader_prefetch_factor",
    "persistent_workers": "dataloader_persistent_workers",
    "drop_last": "dataloader_drop_last",
}
LOADER_DEFAULTS = {"dataloader_num_workers": 0, "dataloader_pin_memory": False}
OPTIMIZER = {"lr": "learning_rate", "1": "learning_rate", "weight_decay": "weight_decay"}
ACCELERATOR = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "mixed_precision": "mixed_precision",
    "log_with": "report_to",
}


def loop_job(evaluator: Evaluator) -> Job | None:
    """None where no loop of the file takes steps. Settings are called what PyTorch calls them (`Setting.given_as`); the
    optimizer's kind is not among them, since no argument of its call names it."""
    module = evaluator.module
    loops = [site.loops[-1] for site in module.sites if site.loops and trains(site)]
    if not loops:
        return None
    said: list[Said] = []
    loader = _loader(module, loops)
    home = module.place(loader.node) if loader is not None else Place(module.file)
    defaults: dict[str, Setting] = {}
    if loader is not None:
        said += _of_call(evaluator, loader, LOADER)
        native = {ours: theirs for theirs, ours in LOADER.items()}
        for name, default in LOADER_DEFAULTS.items():
            defaults[name] = Setting(name, default, Place(""), Known.DEFAULT, native[name])
    for site in module.sites:
        name = module.dotted(site.node.func)
        last = name.rpartition(".")[2]
        if name.startswith("torch.optim") and last[:1].isupper() and "." not in last:
            said += _of_call(evaluator, site, OPTIMIZER)
        elif last == "Accelerator":
            said += _of_call(evaluator, site, ACCELERATOR)
        elif last == "DistributedDataParallel" or last == "DistributedDataParallelKwargs":
            said += _of_call(evaluator, site, {"find_unused_parameters": "ddp_find_unused_parameters"})
        elif last in ("manual_seed", "set_seed", "seed_everything") and site.node.args:
            value = evaluator.fresh().value(site.node.args[0], site.scope)
            said.append(Said("seed", last, value, module.place(site.node)))
        elif last in ("clip_grad_norm_", "clip_grad_norm") and len(site.node.args) > 1:
            value = evaluator.fresh().value(site.node.args[1], site.scope)
            said.append(Said("max_grad_norm", last, value, module.place(site.node)))
    said += _models(evaluator)
    settings = {**defaults}
    for one in said:
        settings[one.name] = setting(one.name, one.value, one.place, given_as=one.given_as)
    return Job(Trainer.TORCH, None, settings, home=home, files=(module.file,))


def _of_call(evaluator: Evaluator, site: Site, names: dict[str, str]) -> Iterator[Said]:
    place = evaluator.module.place(site.node)
    for key, value in evaluator.fresh().objects.arguments(site.node, site.scope, {}).items():
        if key in names:
            called = next(theirs for theirs, ours in names.items() if ours == names[key])
            yield Said(names[key], called, value, value.place or place)


def _loader(module: Module, loops: list[ast.AST]) -> Site | None:
    """The `DataLoader` that the training loop goes over: by the name that it iterates, else the only one."""
    loaders = [site for site in module.sites if module.dotted(site.node.func).rpartition(".")[2] == "DataLoader"]
    around = [node for loop in loops for node in (loop,) if isinstance(node, (ast.For, ast.AsyncFor))]
    names = {inner.id for node in around for inner in ast.walk(node.iter) if isinstance(inner, ast.Name)}
    for site in loaders:
        if site.result in names:
            return site
    for site in loaders:
        if "train" in site.result:
            return site
    return loaders[0] if len(loaders) == 1 else None


def _optimized(evaluator: Evaluator) -> Iterator[Said]:
    """Of the model whose weights the only optimizer gets, where another file of the project loads it."""
    module = evaluator.module
    owners: list[tuple[ast.expr, Site]] = []
    for site in module.sites:
        given = site.node.args[0] if site.node.args else None
        if module.dotted(site.node.func).startswith("torch.optim") and isinstance(given, ast.Call):
            func = given.func
            if isinstance(func, ast.Attribute) and func.attr == "parameters" and isinstance(func.value, ast.Name):
                owners.append((func.value, site))
    if len(owners) == 1:
        yield from of_model(evaluator.fresh().value(owners[0][0], owners[0][1].scope))


def _models(evaluator: Evaluator) -> Iterator[Said]:
    """Of the only model that the file loads; of several it is not known which is trained."""
    module = evaluator.module
    found: list[Value] = []
    adapters: list[Value] = []
    for site in module.sites:
        name = module.dotted(site.node.func)
        last = name.rpartition(".")[2]
        if last == "from_pretrained" and ("Model" in name or "AutoModel" in name):
            found.append(evaluator.fresh().value(site.node, site.scope))
        elif last == "get_peft_model":
            made = evaluator.fresh().value(site.node, site.scope).value
            if isinstance(made, Made):
                adapters.append(made.arguments.get("peft_config") or made.arguments.get("1") or Value(None))
    if len(found) == 1:
        yield from of_model(found[0])
    elif not found:
        yield from _optimized(evaluator)
    if len(adapters) == 1:
        yield from of_adapter(adapters[0])
