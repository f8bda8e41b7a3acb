"""The sizes of a language model that a program makes itself: its layers, hidden numbers and vocabulary, by the arguments of
the class that makes it or of its configuration."""

import ast
from collections.abc import Iterator, Mapping

from dynotune.audit.read.python.declared import fields
from dynotune.audit.read.python.evaluator import Evaluator
from dynotune.audit.read.python.model import Said
from dynotune.audit.read.python.module import FUNCTIONS, Scope, Site
from dynotune.audit.read.python.value import Made, Value

LAYERS, HIDDEN, VOCABULARY, CONTEXT = (f"own_model_{name}" for name in ("layers", "hidden", "vocabulary", "context"))
CHECKPOINTED = "gradient_checkpointing"
"""Settings of a job."""

_NAMES: Mapping[str, str] = {
    LAYERS: "n_layer n_layers num_layers num_hidden_layers layers depth nlayers num_blocks n_blocks nlayer",
    HIDDEN: "n_embd d_model dim hidden_size embed_dim hidden_dim n_embed width emb_dim model_dim emb_size dmodel embd",
    VOCABULARY: "vocab_size vocab n_vocab num_tokens nvocab ntoken padded_vocab_size vocabulary",
    CHECKPOINTED: "ckpt checkpoint checkpointing grad_ckpt grad_checkpoint gradient_checkpointing activation_checkpointing"
    " use_checkpoint use_checkpointing use_ckpt recompute act_ckpt remat checkpoint_activations grad_checkpointing",
    CONTEXT: "block_size window context context_length seq_len max_seq_len n_ctx ctx ctx_len seq_length n_positions seqlen",
}
_CALLED = {name: frozenset(called.split()) for name, called in _NAMES.items()}
_LENGTHS, _SWITCHES = _CALLED.pop(CONTEXT), _CALLED.pop(CHECKPOINTED)


_DEFAULTS: Mapping[str, Mapping[str, int]] = {"GPT2Config": {"n_layer": 12, "n_embd": 768, "vocab_size": 50_257}}
"""Of a class of transformers of which programs leave sizes as they are."""


def own_sizes(reads: list[Evaluator]) -> list[Said]:
    """All three, with the length of a row and a switch of checkpointing where the model has these. Nothing where the files
    do not agree on one model."""
    found: dict[tuple[int, ...], list[Said]] = {}
    for reader in reads:
        for site in reader.module.sites:
            said = _of_call(reader, site)
            if said:
                found.setdefault(tuple(one.value.value for one in said), said)
    return next(iter(found.values())) if len(found) == 1 else []


def _of_call(reader: Evaluator, site: Site) -> list[Said]:
    if not any(keyword.arg is None for keyword in site.node.keywords) and not _may_have_sizes(site.node):
        return []
    given = dict(_arguments(reader, site))
    said: list[Said] = []
    for name, called in _CALLED.items():
        key = next((one for one in sorted(called) if one in given), "")
        value = given.get(key)
        if value is None or type(value.value) is not int or value.others or value.value < 1:
            return []
        said.append(Said(name, key, value, value.place or reader.module.place(site.node)))
    key = next((one for one in sorted(_LENGTHS) if one in given), "")
    if key and type(given[key].value) is int and not given[key].others:
        said.append(Said(CONTEXT, key, given[key], given[key].place or reader.module.place(site.node)))
    key = next((one for one in sorted(_SWITCHES) if one in given), "")
    if key and given[key].value is True and not given[key].others and _checkpoints(reader, site):
        said.append(Said(CHECKPOINTED, key, given[key], given[key].place or reader.module.place(site.node)))
    return said


def _checkpoints(reader: Evaluator, site: Site) -> bool:
    """The class stands in a file that calls PyTorch's checkpointing."""
    held = _class_of(reader, site)
    if held is None:
        return False
    module = held[0].module
    return any(module.dotted(one.node.func).startswith("torch.utils.checkpoint") for one in module.sites)


def _may_have_sizes(call: ast.Call) -> bool:
    """A class's name, which alone may have sizes: nothing else is looked up."""
    func = call.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name[:1].isupper()


def _arguments(reader: Evaluator, site: Site) -> Iterator[tuple[str, Value]]:
    """By name, with the defaults of a class of the project; nothing for a call of anything else."""
    held = _class_of(reader, site)
    given = reader.fresh().objects.arguments(site.node, site.scope, {})
    if held is None:
        dotted = reader.module.dotted(site.node.func)
        if dotted.startswith("transformers."):
            for name, number in _DEFAULTS.get(dotted.rpartition(".")[2], {}).items():
                if name not in given:
                    yield name, reader.fresh().value(ast.Constant(number), site.scope)
            yield from given.items()
        return
    there, scope = held
    names: list[str] = []
    init = next(
        (one for one in getattr(scope.node, "body", ()) if isinstance(one, FUNCTIONS) and one.name == "__init__"), None
    )
    if init is not None:
        arguments = [*init.args.posonlyargs, *init.args.args]
        names = [one.arg for one in arguments][1:]
        defaults = dict(zip([one.arg for one in reversed(arguments)], reversed(init.args.defaults), strict=False))
        defaults |= {
            one.arg: value
            for one, value in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True)
            if value is not None
        }
        for name, default in defaults.items():
            yield name, there.fresh().value(default, scope)
    else:
        of_class = fields(there.fresh(), scope)
        names = list(of_class)
        yield from of_class.items()
    for key, value in given.items():
        if isinstance(value.value, Made):
            yield from value.value.attributes.items()  # the configuration, or the options of the command line
        if not key.isdigit():
            yield key, value
        elif int(key) < len(names):
            yield names[int(key)], value


def _class_of(reader: Evaluator, site: Site) -> tuple[Evaluator, Scope] | None:
    """The class of the project that a call makes an object of."""
    func = site.node.func
    if isinstance(func, ast.Name):
        for binding in reversed(reader.module.bound(func.id, site.scope)):
            if binding.kind == "class" and binding.node is not None:
                return reader, reader.module.scopes[binding.node]
    dotted = reader.module.dotted(func)
    return reader.class_elsewhere(dotted) if dotted else None
