"""CFG013: two settings that exclude each other, so that the run stops at its start or obeys one of them."""

from collections.abc import Iterator

from dynotune.audit.facts.asked import given, number
from dynotune.audit.facts.job import Fate, Job, Method, Trainer
from dynotune.audit.facts.project import Project
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.wrapped_layer_of_another_model import wrapped_layer_of_another_model

_TRAINERS = frozenset({Trainer.TRL, Trainer.TRANSFORMERS, Trainer.LLAMA_FACTORY, Trainer.AXOLOTL})
_SFT = "model_name_or_path: Qwen/Qwen2.5-0.5B\ndataset_name: data.jsonl\n"
_ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\n"
_AXOLOTL = (
    "base_model: Qwen/Qwen2.5-0.5B\nlora_r: 16\nlora_alpha: 32\nlora_target_linear: true\nsequence_len: 2048\n"
    "datasets:\n  - path: data.jsonl\n    type: alpaca\nmicro_batch_size: 4\nval_set_size: 0.02\n"
)
_STAGE = '{"zero_optimization": {"stage": 3}}\n'
_NONE: tuple[object, ...] = (None, "", False, [], {})


def check(job: Job, project: Project) -> Iterator[Said]:
    yield from _two_precisions(job)
    yield from _adapter_and_bits(job)
    yield from _workers_of_none(job)
    yield from _sharded_twice(job, project)
    yield from _generation(job, project)
    yield from _prompt_and_row(job)
    yield from _packing_and_answers(job, project)
    yield from _masked_words(job, project)
    yield from wrapped_layer_of_another_model(job)


def _masked_words(job: Job, project: Project) -> Iterator[Said]:
    """`DataCollatorForLanguageModeling` masks words by default, which tokenizers of causal models have no token for."""
    scripts = [one for one in project.scripts if one.file in job.files]
    if not any("ForCausalLM" in one.source or "GPT2LMHead" in one.source for one in scripts):
        return
    if any("MaskedLM" in one.source or "mask_token" in one.source for one in scripts):
        return
    for call in (call for one in scripts for call in one.calls_of("DataCollatorForLanguageModeling")):
        if next((one for one in project.jobs if call.place.file in one.files), job) is not job:
            continue
        if "mlm" in call.arguments or "1" in call.arguments or "**" in call.arguments or not call.arguments:
            continue
        yield Finding(
            "`DataCollatorForLanguageModeling` without `mlm=False` masks words, and the model is a causal one, whose"
            " tokenizer has no mask token: it raises an error when it is made.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"mlm": True, "model": "causal"}),
            stake=Stake(AtStake.STOPS),
            remedy=Remedy(Risk.BEHAVIOURAL, "Pass `mlm=False`.", accuracy="The next token is predicted."),
        )
        return


MASKS_PACKED = (0, 15)
"""The release of TRL from which on its trainer takes this collator for packed rows without a word."""


def _packing_and_answers(job: Job, project: Project) -> Iterator[Said]:
    version = project.pinned("trl")
    if job.trainer is not Trainer.TRL or job.get("packing") is not True or version is None or version >= MASKS_PACKED:
        return
    scripts = [one for one in project.scripts if one.file in job.files]
    calls = [call for one in scripts for call in one.calls_of("DataCollatorForCompletionOnlyLM")]
    if not calls or not any(
        "data_collator" in call.arguments for one in scripts for call in one.calls_of("SFTTrainer")
    ):
        return
    yield Finding(
        f"`packing` and `DataCollatorForCompletionOnlyLM` exclude each other in TRL {'.'.join(map(str, version))}: the"
        " trainer raises an error when it is made.",
        place=job.place("packing"),
        evidence=Evidence(Level.RESOLVED, {"packing": True, "trl": ".".join(map(str, version))}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Set `packing=False`, or give TRL from 0.20 on rows with `prompt` and `completion`.",
            (job.set("packing", False),),
            accuracy="Loss on answers alone, as the collator means.",
        ),
        also=(calls[0].place,),
    )


def _prompt_and_row(job: Job) -> Iterator[Said]:
    """Of preference training: a prompt may be as long as the row, or longer."""
    key = given(job, "max_prompt_length")
    if key is None or key.fate is not Fate.KNOWN or job.trainer is not Trainer.TRL or job.method is Method.SFT:
        return
    prompt, length = key.value, number(job, "max_length")
    if isinstance(prompt, bool) or not isinstance(prompt, int) or length is None or not 0 < length <= prompt:
        return
    yield Finding(
        f"`max_prompt_length: {prompt:,}` is no shorter than `{job.called('max_length')}: {length:,.0f}`, the limit of"
        " prompt and answer together: a long prompt leaves no room, and what is cut is the answer or the question.",
        place=key.place,
        evidence=Evidence(Level.RESOLVED, {"max_prompt_length": prompt, "max_length": length}),
        stake=Stake(AtStake.RESULT),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Set `max_prompt_length` to {int(length) // 2:,}, or raise `{job.called('max_length')}`.",
            accuracy="Rows that were cut keep their answers.",
        ),
        also=(job.place("max_length"),),
    )


