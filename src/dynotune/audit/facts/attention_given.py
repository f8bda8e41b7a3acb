"""How a trainer is given another attention: transformers' one key, LLaMA-Factory's own names, Axolotl's switches."""

from dynotune.audit.change import Change, Edit
from dynotune.audit.facts.job import Job, Trainer

KEY = "attn_implementation"
_SWITCHES = {"sdpa": "sdp_attention", "flash_attention_2": "flash_attention"}
"""Of Axolotl, each true or false: by its schema a name as the value stops the run."""

_OF_LLAMA_FACTORY = {"flash_attention_2": "fa2"}


def as_given(job: Job, used: str) -> str:
    """Key and value as the file has them: `flash_attn: fa2`, `flash_attention: true`. used: by transformers' name."""
    setting = job.setting(KEY)
    value = setting.given_value if setting is not None else None
    shown = value if isinstance(value, str) else "true" if value is True else used
    return f"{job.called(KEY)}: {shown}"


def give_attention(job: Job, wanted: str) -> tuple[str, tuple[Change, ...]]:
    """What to set, for a sentence that begins so, and the edit. wanted: `sdpa` or `flash_attention_2`."""
    called = job.called(KEY)
    if job.trainer is Trainer.AXOLOTL and not (job.is_given(KEY) and called == KEY):
        switch = _SWITCHES[wanted]
        if not job.is_given(KEY):
            return f"`{switch}: true`", (Change(Edit.SET, job.home, switch, True),)
        return f"`{switch}: true` in the place of `{called}`", (Change(Edit.RENAME, job.place(KEY), called, to=switch),)
    value = _OF_LLAMA_FACTORY.get(wanted, wanted) if job.trainer is Trainer.LLAMA_FACTORY else wanted
    return f"`{called}: {value}`", (job.set(KEY, value),)
