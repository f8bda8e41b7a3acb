"""What the objects of a job say: its arguments, how the model is loaded, its adapter, its quantisation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dynotune.audit.facts.setting import Unknown
from dynotune.audit.place import Place
from dynotune.audit.read.python.calls import positional
from dynotune.audit.read.python.recognised import LOADING, LORA, QUANTIZED
from dynotune.audit.read.python.value import Made, Value


@dataclass(frozen=True, slots=True)
class Said:
    """One setting as a script gives it."""

    name: str
    """In TRL's words."""

    given_as: str
    value: Value
    place: Place


def argument(made: Made, *names: str) -> Value | None:
    """By any of its names, or positions."""
    return next((made.arguments[name] for name in names if name in made.arguments), None)


def of_arguments(made: Made) -> Iterator[Said]:
    """Of a configuration object, under its own names: from its call, then from what is set on it later."""
    for key, value in {**made.arguments, **made.attributes}.items():
        name = positional(made.name, int(key)) if key.isdigit() else key
        if name.isidentifier():
            yield Said(name, name, value, value.place or made.place)


def of_model(value: Value | None, depth: int = 0) -> Iterator[Said]:
    """Of what a trainer gets as its model, followed back through adapters to how it was loaded."""
    if value is None or depth > 8:
        return
    held = value.value
    if isinstance(held, str):
        yield Said("model_name_or_path", "model", value, value.place or (value.via[0] if value.via else Place("")))
    if not isinstance(held, Made):
        return
    last = held.name.rpartition(".")[2]
    fast = ".Fast" in held.name
    if last == "from_pretrained":
        yield from _loaded(held, fast)
    elif last == "get_peft_model":
        inner = argument(held, "model", "0")
        yield from of_model(inner, depth + 1)
        if fast:
            yield from _adapter(held)
            given = held.arguments.get("use_gradient_checkpointing")
            yield Said(
                "gradient_checkpointing",
                "use_gradient_checkpointing",
                Value(bool(given.value), given.via) if given is not None and given.is_known else given or Value(True),
                given.place or held.place if given is not None else held.place,
            )
        else:
            yield from of_adapter(argument(held, "peft_config", "1"))
    elif last == "prepare_model_for_kbit_training":
        yield from of_model(argument(held, "model", "0"), depth + 1)
        given = held.arguments.get("use_gradient_checkpointing")
        if given is None or given.is_known:
            checkpointing = Value(bool(given.value) if given is not None else True, (held.place,))
            yield Said("gradient_checkpointing", "use_gradient_checkpointing", checkpointing, held.place)
    else:
        # Whatever a function makes of a model (`prepare_model_for_int8_training`, `accelerator.prepare`) was loaded before.
        yield from of_model(_wrapped(held), depth + 1)
        if last == "compile" and held.name.startswith("torch"):
            yield Said("torch_compile", "torch.compile", Value(True), held.place)


def _wrapped(made: Made) -> Value | None:
    inner = argument(made, "model", "0")
    return inner if inner is not None and isinstance(inner.value, Made) else None


def of_adapter(value: Value | None) -> Iterator[Said]:
    """Of a `LoraConfig`; an adapter of another kind says only that there is one."""
    if value is None or value.value is None:
        return
    held = value.value
    if isinstance(held, Made):
        if held.name.rpartition(".")[2] == "LoraConfig":
            yield from _adapter(held)
        else:
            yield Said("use_peft", "peft_config", Value(True, value.via), held.place)
    elif isinstance(held, Unknown):
        yield Said("use_peft", "peft_config", value, value.place or Place(""))


def _adapter(made: Made) -> Iterator[Said]:
    yield Said("use_peft", "peft_config", Value(True), made.place)
    defaults: Mapping[str, object] = {"r": 8, "lora_alpha": 8, "lora_dropout": 0.0} if "peft" in made.name else {}
    for theirs, ours in LORA.items():
        given = made.arguments.get(theirs) or made.attributes.get(theirs)
        if given is not None:
            yield Said(ours, theirs, given, given.place or made.place)
        elif theirs in defaults:
            yield Said(ours, theirs, Value(defaults[theirs], (made.place,)), made.place)


def _loaded(made: Made, fast: bool) -> Iterator[Said]:
    for theirs, ours in LOADING.items():
        given = made.arguments.get(theirs)
        if given is not None:
            yield Said(ours, theirs, given, given.place or made.place)
    if fast and "load_in_4bit" not in made.arguments and "**" not in made.arguments:
        yield Said("load_in_4bit", "load_in_4bit", Value(True, (made.place,)), made.place)
    flash = made.arguments.get("use_flash_attention_2")
    if flash is not None and flash.value is True:
        place = flash.place or made.place
        yield Said("attn_implementation", "use_flash_attention_2", Value("flash_attention_2", flash.via), place)
    yield from of_quantization(made.arguments.get("quantization_config"))


def of_quantization(value: Value | None) -> Iterator[Said]:
    held = value.value if value is not None else None
    parts = held.arguments if isinstance(held, Made) else held if isinstance(held, dict) else {}
    for theirs, ours in QUANTIZED.items():
        given = parts.get(theirs)
        if isinstance(given, Value):
            yield Said(ours, theirs, given, given.place or (held.place if isinstance(held, Made) else Place("")))


def of_init_kwargs(value: Value | None) -> Iterator[Said]:
    """Of `model_init_kwargs`, which TRL hands to `from_pretrained` where the model is a name."""
    held = value.value if value is not None else None
    if isinstance(held, dict):
        for theirs, ours in LOADING.items():
            given = held.get(theirs)
            if isinstance(given, Value) and theirs != "0":
                yield Said(ours, theirs, given, given.place or Place(""))
        quantized = held.get("quantization_config")
        yield from of_quantization(quantized if isinstance(quantized, Value) else None)