def _two_precisions(job: Job) -> Iterator[Said]:
    if job.get("bf16") is not True or job.get("fp16") is not True:
        return
    if not job.is_given("bf16") and not job.is_given("fp16"):
        return
    yield Finding(
        f"`{job.called('bf16')}` and `{job.called('fp16')}` are both on; only one can be, so the run stops before its first"
        " step.",
        place=job.place("fp16" if job.is_given("fp16") else "bf16"),
        evidence=Evidence(Level.RESOLVED, {"bf16": True, "fp16": True}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Set `{job.called('fp16')}: false`, or `{job.called('bf16')}: false` on a GPU without bfloat16.",
            (job.set("fp16", False),),
        ),
        also=(job.place("bf16"),),
    )


def _adapter_and_bits(job: Job) -> Iterator[Said]:
    """Axolotl takes `qlora` for a base of four bits and validates it."""
    if job.trainer is not Trainer.AXOLOTL:
        return
    adapter, four, eight = (given(job, name) for name in ("adapter", "load_in_4bit", "load_in_8bit"))
    if adapter is None or adapter.value != "qlora":
        return
    if eight is not None and eight.value is True:
        wrong = eight
    elif four is not None and four.value is False and (eight is None or eight.value is not True):
        wrong = four
    else:
        return
    yield Finding(
        f"`adapter: qlora` with `{wrong.name}: {str(wrong.value).lower()}`: QLoRA's base has four bits, and"
        f" Axolotl refuses this.",
        place=wrong.place,
        evidence=Evidence(Level.RESOLVED, {"adapter": "qlora", wrong.name: wrong.value}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            "Set `load_in_4bit: true` and `load_in_8bit: false`, or `adapter: lora`.",
            accuracy="The base is rounded to other bits.",
        ),
        also=(adapter.place,),
    )


def _workers_of_none(job: Job) -> Iterator[Said]:
    """transformers and PyTorch refuse keys of workers without any."""
    if number(job, "dataloader_num_workers") != 0 or job.trainer is Trainer.DYNOTUNE:
        return
    prefetch = number(job, "dataloader_prefetch_factor")
    if prefetch is not None and job.is_given("dataloader_prefetch_factor"):
        key, shown = "dataloader_prefetch_factor", f"{prefetch:g}"
    elif job.get("dataloader_persistent_workers") is True and job.is_given("dataloader_persistent_workers"):
        key, shown = "dataloader_persistent_workers", "true"
    else:
        return
    default = "" if job.is_given("dataloader_num_workers") else " (the default)"
    loaders = not job.called(key).startswith("dataloader_")  # a loader of one's own
    workers = "num_workers" if loaders else job.called("dataloader_num_workers")
    yield Finding(
        f"`{job.called(key)}: {shown}` needs workers, and `{workers}` is 0{default}: the run stops.",
        place=job.place(key),
        evidence=Evidence(Level.RESOLVED, {key: shown, "dataloader_num_workers": 0}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.SAFE,
            f"Take `{job.called(key)}` out, or set `{workers}` to 2.",
            (job.set("dataloader_num_workers", 2),),
        ),
    )


def _sharded_twice(job: Job, project: Project) -> Iterator[Said]:
    if job.trainer not in _TRAINERS or job.get("deepspeed") in _NONE:
        return
    place: Place | None
    stake = AtStake.STOPS
    if job.is_given("fsdp") and job.get("fsdp") not in _NONE:
        place, other = job.place("fsdp"), f"`{job.called('fsdp')}`"
    else:
        place, other = _of_a_launcher(job, project)
        stake = AtStake.RESULT
    if place is None:
        return
    yield Finding(
        f"`{job.called('deepspeed')}` and {other} both divide the model over devices, and only one of them can.",
        place=job.place("deepspeed"),
        also=(place,),
        evidence=Evidence(Level.RESOLVED, {"deepspeed": str(job.get("deepspeed"))[:80], "fsdp": other}),
        stake=Stake(stake),
        remedy=Remedy(Risk.BEHAVIOURAL, "Keep one of them."),
    )


def _of_a_launcher(job: Job, project: Project) -> tuple[Place | None, str]:
    """FSDP in a file of accelerate that the job's command names."""
    for config in project.configs:
        if config.kind == "accelerate" and config.file in job.files and config.values.get("distributed_type") == "FSDP":
            return config.places.get("distributed_type", Place(config.file)), "accelerate's `distributed_type: FSDP`"
    return None, ""


def _generation(job: Job, project: Project) -> Iterator[Said]:
    """Of GRPO."""
    if job.trainer is not Trainer.TRL or number(job, "num_generations") is None:
        return
    yield from _groups(job)
    yield from _server(job, project)


