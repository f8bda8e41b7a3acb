"""`dynotune merge`: an adapter into its base, as one model that needs no PEFT, proved against base plus adapter."""

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dynotune.config.keys.data import DataConfig
from dynotune.config.keys.model import ModelConfig
from dynotune.errors import ModelError
from dynotune.manifest import below, seal, versions
from dynotune.merge.proof import TOLERANCE, MergeReport, base_logits, probe_ids, probe_logits
from dynotune.model.adapter_folder import find_adapter, put_on_base
from dynotune.model.embedding import embedding_rows
from dynotune.model.failures import words_of
from dynotune.model.load import load_model
from dynotune.model.precision import Precision
from dynotune.model.tokenizer import load_tokenizer
from dynotune.printable import printable

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def merge_adapter(
    run: Path,
    output: Path,
    dtype: str | None = None,
    device: str = "cpu",
    *,
    base: str | None = None,
    trust_remote_code: bool = False,
) -> MergeReport:
    """Merge an adapter into its base and write model, tokenizer and card to `output`, whole or not at all.

    Each layer is merged in float32 and rounded once to the precision in which it is stored.

    Args:
        run: a run folder, one of its checkpoints, or an adapter folder of any tool that writes PEFT's format.
        output: must not exist or be empty.
        dtype: `float32`, `bfloat16` or `float16`; by default the base's own precision.
        device: where the merge is computed.
        base: another place of the base model, where it moved since the adapter was trained.
        trust_remote_code: let the base's repository run its own code.

    Raises:
        ModelError: nothing to merge, no base, no space, values that are not finite, or a merged model that does not
            compute what base and adapter compute. `output` is not touched then.
    """
    import torch
    from safetensors import SafetensorError

    from dynotune.model.saveable import make_saveable

    found = find_adapter(run)
    adapter = found.path
    _require_free(output)
    source = base or found.base
    if not source:
        raise ModelError(f"{printable(str(adapter))}/adapter_config.json names no base model. Give it by `--base`.")
    place = _device(device)
    if dtype is not None and dtype not in TOLERANCE:
        raise ModelError(f"dtype {dtype!r} is none of {', '.join(TOLERANCE)}.")

    config = ModelConfig(
        model_name_or_path=source,
        model_revision=(not base and found.revision) or "main",
        trust_remote_code=trust_remote_code,
    )
    precision = Precision(getattr(torch, dtype) if dtype else None, compute_bf16=False)
    model = load_model(config, precision, place)
    if getattr(model.config, "quantization_config", None) is not None:
        raise ModelError(
            f"{printable(source)} is quantised: merging would round what was learned to its few levels. Give the"
            " model it was quantised from by `--base`."
        )
    tokenizer = _tokenizer(adapter, config)
    _require_space(model, output)
    peft_model, stored = _wrap(model, adapter, tokenizer)
    ids = probe_ids(tokenizer, peft_model)
    with_adapter, alone = probe_logits(peft_model, ids), base_logits(peft_model, ids)
    scale = float(with_adapter.square().mean().sqrt())
    if not 0 < scale < float("inf"):
        raise ModelError(
            f"The adapter in {printable(str(adapter))} is broken: with it the base computes logits of size {scale}. Are its"
            " `lora_alpha` and its weights those that were trained?"
        )
    change = _merge_layers(peft_model, adapter)
    merged = _unload(peft_model, stored, adapter)
    notices = _generation_settings(merged, tokenizer)
    mended = make_saveable(merged)
    if mended:
        notices.append(mended)

    half = output.with_name(f".{output.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    try:
        try:
            merged.save_pretrained(half)
            tokenizer.save_pretrained(half)
        except (OSError, SafetensorError) as error:
            raise ModelError(
                f"The merged model could not be written to {printable(str(output))}: {words_of(error)}. Nothing of it was"
                " kept. Make room, or give another `--output`."
            ) from error
        kept_as = str(merged.dtype).removeprefix("torch.")
        del merged, model, peft_model
        saved = load_model(
            ModelConfig(model_name_or_path=str(half), trust_remote_code=trust_remote_code, dtype="auto"),
            Precision(None, compute_bf16=False),
            place,
        )
        after = probe_logits(saved, ids)
        report = MergeReport(
            output=output,
            base=str(source),
            dtype=kept_as,
            layers=change.layers,
            largest_change=change.largest,
            largest_rounding=change.largest_rounding,
            rounding_share=change.rounding_share,
            logit_difference=float((after - with_adapter).abs().max()),
            logit_difference_share=float((after - with_adapter).square().mean().sqrt()) / scale,
            adapter_effect_share=float((with_adapter - alone).square().mean().sqrt()) / scale,
            same_tokens=int((after.argmax(-1) == with_adapter.argmax(-1)).sum()),
            tokens=after.shape[0],
            notices=notices,
        )
        report.require_equal()
        from dynotune.report.model_card import write_merged_card

        write_merged_card(half, run, report)
        seal(half, "model", {"versions": versions()}, below(half))
        if output.exists():
            output.rmdir()
        half.rename(output)
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return report


def _require_free(output: Path) -> None:
    try:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ModelError(f"{printable(str(output))} exists and is not an empty folder. Give another `--output`.")
        output.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"Nothing can be written to {printable(str(output), 200)}: {error.strerror}. Give another `--output`."
        ) from error


