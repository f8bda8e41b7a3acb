"""Keys of the preference losses that are right alone and wrong together. Stricter than TRL only where it fails or divides
by 0; what TRL ignores is said."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dynotune.config.checking.finding import Finding, changed, idle, wrong
from dynotune.config.keys.batch import BatchConfig
from dynotune.config.keys.preference import PreferenceConfig

# `objectives.preference.losses` says the same of each loss, and needs PyTorch. Tests hold the two against each other.

OF_THE_MARGIN = frozenset(
    {"sigmoid", "sigmoid_norm", "dpo_norm", "hinge", "ipo", "exo_pair", "robust", "discopop", "sft"}
)
"""Losses that take a divergence other than `reverse_kl`, as in TRL: those of a difference of scores, and `sft`, which reads
none. f' is known up to a constant. The margin cancels it; a margin per token (`ipo`, `sigmoid_norm`, `dpo_norm`) does so
where both answers are of one length, and else depends on the constant that is taken, which is TRL's."""

SORTING = frozenset({"aot", "aot_unpaired"})
WITH_LIKELIHOOD = frozenset({"sft", "orpo", "cpo"})
"""Losses with a mean over the tokens of many pairs, which has no weight of one pair."""

BY_BATCH = SORTING | WITH_LIKELIHOOD
"""Losses that are defined on the pairs of a batch, so that `per_device_train_batch_size` is a part of the objective."""

WITHOUT_REFERENCE = frozenset({"simpo", "orpo", "cpo"})
SMOOTHING = frozenset({"exo_pair", "robust", "aot", "aot_unpaired", "dpo_norm", "simpo", "cpo"})
"""Losses that read `label_smoothing`."""


def preference(config: PreferenceConfig, given: frozenset[str]) -> Iterator[Finding]:
    """What contradicts itself, and what does nothing, among the keys of the preference losses."""
    yield from _losses(config)
    yield from _smoothing(config)
    yield from _weights(config)
    yield from _unread(config)


def _losses(config: PreferenceConfig) -> Iterator[Finding]:
    weights = config.loss_weights
    if weights is not None and len(weights) != len(config.loss_type):
        yield wrong(
            f"`loss_weights` has {len(weights)} and `loss_type` {len(config.loss_type)} entries. Give each loss one"
            " weight.",
            "loss_weights",
            "loss_type",
        )
    others = _named(config, lambda name: name not in OF_THE_MARGIN)
    if config.f_divergence_type != "reverse_kl" and others:
        yield wrong(
            f"`f_divergence_type: {config.f_divergence_type}` has no meaning for `loss_type: {others}`, which is no"
            " function of the difference of the two answers' scores: the divergence gives scores up to a constant. Take one"
            f" of {', '.join(sorted(OF_THE_MARGIN))}, or `reverse_kl`.",
            "f_divergence_type",
            "loss_type",
        )


def _smoothing(config: PreferenceConfig) -> Iterator[Finding]:
    smoothing, losses = config.label_smoothing, set(config.loss_type)
    if "exo_pair" in losses and smoothing == 0:
        yield wrong(
            "`loss_type: exo_pair` takes the logarithm of `label_smoothing`, which is 0. Its paper takes 0.001.",
            "loss_type",
            "label_smoothing",
        )
    if "robust" in losses and smoothing >= 0.5:
        yield wrong(
            f"`label_smoothing: {smoothing:g}` must be below 0.5 with `loss_type: robust`: at half of the labels flipped"
            " nothing is left to learn. Its paper takes 0.1.",
            "label_smoothing",
            "loss_type",
        )
    if smoothing and not losses & SMOOTHING:
        yield idle(
            f"`label_smoothing` does nothing with `loss_type: {', '.join(config.loss_type)}`, as in TRL; `robust` and"
            " `dpo_norm` heed it.",
            "label_smoothing",
            "loss_type",
        )


def _weights(config: PreferenceConfig) -> Iterator[Finding]:
    if config.use_weighting and (sorting := _named(config, SORTING.__contains__)):
        yield wrong(
            f"`use_weighting: true` weights pairs, and `loss_type: {sorting}` sorts them apart. Remove one.",
            "use_weighting",
            "loss_type",
        )
    if config.use_weighting and (likelihood := _named(config, WITH_LIKELIHOOD.__contains__)):
        yield wrong(
            f"`use_weighting: true` weights pairs, and `loss_type: {likelihood}` averages over the tokens of many. Remove"
            " one.",
            "use_weighting",
            "loss_type",
        )
    if config.ld_alpha is not None and (free := _named(config, WITHOUT_REFERENCE.__contains__)):
        yield wrong(
            f"`ld_alpha` weights the log-probabilities of DPO, and `loss_type: {free}` is defined by the whole answers."
            " Remove one.",
            "ld_alpha",
            "loss_type",
        )


def _unread(config: PreferenceConfig) -> Iterator[Finding]:
    readers = {"discopop_tau": "discopop", "simpo_gamma": "simpo", "cpo_alpha": "cpo"}
    for key, loss in readers.items():
        if getattr(config, key) != type(config).model_fields[key].default and loss not in config.loss_type:
            yield idle(f"`{key}` does nothing without `loss_type: {loss}`.", key, "loss_type")
    if config.f_alpha_divergence_coef != 0.5 and config.f_divergence_type != "alpha_divergence":
        yield idle(
            "`f_alpha_divergence_coef` does nothing without `f_divergence_type: alpha_divergence`.",
            "f_alpha_divergence_coef",
            "f_divergence_type",
        )


def _named(config: PreferenceConfig, which: Callable[[str], bool]) -> str:
    return ", ".join(name for name in config.loss_type if which(name))


if TYPE_CHECKING:

    class _PairsInBatches(PreferenceConfig, BatchConfig): ...


def groups(config: "_PairsInBatches", given: frozenset[str]) -> Iterator[Finding]:
    """A loss that sorts batches of one pair has nothing to sort, and other losses than those of batches know none."""
    sorting = _named(config, SORTING.__contains__)
    if sorting and config.per_device_train_batch_size == 1:
        yield idle(
            f"`loss_type: {sorting}` sorts the pairs of a batch, and `per_device_train_batch_size: 1` leaves it one: each"
            " pair is trained as it is.",
            "loss_type",
            "per_device_train_batch_size",
        )
    if changed(config, "per_device_eval_batch_size") and BY_BATCH.isdisjoint(config.loss_type):
        yield idle(
            f"`per_device_eval_batch_size` does nothing with `loss_type: {', '.join(config.loss_type)}`: the evaluation loss"
            " is the mean over all pairs.",
            "per_device_eval_batch_size",
            "loss_type",
        )
