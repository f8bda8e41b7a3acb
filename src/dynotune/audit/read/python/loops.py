"""The job of a loop that somebody wrote in PyTorch, with or without Accelerate."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.facts.setting import Known, Setting
from dynotune.audit.place import Place
from dynotune.audit.read.python.bindings import last
from dynotune.audit.read.python.checkpointing import checkpointing_enabled
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.files import module_of
from dynotune.audit.read.python.model import Said, of_adapter, of_model
from dynotune.audit.read.python.module import Module, Site
from dynotune.audit.read.python.own_batches import accumulated, drawn
from dynotune.audit.read.python.own_sizes import own_sizes
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
    """None where no loop of the file takes steps. What is said of it is looked for in the file, in those that it imports
    and in the one that imports it. Settings are called what PyTorch calls them (`Setting.given_as`); the optimizer's kind
    is not among them, since no argument of its call names it."""
    module = evaluator.module
    loops = _loops(module)
    if not loops:
        return None
    reads = [evaluator, *(Evaluator(one, evaluator.others, evaluator.configs) for one in _beside(evaluator))]
    said: list[Said] = []
    found = _loader(module, loops)
    loaders = [(evaluator, found)] if found is not None else list(_loaders(reads[1:]))
    home = module.place(found.node) if found is not None else Place(module.file)
    defaults: dict[str, Setting] = {}
    for reader, loader in loaders[:1] if len(loaders) == 1 else ():
        said += _of_call(reader, loader, LOADER)
        native = {ours: theirs for theirs, ours in LOADER.items()}
        for name, default in LOADER_DEFAULTS.items():
            defaults[name] = Setting(name, default, Place(""), Known.DEFAULT, native[name])
    for reader in reversed(reads):  # what the file itself says comes last, and counts
        said += _of_module(reader)
    said += _models(reads)
    said += _epochs(evaluator)
    said += [] if any(one.name == "gradient_accumulation_steps" for one in said) else accumulated(evaluator, loops)
    said += [] if loaders else drawn(reads)
    said += checkpointing_enabled(evaluator)
    said += [] if any(one.name == "model_name_or_path" for one in said) else own_sizes(reads)
    settings = {**defaults}
    for one in said:
        settings[one.name] = setting(one.name, one.value, one.place, given_as=one.given_as)
    places = [place for one in settings.values() for place in (one.place, *one.via)]
    files = tuple(dict.fromkeys((module.file, *(place.file for place in places if place.file))))
    return Job(Trainer.TORCH, None, settings, home=home, files=files)


def _loops(module: Module) -> list[ast.AST]:
    return [site.loops[-1] for site in module.sites if site.loops and trains(site)]


def _epochs(evaluator: Evaluator) -> Iterator[Said]:
    """Of `for epoch in range(N)` around a loop that takes steps, or around the call of a function that has it."""
    module = evaluator.module
    training = set(_loops(module))
    stepping = {
        next(one.name for one in reversed(site.around) if one.kind == "function")
        for site in module.sites
        if site.loops and site.loops[-1] in training and any(one.kind == "function" for one in site.around)
    }
    for site in module.sites:
        called = site.node.func.id if isinstance(site.node.func, ast.Name) else ""
        if not site.loops or not (site.loops[-1] in training or called in stepping):
            continue
        for loop in site.loops:
            stop = _stop(loop) if isinstance(loop, ast.For) else None
            if stop is not None:
                yield Said("num_train_epochs", "epochs", evaluator.fresh().value(stop, site.scope), module.place(stop))
                return


_PROGRESS = frozenset({"tqdm", "trange", "track"})


def _stop(loop: ast.For) -> ast.expr | None:
    """Where the count of a loop over epochs ends; None: it is another loop."""
    source = loop.iter
    if isinstance(source, ast.Call) and last(source.func) in _PROGRESS - {"trange"} and source.args:
        source = source.args[0]
    if not isinstance(source, ast.Call) or last(source.func) not in ("range", "trange") or not source.args:
        return None
    stop = source.args[0] if len(source.args) == 1 else source.args[1]
    named = ast.unparse(loop.target) + ast.unparse(stop)
    return stop if "epoch" in named.lower() else None


def _beside(evaluator: Evaluator) -> list[Module]:
    """Modules of the project that it imports from, three deep, and the only one that imports it, with that one's; none that
    has a loop of its own."""
    module, others = evaluator.module, evaluator.others
    users = [one for one in others.values() if one is not module and module in _led_to(one, others) and not _loops(one)]
    found = [module, *(users if len(users) == 1 else ())]
    frontier = list(found)
    for _ in range(3):
        frontier = [one for user in frontier for one in _led_to(user, others) if one not in found and not _loops(one)]
        frontier = list(dict.fromkeys(frontier))
        found += frontier
    return found[1:]


def _led_to(module: Module, others: Mapping[str, Module]) -> list[Module]:
    led = [module_of(dotted, module, others) for dotted in module.imports.values()]
    return [one[0] for one in led if one is not None]


def _of_module(evaluator: Evaluator) -> Iterator[Said]:
    module = evaluator.module
    for site in module.sites:
        name = module.dotted(site.node.func)
        last = name.rpartition(".")[2]
        if name.startswith("torch.optim") and last[:1].isupper() and "." not in last:
            yield from _of_call(evaluator, site, OPTIMIZER)
        elif last == "Accelerator":
            yield from _of_call(evaluator, site, ACCELERATOR)
        elif last in ("DistributedDataParallel", "DistributedDataParallelKwargs"):
            yield from _of_call(evaluator, site, {"find_unused_parameters": "ddp_find_unused_parameters"})
        elif last in ("manual_seed", "set_seed", "seed_everything") and site.node.args:
            value = evaluator.fresh().value(site.node.args[0], site.scope)
            yield Said("seed", last, value, module.place(site.node))
        elif last in ("clip_grad_norm_", "clip_grad_norm") and len(site.node.args) > 1:
            value = evaluator.fresh().value(site.node.args[1], site.scope)
            yield Said("max_grad_norm", last, value, module.place(site.node))


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


def _loaders(reads: Sequence[Evaluator]) -> Iterator[tuple[Evaluator, Site]]:
    """Every `DataLoader` of other files that is not called an evaluation's."""
    for reader in reads:
        for site in reader.module.sites:
            if reader.module.dotted(site.node.func).rpartition(".")[2] == "DataLoader":
                functions = [around.name for around in site.around if around.kind == "function"]
                if not any(_NOT_TRAINING.search(name) for name in (site.result, *functions)):
                    yield reader, site


