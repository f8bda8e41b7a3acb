"""Keys of Axolotl that a plugin reads, in a configuration that does not name the plugin."""

from collections.abc import Iterator, Mapping

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.asked import given
from dynotune.audit.facts.job import Job, Trainer
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake

PLUGINS: Mapping[str, tuple[str, str]] = {
    "liger_": ("liger", "axolotl.integrations.liger.LigerPlugin"),
    "cut_cross_entropy": ("cut_cross_entropy", "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"),
    "spectrum_": ("spectrum", "axolotl.integrations.spectrum.SpectrumPlugin"),
}
"""By how keys begin: what the plugin's name holds, and its name. `cli/config.py` of Axolotl 0.9.2 and 0.12.2 registers those
that `plugins` lists and no other; their fields are in `integrations/*/args.py`, not in the schema itself."""


def keys_of_a_plugin(job: Job) -> Iterator[Said]:
    if job.trainer is not Trainer.AXOLOTL:
        return
    listed = given(job, "plugins")
    named = str(listed.value) if listed is not None else ""
    for start, (part, plugin) in PLUGINS.items():
        keys = [key for key in job.given if key.name.startswith(start) and key.value not in (None, False)]
        if not keys or part in named or (listed is not None and not isinstance(listed.value, list | tuple | str)):
            continue
        shown = ", ".join(f"`{key.name}`" for key in keys[:4])
        yield Finding(
            f"{shown} {'do' if len(keys) > 1 else 'does'} nothing here: `plugins` does not list `{plugin}`, which reads"
            f" {'them' if len(keys) > 1 else 'it'}.",
            place=keys[0].place,
            also=tuple(key.place for key in keys[1:]),
            evidence=Evidence(Level.RESOLVED, {"keys": [key.name for key in keys], "plugins": named or None}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Add `plugins: [{plugin}]`, or take the keys out.",
                (Change(Edit.SET, job.home, "plugins", [plugin]),) if listed is None else (),
                accuracy="Fused kernels round otherwise.",
            ),
        )
