"""Memory of a training step by part, from a model that is loaded or from its skeleton on the meta device.

Weights, gradients and optimizer states are counted: they are sums over parameters. Activations are counted too, by asking
autograd what it keeps of a forward pass; what the backward pass needs beside them is estimated. Legend of shapes: T tokens
of a micro-batch, D hidden, V vocabulary.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from dynotune.config.fates.names import EIGHT_BIT_OPTIMIZERS
from dynotune.errors import ConfigError
from dynotune.model import eight_bit_states
from dynotune.model.base import base_of

if TYPE_CHECKING:
    import torch

GIB = 1 << 30

WORKING_COPIES = 3
"""Tensors as wide as the widest of a layer that the backward pass holds at once beside what the forward pass kept: the
gradient that comes in, the one that goes out, and one between."""

WORKING_COPIES_OF_KERNELS = 2
"""The same where a gated activation is one kernel: the gradient that comes in, and those of gate and up where the activation
was, whose linear is done with it."""

STATES = {"adamw_torch_fused": 2, "adamw_torch": 2, "sgd": 0, "adagrad": 1, "rmsprop": 1}
"""Values of an optimizer's state for each trained value, in its precision."""


@dataclass(frozen=True, slots=True)
class Part:
    """Memory of one kind."""

    name: str
    bytes: int
    how: str
    """What was counted or assumed."""

    certainty: str
    """`exact`: a sum over tensors that must exist. `counted`: of one forward pass, off by what the allocator rounds.
    `at most`: counted without kernels that will keep less. `estimated`: by a rule."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def weights(model: "torch.nn.Module", compute_bf16: bool) -> list[Part]:
    """Parameters and buffers; and the copies in bfloat16 that autocast makes of the decoder's matrices and keeps through a
    step. The embedding is looked up and not cast, and the head holds its own copy as long as it works."""
    kept = _bytes((*model.parameters(), *model.buffers()))
    parts = [Part("weights", kept, "parameters and buffers in their precision, tied ones once", "exact")]
    if compute_bf16:
        apart = {id(end.weight) for end in _ends(model)}
        wide = sum(
            p.numel()
            for p in model.parameters()
            if p.is_floating_point() and p.itemsize > 2 and p.dim() > 1 and id(p) not in apart
        )
        if wide:
            how = "float32 matrices again in bfloat16: autocast keeps these copies through forward and backward"
            parts.append(Part("weights in bfloat16", 2 * wide, how, "estimated"))
    return parts


def gradients(model: "torch.nn.Module") -> Part:
    return Part("gradients", _bytes(_trained(model)), "one for each trained value, in its precision", "exact")


def gradients_but_embedding(model: "torch.nn.Module") -> Part:
    """What is there of them when the backward pass comes to the first layer: not yet that of an embedding apart from the
    head."""
    whole, ends = gradients(model), _ends(model)
    apart = len(ends) == 2 and ends[0].weight is not ends[1].weight and ends[0].weight.requires_grad
    return replace(whole, bytes=whole.bytes - ends[0].weight.nbytes) if apart else whole


def optimizer_states(model: "torch.nn.Module", optim: str, optim_args: str | None) -> Part:
    """Raises `ConfigError` where the optimizer is not known."""
    trained = list(_trained(model))
    if optim == "adafactor":
        rows = sum((sum(p.shape[:-1]) + p.shape[-1]) * p.itemsize if p.dim() > 1 else p.nbytes for p in trained)
        return Part("optimizer", rows, "a value a row and a column of each trained matrix (Adafactor)", "estimated")
    if optim in EIGHT_BIT_OPTIMIZERS:
        how = (
            f"2 values of 8 bits for each trained one and their scales, of embeddings and small ones 32 bits ({optim})"
        )
        return Part(
            "optimizer",
            eight_bit_states.state_bytes(model, trained, eight_bit_states.smallest(optim_args)),
            how,
            "exact",
        )
    if optim not in STATES:
        raise ConfigError(f"`optim: {optim}` is not supported, so its memory is not known.")
    more = sum(word in (optim_args or "") for word in ("momentum", "centered=True", "amsgrad=True"))
    how = f"{STATES[optim] + more} values for each trained one, in its precision ({optim})"
    return Part("optimizer", (STATES[optim] + more) * _bytes(trained), how, "exact" if not more else "estimated")


def activations(per_token: "PerToken", tokens: int, *, working: bool) -> Part:
    """Of one micro-batch of `tokens`: when its forward pass is done, or `working`, while the backward pass works."""
    how = f"{per_token.kept / 1000:,.0f} kB a token kept for the backward pass, {per_token.how}"
    if per_token.again:
        how += f", {per_token.again / 1000:,.0f} kB a token computed again for one layer at a time"
    if working:
        how += f"; {per_token.working / 1000:,.0f} kB a token while the backward pass works"
        if ahead := per_token.ahead_of(tokens):
            how += f", and {ahead / 1e6:,.0f} MB on their way back from host memory"
    certainty = "estimated" if per_token.again else "at most" if per_token.at_most else "counted"
    held = per_token.bytes * tokens + per_token.ahead_of(tokens) if working else per_token.kept * tokens
    return Part("activations", held, how, certainty)


def head_chunked(model: Any, tokens: int, label_share: float, compute: "torch.dtype", chunk: int) -> Part:
    """The labelled-rows head of packed execution: `chunk` rows of logits at once, where gradients replace them, and the
    gradients of the labelled rows and of all hidden states (`model/head/linear.py`)."""
    weight = model.get_output_embeddings().weight
    (vocabulary, hidden), labelled = weight.shape, int(tokens * label_share)
    needed = min(chunk, labelled) * vocabulary * compute.itemsize + labelled * hidden * 4
    needed += tokens * hidden * compute.itemsize
    if weight.dtype != compute:
        needed += weight.numel() * compute.itemsize
    if weight.requires_grad:
        needed += weight.numel() * 4
    how = f"{min(chunk, labelled):,} rows of logits at once; gradients of labelled rows in float32 and of hidden states"
    return Part("logits", needed, how, "counted")


def head_of_all(model: Any, tokens: int, compute: "torch.dtype") -> Part:
    """All logits of one document of `tokens`: as computed, in float32, and the gradients of both."""
    weight = model.get_output_embeddings().weight
    copy = weight.numel() * compute.itemsize if weight.dtype != compute else 0
    how = "all logits of the longest document, in float32 too, and gradients of both"
    return Part("logits", tokens * weight.shape[0] * (2 * compute.itemsize + 8) + copy, how, "estimated")


@dataclass(frozen=True, slots=True)
class PerToken:
    """Bytes of activations for each token of a micro-batch."""

    kept: int
    """What the forward pass leaves on the device for the backward pass."""

    again: int
    """What one layer leaves when it is computed a second time; 0 where none is."""

    working: int
    """What the backward pass of a layer holds beside that."""

    how: str

    at_most: bool = False
    """Counted with operations in whose place kernels will keep less."""

    layers: int = 1
    inputs: int = 0
    """What the inputs of all layers take."""

    cheap: int = 0
    """What results of cheap operations take that can be made again."""

    ahead: int = 0
    """Not of a token: what the backward pass has on its way back from host memory, at most."""

    @property
    def bytes(self) -> int:
        return self.kept + self.again + self.working

    def ahead_of(self, tokens: int) -> int:
        """Bytes on their way back: at most the inputs of all layers but the one at work, which is `kept`, as is the first
        layer's beside its copy."""
        return min(self.ahead, (self.inputs - self.inputs // self.layers) * tokens)

    def of_last_layer(self) -> "PerToken":
        """What is there when the backward pass comes to the layer that it ends with. Of inputs in host memory those of the
        next few layers: it is no less by then."""
        return self if self.ahead else replace(self, kept=self.kept // self.layers)

    def under(self, policy: str) -> "PerToken":
        """The same where `activation_memory` is `policy`; `self` is `none`. See `dynotune.model.activations`."""
        if policy == "none":
            return self
        if policy == "selective":
            one_layer = self.cheap // self.layers
            how = f"{self.how}, less {self.cheap / 1000:,.0f} kB of results that are made again"
            return replace(self, kept=self.kept - self.cheap, working=self.working + one_layer, how=how)
        one_layer = self.kept // self.layers
        if policy == "full":
            return replace(self, kept=self.inputs, again=one_layer, how="the inputs of layers that are computed again")
        assert policy == "offload", policy
        from dynotune.model.activations.host import UNDER_WAY

        # That of the layer at work, and the first layer's: where embeddings are frozen it is what autograd ends with, and
        # holds on the device (seen on an H200, and by counting what lives on the CPU).
        how = "two inputs of layers, the others in host memory"
        return replace(self, kept=2 * self.inputs // self.layers, again=one_layer, ahead=UNDER_WAY, how=how)


def per_token(
    model: Any, forward: Callable[[int], Any], compute: "torch.dtype", working: int = WORKING_COPIES
) -> PerToken:
    """Activations for each token, from forward passes over two numbers of tokens.

    forward: runs the decoder of `model`, without its head, over so many tokens of one document, and returns what it gives.
    It must run with nothing done about its activations. working: tensors as wide as a layer's widest that its backward
    holds.
    """
    from torch import nn

    few, many = 64, 128
    held: list[int] = []  # by the result, whose width and precision are those of every layer's input

    def counted(tokens: int) -> int:
        def run() -> Any:
            out = forward(tokens)
            hidden = getattr(out, "last_hidden_state", out)
            held.append(hidden.nbytes // tokens)
            return out

        return saved_bytes(model, run)

    kept = (counted(many) - counted(few)) // (many - few)
    config = model.config.get_text_config()
    widest = max(
        (max(m.in_features, m.out_features) for m in _decoder(model).modules() if isinstance(m, nn.Linear)),
        default=config.hidden_size,
    )
    layers = config.num_hidden_layers
    width = working * widest * compute.itemsize
    return PerToken(kept, 0, width, "as autograd counts it", layers=layers, inputs=layers * held[-1])


def saved_bytes(model: "torch.nn.Module", run: Callable[[], Any]) -> int:
    """Bytes that autograd keeps for the backward pass of `run`, each storage once and parameters not at all."""
    import torch

    own = {tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}  # holding them keeps their addresses from being used again

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        # Not the tensor itself: an output that its own operation saves would hold that operation, and so itself, for ever.
        return tensor.detach()

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        held = run()
    del held
    return sum(storage.nbytes() for storage in kept.values())


def _ends(model: Any) -> list[Any]:
    """The embedding and the head, where the model has them."""
    ends = [getattr(model, name, lambda: None)() for name in ("get_input_embeddings", "get_output_embeddings")]
    return [end for end in ends if getattr(end, "weight", None) is not None]


def _decoder(model: Any) -> Any:
    return base_of(model).get_decoder()


def _trained(model: "torch.nn.Module") -> Iterable["torch.Tensor"]:
    return (p for p in model.parameters() if p.requires_grad)


def _bytes(tensors: Iterable["torch.Tensor"]) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors)