def _device(name: str) -> "torch.device":
    import torch

    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ModelError(f"`--device {printable(name)}` is neither `cpu` nor `cuda` (nor `cuda:0`, `cuda:1`, ...).")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ModelError(
            f"`--device {name}`: there are {torch.cuda.device_count()} GPUs that PyTorch can use here. Give `--device cpu`:"
            " a merge needs no GPU."
        )
    return device


def _tokenizer(adapter: Path, base: ModelConfig) -> "PreTrainedTokenizerBase":
    own = any((adapter / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model"))
    config = base.model_copy(update={"model_name_or_path": str(adapter), "model_revision": "main"}) if own else base
    return load_tokenizer(config, DataConfig())


def _require_space(model: "PreTrainedModel", output: Path) -> None:
    needed = sum(p.numel() * p.element_size() for p in model.parameters())
    place = output.resolve().parent
    free = shutil.disk_usage(place).free
    if free < needed * 1.05:
        raise ModelError(
            f"The merged model takes {needed / 2**30:.1f} GiB, and {printable(str(place))} has {free / 2**30:.1f} GiB free."
            " Make room, or give another `--output`."
        )


def _wrap(
    model: "PreTrainedModel", adapter: Path, tokenizer: "PreTrainedTokenizerBase"
) -> "tuple[PeftModel, dict[str, torch.dtype]]":
    """Base with adapter, and the precision in which each weight of the base is stored."""
    # A run with new tokens grew the embedding; the rows' values come with the adapter.
    if len(tokenizer) > embedding_rows(model):
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    stored = {name: parameter.dtype for name, parameter in model.named_parameters(remove_duplicate=False)}
    peft_model = put_on_base(model, adapter)
    if not hasattr(peft_model.base_model, "merge_and_unload"):
        kind = peft_model.active_peft_config.peft_type
        raise ModelError(
            f"The adapter in {printable(str(adapter))} is of type {kind}, which has no weights that could be merged."
        )
    return peft_model, stored


@dataclass(slots=True)
class _Change:
    layers: int = 0
    largest: float = 0.0
    largest_rounding: float = 0.0
    squares: float = 0.0
    rounding_squares: float = 0.0

    @property
    def rounding_share(self) -> float:
        return float((self.rounding_squares / self.squares) ** 0.5) if self.squares else 0.0


def _merge_layers(model: "PeftModel", adapter: Path) -> _Change:
    """Merge layer by layer: float32 for one layer at a time, so that a 70B model needs no second copy."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    change = _Change()
    for layer in [module for module in model.modules() if isinstance(module, BaseTunerLayer)]:
        weights = dict(layer.get_base_layer().named_parameters())
        before = {name: (p.dtype, p.detach().float().clone()) for name, p in weights.items()}
        layer.float()
        try:
            layer.merge(safe_merge=True)
        except ValueError as error:
            raise ModelError(f"The adapter in {printable(str(adapter))} does not merge: {words_of(error)}") from error
        for name, parameter in layer.get_base_layer().named_parameters():
            dtype, old = before[name]
            exact = parameter.detach()
            rounding, moved = exact.to(dtype).float() - exact, exact - old
            change.largest = max(change.largest, float(moved.abs().max()))
            change.largest_rounding = max(change.largest_rounding, float(rounding.abs().max()))
            change.squares += float(moved.double().square().sum())
            change.rounding_squares += float(rounding.double().square().sum())
            parameter.data = exact.to(dtype)
        change.layers += 1
    return change


def _unload(model: "PeftModel", stored: "dict[str, torch.dtype]", adapter: Path) -> "PreTrainedModel":
    """Take PEFT's wrappers off and put every weight into the precision of the base."""
    with warnings.catch_warnings():
        # PEFT remarks that the layers are merged already, which is what `_merge_layers` is for.
        warnings.filterwarnings("ignore", message=".*[Mm]erged.*")
        merged: PreTrainedModel = model.merge_and_unload(safe_merge=True)
    for name, parameter in merged.named_parameters(remove_duplicate=False):
        parameter.data = parameter.data.to(stored.get(name, merged.dtype))
        if not bool(parameter.isfinite().all()):
            raise ModelError(
                f"The adapter in {printable(str(adapter))} is broken: {printable(name)} would not be finite."
            )
    merged.config.use_cache = True
    return merged


def _generation_settings(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """A tuned end token must end generation too: base models often name another one."""
    settings, end = model.generation_config, tokenizer.eos_token_id
    if settings is None or end is None:
        return []
    known = settings.eos_token_id
    known = [] if known is None else [known] if isinstance(known, int) else list(known)
    if end in known:
        return []
    settings.eos_token_id = [end, *known]
    return [
        f"generation also ends at {tokenizer.eos_token!r}, the tokenizer's end token, which the base did not stop at"
    ]
