"""A causal language model from a hub id, a folder, or a configuration with random weights, checked to be what was asked."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ConfigError, DynotuneError, ModelError
from dynotune.model.failures import LoadReport, cannot_load, loading_failures, words_of
from dynotune.model.foreign_code import refuse_kernels
from dynotune.model.precision import Precision
from dynotune.model.weight_files import is_adapter, require_safetensors, stands_here
from dynotune.printable import printable

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel


def choose_device(use_cpu: bool) -> "torch.device":
    """The GPU of this process, or the CPU where there is none or `use_cpu` asks for it."""
    import torch

    if use_cpu or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def load_model(config: ModelConfig, precision: Precision, device: "torch.device") -> "PreTrainedModel":
    """Load the model onto `device` in `precision.weights`.

    Raises `ModelError` where it cannot be found, misses weights, or does not come out as asked.
    """
    import torch
    from transformers import AutoModelForCausalLM

    if not config.model_name_or_path:
        raise ConfigError(
            "`model_name_or_path` is missing: give a hub id, a folder with weights, or (with `random_weights: true`) a"
            " `config.json`."
        )
    extra = dict(config.model_init_kwargs)
    if "device_map" in extra:
        device_map = printable(str(extra["device_map"]))
        raise ConfigError(
            f"`model_init_kwargs: {{device_map: {device_map}}}` would spread one model over devices of which one"
            " works at a time. Take it out: the model goes whole onto this process's device."
        )
    for key in ("dtype", "torch_dtype", "attn_implementation", "revision", "trust_remote_code"):
        if key in extra:
            name = {"torch_dtype": "dtype", "revision": "model_revision"}.get(key, key)
            raise ConfigError(f"`model_init_kwargs` holds `{key}`: give it as `{name}` at the top level.")
    # What transformers is told below; `use_safetensors: true` is what happens anyway.
    for key, value in (("use_safetensors", True), ("ignore_mismatched_sizes", False), ("output_loading_info", False)):
        if extra.pop(key, value) is not value:
            raise ConfigError(
                f"`model_init_kwargs: {{{key}: ...}}` cannot be changed: only safetensors are read, and a weight that does"
                " not fit is an error. Take it out."
            )
    common: dict[str, Any] = {"trust_remote_code": config.trust_remote_code}
    if config.attn_implementation is not None:
        common["attn_implementation"] = config.attn_implementation
    model: PreTrainedModel
    report = LoadReport()
    try:
        if is_adapter(config.model_name_or_path, config.model_revision, extra):
            raise _is_adapter(config.model_name_or_path)
        if not config.trust_remote_code:
            refuse_kernels(config.model_name_or_path, config.model_revision, extra)
        if config.random_weights:
            model = _random_model(config, precision, device, common, extra)
        else:
            require_safetensors(config.model_name_or_path, config.model_revision, extra)
            with report:
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    config.model_name_or_path,
                    revision=config.model_revision,
                    dtype=precision.weights if precision.weights is not None else "auto",
                    output_loading_info=True,
                    ignore_mismatched_sizes=True,  # `_check_weights` names them
                    use_safetensors=True,
                    **common,
                    **extra,
                )
            model, info = loaded
            _check_weights(config.model_name_or_path, info)
            model = torch.nn.Module.to(model, device)
    except DynotuneError:
        raise
    except ImportError as error:
        asked = config.attn_implementation
        needs = "The model" if asked is None else f"`attn_implementation: {asked}` or the model itself"
        raise ModelError(f"{needs} needs a package that does not work here: {words_of(error)}") from error
    except OSError as error:
        raise ModelError(_not_found(config, error)) from error
    except loading_failures() as error:
        raise ModelError(cannot_load(config.model_name_or_path, extra, error, report.text)) from error
    model.config.return_dict = True  # without it transformers' own models fail on the outputs of their parts
    check_model(model, config, precision, device)
    return model


def read_model_config(config: ModelConfig, extra: dict[str, Any]) -> "PretrainedConfig":
    """The architecture named by `model_name_or_path`: a hub id, a folder, or a `config.json` file."""
    from transformers import AutoConfig

    assert config.model_name_or_path
    path = Path(config.model_name_or_path)
    source = path.parent if path.is_file() and path.name == "config.json" else config.model_name_or_path
    if path.is_file() and path.name != "config.json":
        raise ModelError(f"`{path}` is a file: name the folder that holds the model, or its `config.json`.")
    architecture = AutoConfig.from_pretrained(
        source, revision=config.model_revision, trust_remote_code=config.trust_remote_code, **extra
    )
    return cast("PretrainedConfig", architecture)


def _random_model(
    config: ModelConfig, precision: Precision, device: "torch.device", common: dict[str, Any], extra: dict[str, Any]
) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    architecture = read_model_config(config, extra)
    # Drawn on the device itself: filling 7 billion weights takes seconds there and minutes on the host.
    with device:
        model = AutoModelForCausalLM.from_config(architecture, dtype=precision.weights or torch.float32, **common)
    return cast("PreTrainedModel", model)


def _is_adapter(name: str) -> ModelError:
    shown = printable(name)
    return ModelError(
        f"`model_name_or_path: {shown}` is an adapter, not a model: a new adapter on top of it would replace it. Merge it"
        f" first (`dynotune merge {shown} --output merged`) and name that folder, or go on training it by resuming its run."
    )


def _check_weights(name: str, info: dict[str, Any]) -> None:
    """A weight that is missing would be drawn at random, one that has no place would be dropped: all are errors."""
    shown = printable(name)
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        raise ModelError(
            f"`{shown}` lacks {len(missing)} weights of its own architecture ({_first(missing)}). They would start at"
            " random. Check the folder, or ask for random weights by name: `random_weights: true`."
        )
    mismatched = sorted(info.get("mismatched_keys") or ())
    if mismatched:
        key, stored, wanted = mismatched[0]
        raise ModelError(
            f"`{shown}`: {len(mismatched)} weights do not have the shape that its `config.json` asks for ({printable(key)}"
            f" is {list(stored)} in the file and {list(wanted)} there, ...). Check that `config.json` (say, `vocab_size` or"
            " `hidden_size`) belongs to these weights; or ask for random weights by name: `random_weights: true`."
        )
    # transformers has taken out of this list what the architecture says it does not need.
    unexpected = sorted(info.get("unexpected_keys") or ())
    if unexpected:
        raise ModelError(
            f"`{shown}` holds {len(unexpected)} weights that its `config.json` has no place for ({_first(unexpected)})."
            " They would be dropped without a word: a model with fewer layers, or another model, would be trained."
            " Check that `config.json` (say, `num_hidden_layers`) belongs to these weights."
        )


def _first(names: list[str]) -> str:
    return ", ".join(printable(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")


def _not_found(config: ModelConfig, error: OSError) -> str:
    assert config.model_name_or_path is not None
    path = Path(config.model_name_or_path)
    name = printable(config.model_name_or_path, 200)
    if stands_here(path) and path.is_file():
        return f"`model_name_or_path: {name}` is a file. With `random_weights: true` a `config.json` is enough."
    if stands_here(path) and path.is_dir():
        found = ", ".join(sorted(printable(child.name) for child in path.iterdir())[:8]) or "nothing"
        return (
            f"`model_name_or_path: {name}` is a folder without loadable safetensors weights (it holds: {found}). Pickled"
            " weights (`pytorch_model.bin`) are refused: convert them to safetensors. To start from the configuration"
            f" alone set `random_weights: true`. The loader said: {words_of(error)}"
        )
    return (
        f"`model_name_or_path: {name}` is neither a folder here nor a model that the hub gave: {words_of(error)}. Check the"
        " spelling, log in with `hf auth login` for gated models, or download it first and give the folder."
    )


def check_model(model: "PreTrainedModel", config: ModelConfig, precision: Precision, device: "torch.device") -> None:
    """The model must stand on the device, in the precision and with the attention that were asked for."""
    places = Counter(str(p.device) for p in model.parameters())
    wrong = {place: n for place, n in places.items() if place not in (str(device), device.type)}
    if wrong:
        raise ModelError(f"Weights are on {wrong}, not on {device}. This is not the device that was asked for.")
    if precision.weights is not None:
        # Some architectures keep a few parameters in fp32 on purpose (routers, norms): transformers names them.
        kept = tuple(getattr(model, "_keep_in_fp32_modules", None) or ()) + tuple(
            getattr(model, "_keep_in_fp32_modules_strict", None) or ()
        )
        other = [
            name
            for name, p in model.named_parameters()
            if p.is_floating_point() and p.dtype != precision.weights and not any(part in name for part in kept)
        ]
        if other:
            raise ModelError(
                f"{len(other)} weights are not {precision.weights} as asked ({printable(other[0])} and others). A silent"
                " load in another precision changes memory, speed and results."
            )
    asked = config.attn_implementation
    got = getattr(model.config, "_attn_implementation", None)
    if asked is not None and got != asked:
        raise ModelError(f"`attn_implementation: {asked}` was asked for, but the model runs `{got}`.")
