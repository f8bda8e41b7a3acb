"""What a run's steps will take of a device, before anything is loaded."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from dynotune.config.whole import WholeConfig
from dynotune.measure.memory import (
    GIB,
    WORKING_COPIES,
    WORKING_COPIES_OF_KERNELS,
    Part,
    PerToken,
    activations,
    gradients,
    gradients_but_embedding,
    head_chunked,
    head_of_all,
    optimizer_states,
    per_token,
    weights,
)
from dynotune.model.precision import Precision, choose_precision

if TYPE_CHECKING:
    import torch

    from dynotune.estimate.speedups import PlannedSpeedups
    from dynotune.plan.plan import Plan
    from dynotune.speedups.choose import Decision
    from dynotune.speedups.installed import Installed

Counted = TypeVar("Counted")

WORTH_COLLECTING = 1 / 64
"""Share of a device that a process may hold beside the weights before garbage is collected for it."""

CONTEXT = GIB // 2
"""What CUDA and its libraries take of a device before the first tensor."""


@dataclass(frozen=True, slots=True)
class Target:
    """The device that is planned for."""

    type: str
    name: str
    memory: int | None
    """Bytes that a run may use; None where it is not known."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Memory of a step by part, for any micro-batch."""

    model: Any
    """The model or its skeleton."""

    config: WholeConfig
    precision: Precision
    counted: PerToken
    """With nothing done about activations."""

    compute: "torch.dtype"
    policy: str = "none"
    """What is done about them, as `activation_memory` calls it."""

    instead: Mapping[str, PerToken] = field(default_factory=dict)
    """By policies to which speed-ups give way: as `counted`, without these."""

    planned: "PlannedSpeedups | None" = None
    """The speed-ups with which it was counted; None where they stand in a model that is loaded."""

    _sums: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was summed over the parameters, by name: the same for every size and policy."""

    @property
    def per_token(self) -> PerToken:
        return self.instead.get(self.policy, self.counted).under(self.policy)

    def under(self, policy: str) -> "StepMemory":
        """The same step with something else done about activations."""
        return replace(self, policy=policy)

    def parts(self, tokens: int, label_share: float, *, packed: bool, accumulates: bool = True) -> list[Part]:
        """What stands on the device when most does, for micro-batches of up to `tokens`, of which `label_share` are label
        tokens.

        That is when the head works on its first logits, when the backward pass begins or comes to the first layer, or in the
        update. accumulates: a step has several micro-batches, so that gradients of the first are there while the next runs.
        """
        always = self._once(
            "always",
            lambda: [
                *weights(self.model, self.precision.compute_bf16),
                optimizer_states(self.model, self.config.optim, self.config.optim_args),
            ],
        )
        whole = self._once("gradients", lambda: gradients(self.model))
        late = self._once("gradients but the embedding's", lambda: gradients_but_embedding(self.model))
        # In the first micro-batch of a step there are none but the head's own, which the head counts.
        before = whole if accumulates else replace(whole, bytes=0)
        head, gone = self._head(tokens, label_share, packed), activations(self.per_token, 0, working=False)
        hidden = tokens * self.model.config.get_text_config().hidden_size * self.compute.itemsize
        incoming = Part("logits", hidden, "none any more: the gradient of all hidden states", "counted")
        nothing = Part("logits", 0, "none any more", "counted")
        at_the_end = self.per_token.of_last_layer()
        moments = [
            [before, activations(self.per_token, tokens, working=False), head],
            [before, activations(self.per_token, tokens, working=True), incoming],
            [late, activations(at_the_end, tokens, working=True), incoming],
            [whole, gone, nothing],
        ]
        return [*always, *max(moments, key=lambda parts: sum(part.bytes for part in parts))]

    def _once(self, name: str, count: Callable[[], Counted]) -> Counted:
        """Sixteen sizes are asked about before a first step; going over a 7B's modules for each took half a second."""
        if name not in self._sums:
            self._sums[name] = count()
        counted: Counted = self._sums[name]
        return counted

    def _head(self, tokens: int, label_share: float, packed: bool) -> Part:
        from dynotune.model.head.chunks import chunks

        if not packed:
            return head_of_all(self.model, tokens, self.compute)
        vocabulary = self.model.get_output_embeddings().weight.shape[0]
        rows = max((end - first for first, end in chunks(tokens, vocabulary, self.compute.itemsize)), default=0)
        return head_chunked(self.model, tokens, label_share, self.compute, rows)

    def needed(self, tokens: int, label_share: float = 1.0) -> int:
        """Bytes beside the weights that are loaded, under packed execution."""
        return sum(part.bytes for part in self.parts(tokens, label_share, packed=True) if part.name != "weights")


