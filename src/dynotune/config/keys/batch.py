"""What a step contains, and how it is executed."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from dynotune.config.keys.topic import Topic


class BatchConfig(Topic):
    per_device_train_batch_size: int = Field(default=8, gt=0)
    """Examples a device contributes to each of the `gradient_accumulation_steps` of a step, as in TRL. It fixes what a
    step contains, not how many documents one forward pass holds."""

    gradient_accumulation_steps: int = Field(default=1, gt=0)
    """A step holds `per_device_train_batch_size x gradient_accumulation_steps x world size` examples (world size: the number
    of GPUs, or processes)."""

    global_batch_size: int | None = Field(default=None, gt=0)
    """Examples a step, whatever the number of GPUs; replaces the product above. It need not divide by that number."""

    num_train_epochs: float = Field(default=3.0, gt=0)
    """Passes over the training data."""

    max_steps: int = Field(default=-1, ge=-1)
    """Number of steps; -1 takes `num_train_epochs`."""

    train_sampling_strategy: Literal["random", "sequential"] = "random"
    """Order of examples: a new seeded permutation each epoch, or the order of the data."""

    data_seed: int | None = Field(default=None, ge=0, lt=2**32)
    """Seed of the order of examples. Default: `seed`."""

    dataloader_drop_last: bool = False
    """Leave out the last, smaller batch of an epoch, as TRL does when asked; the rows left out are counted.
    Held-out data is evaluated whole."""

    micro_batch_tokens: Annotated[int, Field(ge=64, lt=2**31)] | Literal["auto"] | None = None
    """Tokens that a micro-batch may hold under packed execution; more where a document is longer. Default, which is also
    `auto`: what fits the device, tried out on the largest micro-batch before the first step and remembered, at most
    16,384, or of models with small layers what keeps a GPU busy (43,520 of 0.5B in full). It changes speed and memory,
    never what a step contains."""

    @field_validator("micro_batch_tokens", mode="after")
    @classmethod
    def _auto_is_the_default(cls, tokens: int | Literal["auto"] | None) -> int | None:
        return None if tokens == "auto" else tokens

    packing: bool = False
    """TRL's packing, which makes a row a bin of up to `max_length` tokens. *Behavioural*: a step holds many more examples
    and an epoch makes many fewer updates; the plan says how many. For speed alone leave it off: `packed_execution` packs
    without changing what a step contains."""

    packing_strategy: Literal["bfd", "bfd_split", "wrapped"] = "bfd"
    """How `packing` fills bins. `bfd`: whole examples, best fit first, cut at `max_length`; `bfd_split`: longer ones become
    several documents; `wrapped`: one stream, cut every `max_length` tokens, in which examples see each other."""

    eval_packing: bool | None = None
    """Pack the evaluation data by `packing_strategy`. Default: as `packing`. With `bfd` it only cuts them at `max_length`,
    since the loss is a mean over label tokens; the other two change the loss."""

    @property
    def packing_of_evaluation(self) -> bool:
        """Whether evaluation data are packed."""
        return self.packing if self.eval_packing is None else self.eval_packing

    def examples_on(self, world: int) -> int:
        """Examples in one optimizer update of `world` ranks together."""
        product = self.per_device_train_batch_size * self.gradient_accumulation_steps * world
        return self.global_batch_size or product
