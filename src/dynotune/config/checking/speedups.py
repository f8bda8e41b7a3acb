"""Speed-ups by name, and the keys of others that ask for them. The names are the registry's."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dynotune.config.checking.finding import Finding, idle, wrong
from dynotune.config.checking.problems import did_you_mean, shown
from dynotune.config.fates.fate import Kind
from dynotune.config.fates.table import SFT_FATES

if TYPE_CHECKING:
    from dynotune.config.sft import SFTConfig


def speedups(config: "SFTConfig", given: frozenset[str]) -> Iterator[Finding]:
    """Names that no speed-up has; keys that ask for one that is not there; keys that contradict each other."""
    from dynotune.speedups.registry import speedups as registered

    known = registered()
    for name, setting in config.speedups.items():
        if name not in known:
            hint = did_you_mean(name, known) or f" There are: {', '.join(sorted(known))}."
            yield wrong(f"`speedups: {{{name}: {setting}}}`: there is no speed-up `{name}`.{hint}", "speedups")
        elif why := known[name].why_no_switch(config):
            yield wrong(
                f"`speedups: {{{name}: {setting}}}`: {why}. Set that.",
                "speedups",
                known[name].follows,
            )
    for key, fate in SFT_FATES.items():
        if fate.kind is not Kind.MAPPED or fate.is_noop(getattr(config, key)):
            continue
        if not any(name in known for name in fate.speedups):
            listed = " or ".join(f"`{name}`" for name in fate.speedups)
            yield wrong(
                f"`{key}: {shown(getattr(config, key), key=key)}` asks for the speed-up {listed}, which this version lacks."
                " Remove it; the result is the same.",
                key,
            )
    for name, setting in config.speedups.items():
        if name in known and known[name].slot == "activation_memory":
            continue  # what contradicts whom there is no matter of one of them: `activations`
        asked = known[name].asked(config) if name in known else None
        if asked is not None and asked[0] not in ("auto", setting):
            yield idle(f"`speedups: {{{name}: {setting}}}` wins over `{asked[1]}`.", "speedups", name)
    if config.speedups.get("fused_optimizer") == "off" and "optim" in given and config.optim.endswith("_fused"):
        yield idle(
            f"`speedups: {{fused_optimizer: off}}` wins over `optim: {config.optim}`: the same update, in more kernels.",
            "speedups",
            "optim",
        )
    yield from _contradictions(config)


def _contradictions(config: "SFTConfig") -> Iterator[Finding]:
    if config.padding_free and config.packed_execution == "off" and "packed_execution" not in config.speedups:
        yield wrong(
            "`padding_free: true` asks for documents side by side, and `packed_execution: off` for one at a time. Remove"
            " one.",
            "padding_free",
            "packed_execution",
        )
    if config.liger_kernel_config and not config.use_liger_kernel:
        yield idle(
            "`liger_kernel_config` does nothing without `use_liger_kernel: true`, as in TRL.",
            "liger_kernel_config",
            "use_liger_kernel",
        )
    from dynotune.speedups.liger import KEYS

    for name, value in config.liger_kernel_config.items():
        if name not in KEYS and value:
            hint = did_you_mean(name, KEYS) or f" There are: {', '.join(KEYS)}."
            yield wrong(
                f"`liger_kernel_config: {{{name}: true}}`: no speed-up takes this kernel of Liger's.{hint}",
                "liger_kernel_config",
            )