def _groups(job: Job) -> Iterator[Said]:
    rows, every = number(job, "per_device_train_batch_size"), number(job, "gradient_accumulation_steps")
    group, processes = number(job, "num_generations"), number(job, "num_processes")
    told = job.is_given("generation_batch_size") or job.is_given("steps_per_generation")
    if not rows or not every or not group or group < 2 or not processes or told or not job.is_given("num_generations"):
        return
    batch = int(rows * every * processes)
    if batch % int(group) == 0:
        return
    yield Finding(
        f"{int(rows)} rows x {int(every)} accumulated x {int(processes)} processes are {batch} completions, which groups of"
        f" `num_generations: {int(group)}` do not divide: TRL stops.",
        place=job.place("num_generations"),
        evidence=Evidence(Level.RESOLVED, {"completions": batch, "num_generations": int(group)}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL,
            f"Take a divisor of {batch} for `num_generations`, or change the batch.",
            accuracy="Groups of another size give other advantages.",
        ),
        also=(job.place("per_device_train_batch_size"), job.place("num_processes")),
    )


def _server(job: Job, project: Project) -> Iterator[Said]:
    """A server is started for it, and it generates by itself."""
    starts = [one for one in project.launches if "vllm-serve" in one.words or "vllm-serve" in one.program]
    named = any(job.is_given(name) for name in ("vllm_server_host", "vllm_server_base_url", "vllm_server_port"))
    if job.get("use_vllm") is not True or job.get("vllm_mode") != "colocate" or not (starts or named):
        return
    yield Finding(
        "`use_vllm` generates in the training processes (`vllm_mode: colocate`, the default since TRL 1.0): the"
        " server that is"
        " started or named for it is never asked.",
        place=job.place("use_vllm"),
        evidence=Evidence(Level.RESOLVED, {"vllm_mode": "colocate", "servers": len(starts)}),
        stake=Stake(AtStake.TIME),
        remedy=Remedy(Risk.OPERATIONAL, 'Set `vllm_mode: "server"`, or start no server and train on its GPUs too.'),
        also=tuple(one.place for one in starts[:1]),
    )


_SCRIPT = """from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=4, num_generations={})
GRPOTrainer(model="Qwen/Qwen2.5-0.5B", args=args, reward_funcs=[score], train_dataset=rows).train()
"""
_RUN = "accelerate launch --num_processes 2 train.py\n"


RULE = Rule(
    code="CFG013",
    name="settings-that-exclude-each-other",
    summary="Two settings exclude each other.",
    group=Group.CONFIGURATION,
    subject=Subject.JOB,
    check=check,
    page=Page(
        what="`bf16` and `fp16` are two answers to one question, and so are DeepSpeed and FSDP (in the arguments, or of"
        " the launcher). Axolotl takes `adapter: qlora` for a base of four bits. Prefetching and persistent workers are of"
        " loader processes, of which there may be none. GRPO's completions of a step are made in groups of"
        " `num_generations`, and by vLLM within the training processes or in a server of its own.",
        why="The trainer refuses them at the start, on a machine that is already paid for. Of a launcher's FSDP beside a"
        " DeepSpeed file one at most can have its way; which, we have not tried. A"
        " server of GRPO's that nobody asks keeps its GPUs idle.",
        detected="E1, as settings resolve: `bf16` with `fp16`; `deepspeed` with `fsdp`, or with `distributed_type: FSDP` in"
        " the command's file of accelerate; `adapter: qlora` with other bits; `dataloader_prefetch_factor` or"
        " `dataloader_persistent_workers` with no workers; rows, accumulation and processes against GRPO's group, and"
        " `vllm_mode` against servers that commands start; `max_prompt_length` against `max_length` of preference training;"
        " the layer that FSDP wraps, by its class, against the model's by its name.",
        proven="The run's first seconds: `At most one of fp16 and bf16 can be True`, `Using --fsdp xxx together with"
        " --deepspeed is not possible`.",
        deliberate=("The server of vLLM is for evaluation.",),
        sources=(
            "transformers 5.23: `TrainingArguments`, `trainer.py`",
            "Axolotl's validation of `adapter: qlora`",
            "TRL 1.16: `GRPOConfig.__post_init__`, `vllm_mode`",
        ),
    ),
    bad=Example(
        {
            "sft.yaml": f"{_SFT}deepspeed: ds.json\n",
            "ds.json": _STAGE,
            "fsdp.yaml": _ACCELERATE,
            "run.sh": "accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --config sft.yaml\n",
        },
        says="both divide the model",
    ),
    good=Example(
        {
            "sft.yaml": _SFT,
            "fsdp.yaml": _ACCELERATE,
            "run.sh": "accelerate launch --config_file fsdp.yaml -m trl.scripts.sft --config sft.yaml\n",
        }
    ),
    also_bad=(
        Example({"sft.yaml": f"{_SFT}bf16: true\nfp16: true\n"}, says="only one can be"),
        Example({"run.yml": f"{_AXOLOTL}adapter: qlora\nload_in_4bit: false\n"}, says="four bits"),
        Example({"sft.yaml": f"{_SFT}dataloader_prefetch_factor: 4\n"}, says="needs workers"),
        Example({"train.py": _SCRIPT.format(10), "run.sh": _RUN}, says="do not divide"),
    ),
    formerly=("PRC001", "LOR009", "HST050", "CFG019"),
    former_names=(
        "two-precisions",
        "adapter-and-bits",
        "workers-of-none",
        "generation-that-cannot-be",
        "sharded-twice",
    ),
)
