"""Which speed-ups run."""

from typing import Literal

from pydantic import Field

from dynotune.config.keys.topic import Topic


class SpeedupsConfig(Topic):
    speedups: dict[str, Literal["auto", "on", "off"]] = Field(default_factory=dict)
    """Speed-ups by name: `auto` takes one where it is applicable and was seen to run, `on` stops the run where it is not,
    `off` leaves it out. What is not named has its own default, mostly `auto`. It wins over every other key that asks for
    a speed-up."""

    packed_execution: Literal["auto", "on", "off"] = "auto"
    """Lay the documents of a step out side by side in as few forward passes as fit, isolated from each other, with the
    same loss and gradient. `auto` where the model can be packed, which is tried out before the first step; `on` stops
    where it cannot; `off` takes the plain path, one document at a time."""

    padding_free: bool = False
    """TRL's name for `packed_execution: on`: documents side by side without padding, or the run stops. `false` asks for
    nothing, since packed execution is `auto` anyway."""

    use_liger_kernel: bool = False
    """Take Liger's kernels for RMSNorms, rotary embeddings and gated activations: each is a speed-up that is `on`, so it is
    seen to run or the run stops; of which kind the model has none, that is said. Liger's fused loss is not among them, as in
    TRL. `false` asks for nothing."""

    liger_kernel_config: dict[str, bool] = Field(default_factory=dict)
    """Which of Liger's kernels `use_liger_kernel` asks for: `rope`, `rms_norm`, `swiglu` and `geglu`, by default `true`, and
    `fused_linear_cross_entropy` or `cross_entropy`, by default `false`."""

    torch_compile: bool = False
    """Compile the decoder layers (`compiled_layers: on`). `false` asks for nothing."""

    torch_compile_backend: str | None = None
    """The backend of `torch_compile`; giving it asks for compilation, as in transformers. Default: `inductor`."""

    torch_compile_mode: str | None = None
    """The mode of `torch_compile`; giving it asks for compilation, as in transformers."""

    activation_offloading: bool = False
    """Keep activations in the host's memory between forward and backward (`activation_offload: on`), for less memory.
    `false` asks for nothing."""

    @property
    def execution(self) -> tuple[Literal["auto", "on", "off"], str]:
        """The setting of packed execution, and the key that gives it, as written."""
        if (named := self.speedups.get("packed_execution")) is not None:
            return named, f"speedups: {{packed_execution: {named}}}"
        return self.execution_asked

    @property
    def execution_asked(self) -> tuple[Literal["auto", "on", "off"], str]:
        """The same by keys of its own, without `speedups`."""
        if self.padding_free:
            return "on", "padding_free: true"
        return self.packed_execution, f"packed_execution: {self.packed_execution}"