def live_memory(
    model: Any,
    config: WholeConfig,
    precision: Precision,
    run: Callable[[int], Any],
    installed: "Installed | None" = None,
) -> tuple[StepMemory, int]:
    """Of a model that is loaded and ready to train, and the bytes that are free for it on its GPU (0 without one).

    run: a forward pass of its decoder over one document of so many tokens, as training will run it. It is called four times,
    on a few tokens, with nothing done about activations, and twice more for each policy that a speed-up would give way to;
    random numbers are as they were. installed: the speed-ups in it, which say what they hold in the backward pass.
    """
    import torch

    from dynotune.model.activations.policy import policy_of

    weight = next(model.parameters())
    device, compute = weight.device, torch.bfloat16 if precision.compute_bf16 else weight.dtype
    on_gpu = device.type == "cuda"
    policy = policy_of(model)
    copies = WORKING_COPIES_OF_KERNELS if on_gpu else WORKING_COPIES
    with torch.random.fork_rng([device] if on_gpu else [], enabled=True):
        counted, instead = _counts(model, compute, run, copies, installed)
    memory = StepMemory(model, config, precision, counted, compute, policy, instead)
    free = 0
    if on_gpu:
        # A model of before, of another run in this process, stands in cycles that hold its memory until they are collected:
        # with it, a card of 141 GB once had no room for activations of 31. Collecting takes 0.3 s: only where something is.
        own = sum(one.nbytes for one in (*model.parameters(), *model.buffers()) if one.device == device)
        beside = torch.cuda.memory_allocated(device) - own
        if beside > torch.cuda.get_device_properties(device).total_memory * WORTH_COLLECTING:
            gc.collect()
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + kept
    return memory, free


def _counts(
    model: Any, compute: "torch.dtype", run: Callable[[int], Any], copies: int, installed: "Installed | None"
) -> tuple[PerToken, dict[str, PerToken]]:
    """`StepMemory.counted` and `instead` of a model or a skeleton with `installed` in it.

    copies: tensors as wide as a layer's widest that its backward pass holds without them.
    """
    from dynotune.model.activations.policy import cheap_bytes, out_of_the_way
    from dynotune.speedups.activation import POLICIES, PREFIX
    from dynotune.speedups.registry import speedups

    def gone(policy: str) -> "list[Decision]":
        there = [] if installed is None else installed.giving_way(speedups()[f"{PREFIX}{policy}"])
        return [one for one in there if one.speedup.in_skeletons]  # others keep what is kept without them

    @contextmanager
    def without(some: "list[Decision]") -> Iterator[None]:
        with ExitStack() as back:
            for one in some:
                assert installed is not None
                back.enter_context(installed.without(one))
            yield

    def count(left_out: "list[Decision]") -> PerToken:
        standing = [one for one in installed or () if one not in left_out]
        wide = sum(one.installed.wide_in_backward for one in standing if one.installed)
        with without(left_out), out_of_the_way(model):
            return per_token(model, run, compute, copies + wide)

    with without(gone("selective")):
        cheap = cheap_bytes(model, run, compute)
    instead = {policy: replace(count(some), cheap=cheap) for policy in POLICIES[1:] if (some := gone(policy))}
    return replace(count([]), cheap=cheap), instead


ELSEWHERE = "there is none here"


def target_of(config: WholeConfig, memory_gib: float | None = None) -> Target:
    """The GPU here; the CPU where `use_cpu` asks for it; else a GPU that computes in bfloat16, of unknown memory."""
    import torch

    asked = None if memory_gib is None else int(memory_gib * GIB)
    if config.use_cpu:
        return Target("cpu", "CPU", asked)
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return Target("cuda", torch.cuda.get_device_name(), asked if asked is not None else free)
    return Target("cuda", f"a GPU that computes in bfloat16 ({ELSEWHERE})", asked)


def step_memory(config: WholeConfig, target: Target, longest: int = 0, plan: "Plan | None" = None) -> StepMemory:
    """Of the model that `config` names, from its shapes, and which speed-ups it will have. Raises `ModelError` where shapes
    cannot be read, and `ConfigError` where a speed-up is `on` and cannot be, as the run would.

    longest: tokens of the longest document. plan: the run's steps, not laid out yet.
    """
    import torch

    from dynotune.estimate.speedups import PlannedSpeedups
    from dynotune.model import linears
    from dynotune.model.kept_by_kernels import as_kernels_keep, cast_as_autocast
    from dynotune.model.lora import install
    from dynotune.model.skeleton import run_decoder, skeleton
    from dynotune.speedups.activation import asked_policy
    from dynotune.speedups.contract import Context

    device = torch.device(target.type)
    here = target.type == "cuda" and torch.cuda.is_available()
    bf16 = None if here else target.type == "cuda"
    precision = choose_precision(config, config, device, has_bf16=bf16)
    model = skeleton(config, precision)
    embedding: Any = model.get_input_embeddings()
    compute: torch.dtype = torch.bfloat16 if precision.compute_bf16 else embedding.weight.dtype
    planned = PlannedSpeedups.of(Context(config, model, device, compute, precision, longest, live=False, plan=plan))
    # Fused LoRA runs without autocast where its base is in the precision of products; all else casts as autocast does.
    fused = planned.takes("fused_lora")
    shaped = skeleton(config, precision, for_compute=fused)
    if fused:
        install(shaped, compute)
    elif precision.compute_bf16:
        if planned.takes("fused_linears"):
            linears.install(shaped, compute)
        cast_as_autocast(shaped, compute)
    shaped.train()

    def run(tokens: int) -> Any:
        return run_decoder(shaped, tokens)

    if target.type == "cuda":
        as_kernels_keep(shaped, compute, planned.slots())
    run(2)  # a forward pass that cannot be followed is an error before anything looks at it
    with closing(planned.in_skeleton(shaped)) as installed:
        if target.type == "cuda":
            how = "as autograd counts it of the kernels that run on a GPU"
            counted, instead = _counts(shaped, compute, run, WORKING_COPIES_OF_KERNELS, installed)
            counted, instead = replace(counted, how=how), {name: replace(one, how=how) for name, one in instead.items()}
        else:
            counted, instead = per_token(shaped, run, compute), {}
    asked = asked_policy(config)
    return StepMemory(model, config, precision, counted, compute, asked[0] if asked else "none", instead, planned)
