"""A model without weights: its modules on the meta device, in their precision and with their adapter.

It has the shapes that training will have, costs no memory, and is what a plan is made from where nothing is loaded.
"""

from typing import TYPE_CHECKING, Any

from dynotune.config.whole import WholeConfig
from dynotune.errors import ConfigError, ModelError
from dynotune.model.adapter import add_adapter, lora_config
from dynotune.model.base import base_of
from dynotune.model.failures import loading_failures, words_of
from dynotune.model.load import read_model_config
from dynotune.model.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

SHAPES_ONLY = "dynotune_shapes_only"
"""Name of the attention of skeletons: it keeps what a flash kernel keeps, and computes nothing."""


def skeleton(config: WholeConfig, precision: Precision, *, for_compute: bool = False) -> "PreTrainedModel":
    """The model of `config` on the meta device, its adapter in place.

    for_compute: in the precision that products run in instead of the one that weights are kept in: what autograd keeps then
    is what it keeps under autocast. Raises `ModelError` where the architecture cannot be read.
    """
    import torch
    from transformers import AutoModelForCausalLM

    _register()
    if not config.model_name_or_path:
        raise ConfigError("`model_name_or_path` is missing: give a hub id or a folder.")
    try:
        architecture = read_model_config(config, dict(config.model_init_kwargs))
        stored: Any = getattr(architecture.get_text_config(), "dtype", None) or torch.float32
        dtype = torch.bfloat16 if for_compute and precision.compute_bf16 else precision.weights or stored
        with torch.device("meta"):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                architecture,
                dtype=dtype,
                attn_implementation=SHAPES_ONLY,
                trust_remote_code=config.trust_remote_code,
            )
            if config.use_peft:
                peft_config: Any = lora_config(config, model, [])
                peft_config.init_lora_weights = True  # others look at weights, and there are none
                model = add_adapter(model, peft_config)  # type: ignore[assignment]
    except OSError as error:
        raise _not_made(config, error) from error
    except loading_failures() as error:
        raise _not_made(config, error) from error
    return model


def _not_made(config: WholeConfig, error: BaseException) -> ModelError:
    return ModelError(f"`{config.model_name_or_path}`: its shapes cannot be read: {words_of(error)}")


def run_decoder(model: Any, tokens: int) -> "Tensor":
    """A forward pass of a skeleton's decoder over one document of `tokens`. Raises `ModelError` where it asks for values."""
    import torch

    ids_1T = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    positions_1T = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    try:
        out: Any = base_of(model).get_decoder()(input_ids=ids_1T, position_ids=positions_1T, use_cache=False)
    except (NotImplementedError, RuntimeError) as error:  # it looks at values, and a skeleton has none (GPT-2)
        raise ModelError(f"its forward pass cannot be followed without weights: {words_of(error)}") from error
    hidden: Tensor = out.last_hidden_state
    return hidden


def _register() -> None:
    from transformers import AttentionInterface

    AttentionInterface.register(SHAPES_ONLY, _attention)


def _attention(module: "nn.Module", q: "Tensor", k: "Tensor", v: "Tensor", *_: Any, **__: Any) -> "tuple[Tensor, None]":
    """Keeps query, key, value, the output and one float32 a query and head, as flash attention does."""
    import torch

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: "Tensor", k: "Tensor", v: "Tensor") -> "Tensor":
            batch, heads, tokens, _ = q.shape
            # In the order that the next product wants, as kernels write it: it is kept once for both.
            out = q.new_empty(batch, tokens, heads, v.shape[-1]).transpose(1, 2)
            ctx.save_for_backward(q, k, v, out, q.new_empty(q.shape[:-1], dtype=torch.float32))
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: "Tensor") -> Any:
            raise AssertionError("a skeleton has no backward pass")

    # As packed attention does under autocast: rotary tables have made float32 of queries and keys, not of values.
    out: Tensor = Kept.apply(q.to(v.dtype), k.to(v.dtype), v)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2).contiguous(), None