_NOT_TRAINING = re.compile(r"eval|valid|test", re.IGNORECASE)


def _trained(evaluator: Evaluator) -> Iterator[Said]:
    """Of the model whose weights an optimizer gets, or that is prepared or wrapped, wherever it was loaded."""
    module = evaluator.module
    found: dict[Place, Value] = {}
    for site in module.sites:
        func = site.node.func
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        taken = last in ("prepare", "DistributedDataParallel", "DDP", "get_peft_model") or "optim" in last.lower()
        if not taken and not module.dotted(func).startswith("torch.optim"):
            continue
        given = (*site.node.args, *(keyword.value for keyword in site.node.keywords))
        names = {one.id: one for each in given for one in ast.walk(each) if isinstance(one, ast.Name)}
        calls = [one for one in given if isinstance(one, ast.Call)]
        for node in (*calls, *names.values()):
            value = evaluator.fresh().value(node, site.scope)
            loaded = next((one.place for one in of_model(value) if one.name == "model_name_or_path"), None)
            if loaded is not None and isinstance(value.value, Made):
                found.setdefault(loaded, value)
    if len(found) == 1:
        yield from of_model(next(iter(found.values())))


def _models(reads: Sequence[Evaluator]) -> Iterator[Said]:
    """Of the only model that the file loads, or that the project's files do for it; of several it is not known which is
    trained."""
    evaluator, *beside = reads
    found = list(_loadings(evaluator))
    adapters = [one for reader in reads for one in _adapters(reader)]
    if len(found) == 1:
        yield from of_model(found[0])
    elif not found:
        trained = next((said for reader in reads if (said := list(_trained(reader)))), [])
        elsewhere = [one for reader in beside for one in _loadings(reader)] if not trained else []
        yield from trained or (of_model(elsewhere[0]) if len(elsewhere) == 1 else ())
    if len(adapters) == 1:
        yield from of_adapter(adapters[0])


def _loadings(evaluator: Evaluator) -> Iterator[Value]:
    module = evaluator.module
    for site in module.sites:
        name = module.dotted(site.node.func)
        if name.endswith(".from_pretrained") and "Model" in name:
            yield evaluator.fresh().value(site.node, site.scope)


def _adapters(evaluator: Evaluator) -> Iterator[Value]:
    module = evaluator.module
    for site in module.sites:
        if module.dotted(site.node.func).rpartition(".")[2] == "get_peft_model":
            made = evaluator.fresh().value(site.node, site.scope).value
            if isinstance(made, Made):
                yield made.arguments.get("peft_config") or made.arguments.get("1") or Value(None)
