"""HST004: the model is loaded to the host's memory and stays there."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from dynotune.audit.facts.asked import number
from dynotune.audit.facts.cards import CARD
from dynotune.audit.facts.project import Project
from dynotune.audit.facts.put_on import MOVES, is_given_on, is_moved_at_once, name_of
from dynotune.audit.facts.script import Call, Script
from dynotune.audit.facts.steps import loops, text_at
from dynotune.audit.facts.together import code, connected, leads_out, together
from dynotune.audit.finding import AtStake, Evidence, Finding, Level, Remedy, Risk, Said, Stake
from dynotune.audit.place import Place
from dynotune.audit.rule import Example, Group, Page, Rule, Subject
from dynotune.audit.shapes.launched_on_the_cpu import launched_on_the_cpu
from dynotune.audit.shapes.scored_on_the_cpu import scored_on_the_cpu


def check(script: Script, project: Project) -> Iterator[Said]:
    yield from _trains(script, project)
    generates = [*_generates(script)]
    yield from generates or scored_on_the_cpu(script, project)
    yield from _sent_there(script, project)
    yield from _asked_for(script, project)
    yield from launched_on_the_cpu(script, project)
    yield from _second(script)


def _second(script: Script) -> Iterator[Said]:
    """A model beside the trained one (teacher, reference) that nothing moves, where the loop sends "
    "batches to wherever it is."""
    placed = {"device_map", "quantization_config", "load_in_4bit", "load_in_8bit", "**", "device"}
    source = code(script)
    if not any(loops(script)) or re.search(r"set_default_device|with torch\.device|dispatch_model", source):
        return
    loaded = {
        name: call
        for call in script.calls
        if call.name.startswith("transformers.") and call.name.endswith("from_pretrained")
        if re.search(r"Model|LM\b|ForSequence", call.name) and (name := name_of(script, call))
    }
    moved = {name for name, call in loaded.items() if is_moved_at_once(script, call) or _is_moved({name}, source)}
    for name, call in loaded.items():
        sent = re.search(rf"\.to\([^()\n]*\b{name}\.device\b", source)
        if sent is None and not is_given_on(name, source) and moved - {name}:
            # It is nobody else's, and its inputs go where they are.
            in_loop = [
                one
                for one in script.calls
                if one.in_training_loop and (one.name, one.on) in ((name, ""), (f".{name}", ""))
            ]
            asked = [one for one in in_loop if text_at(script, one.place).startswith(f"{name}(")]
            if (
                asked
                and not placed & set(call.arguments)
                and not is_moved_at_once(script, call)
                and not _is_moved({name}, source)
            ):
                yield _beside(name, call, asked[0].place)
                continue
        if sent is None or placed & set(call.arguments) or is_moved_at_once(script, call) or not moved - {name}:
            continue
        if _is_moved({name}, re.sub(rf"[^\n]*\b{name}\.device\b[^\n]*", "", source)):
            continue
        line = source[: sent.start()].count("\n") + 1
        yield Finding(
            f"`{name}` is loaded to the CPU and nothing moves it; the loop sends its batches to"
            f" `{name}.device`, so that it runs there without a word, beside the GPU that trains.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Move it as the other one is moved: `{name}.to(device)`, or `device_map`.",
                measure="dynotune profile -- python train.py",
            ),
            also=(Place(script.file, line),),
        )


def _beside(name: str, call: Call, asked: Place) -> Finding:
    return Finding(
        f"`{name}` is loaded to the CPU and nothing moves it: the loop runs it there at every step, while the GPU waits.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
        stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Move it as the other one is moved: `{name}.to(device)`, or `device_map`; or compute once what it gives.",
            measure="dynotune profile -- python train.py",
        ),
        also=(asked,),
    )


_GPU = re.compile(r"gres=gpu|--gpus|CUDA_VISIBLE_DEVICES|\bcuda\b|\bGPUs?\b|\b[AHBL]\d{2,3}\b|\bRTX\b|mixed_precision")


def _sent_there(script: Script, project: Project) -> Iterator[Said]:
    """A loop's model goes to a device that is "cpu", in a project for a GPU. A trainer's `use_cpu` is
    another matter."""
    if not any(_GPU.search(text) for text in (*project.texts.values(), *project.documents.values())):
        return
    yield from _accelerated(script, project)
    if any(
        re.search(r"\bCPU[- ]only\b|\b(?:on|for|with) (?:a |the )?(?:CPU|laptop)", text)
        for text in project.documents.values()
    ):
        return
    asked: list[tuple[Place, str]] = []
    for one in script.calls if any(loops(script)) else ():
        device = one.arguments.get("0") if one.name.endswith(".to") and _is_trained(one, script) else None
        if device is None or device.value != "cpu" or one.in_training_loop:
            continue
        flags = [place.key for place in device.via if place.key.startswith("-")]
        if (device.others and not flags) or any(not _is_left(flag, script, project) for flag in flags):
            continue  # the command line decides
        if _is_given_another(text_at(script, one.place), script):
            continue
        left = f", for `{flags[0]}` is `cpu` by default and no command gives it" if flags else ""
        asked.append((device.via[-1] if device.via else one.place, f"`{text_at(script, one.place)}`{left}"))
    if not asked:
        yield from _moved_nowhere(script, project)
        return
    if any(re.search(r"\.cuda\(|\.to\([^)]*cuda", code(one)) for one in together(script, project)):
        return
    for place, how in asked[:1]:
        yield Finding(
            f"The model is trained on the CPU ({how}), in a project whose files speak of a GPU.",
            place=place,
            evidence=Evidence(Level.TEXT, {"device": "cpu"}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Give `{place.key} cuda`, or make it the default." if place.key[:1] == "-" else "Train on `cuda`.",
                measure="dynotune profile -- python train.py",
            ),
        )


_SPEAKS = re.compile(
    r"cuda|\.to\(|accelerat|deepspeed|fabric|lightning|fsdp|jax|xla|mps|set_default_device|device|Trainer\(",
    re.IGNORECASE,
)


def _moved_nowhere(script: Script, project: Project) -> Iterator[Said]:
    """A model of the program's own class in a loop, in files that never speak of a device, in a project that names its GPU
    and never the CPU."""
    near = connected(script, project)
    if not any(loops(script)) or leads_out(near, project) or any(_SPEAKS.search(code(one)) for one in near):
        return
    texts = [text for file, text in project.texts.items() if not file.endswith((".py", ".ipynb"))]
    texts += project.documents.values()
    named = any(_FOR_A_GPU.search(text) or CARD.search(text) for text in texts)
    if not named or any(_OF_THE_HOST.search(text) for text in texts):
        return
    models = {
        node.name
        for one in near
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Module") for base in node.bases)
    }
    made = [call for call in script.calls if call.name.rpartition(".")[2] in models and _is_trained(call, script)]
    if len(made) == 1:
        yield Finding(
            f"`{made[0].result}` is made on the CPU, and no file of the program speaks of a device: the loop trains there,"
            " in a project that names a GPU.",
            place=made[0].place,
            evidence=Evidence(Level.TEXT, {"moved by": None}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(
                Risk.NUMERIC,
                f"Move model and batches: `{made[0].result}.to('cuda')` before the optimizer is made.",
                measure="dynotune profile -- python train.py",
            ),
        )


def _is_left(flag: str, script: Script, project: Project) -> bool:
    """Commands start the script, and neither one of them nor a document gives the flag."""
    starts = [launch for launch in project.launches if launch.script == script.file]
    started = bool(starts) and not any(_hands_on(project.texts.get(one.file, "")) for one in starts)
    given = re.compile(rf"(?<![\w-])-{{1,2}}{re.escape(flag.lstrip('-'))}\b")
    texts = (text for file, text in project.texts.items() if not file.endswith((".py", ".ipynb")))
    return started and not any(given.search(text) for text in (*texts, *project.documents.values()))


def _hands_on(text: str) -> bool:
    """Its own arguments: whoever starts the launcher may give it."""
    return re.search(r"\$\{?[@*]|sys\.argv|parse_known_args", text) is not None


def _is_trained(call: Call, script: Script) -> bool:
    """What is moved is the model, by its name, or by an optimizer that has its parameters."""
    names = {name.strip() for name in (call.result, call.on) if re.fullmatch(r"[\w.]+", name.strip())}
    return "model" in call.on.lower() or any(f"{name}.parameters()" in script.source for name in names)


_FOR_A_GPU = re.compile(r"gres=gpu|--gpus|CUDA_VISIBLE_DEVICES=\d|--nproc[_-]per[_-]node[= ]+[2-9]")
_OF_THE_HOST = re.compile(r"\bCPUs?\b|\blaptop\b|use_cpu|no_cuda", re.IGNORECASE)


def _asked_for(script: Script, project: Project) -> Iterator[Said]:
    """A trainer's `use_cpu: true`, literally, in a project whose launchers or documents name a GPU and never the CPU."""
    for job in project.jobs:
        setting = job.setting("use_cpu") or job.setting("no_cuda")
        if script.file not in job.files or setting is None or setting.value is not True or setting.others:
            continue
        texts = [text for file, text in project.texts.items() if not file.endswith((".py", ".ipynb"))]
        texts += project.documents.values()
        named = any(_FOR_A_GPU.search(text) or CARD.search(text) for text in texts)
        if (
            not named
            or any(_OF_THE_HOST.search(text) for text in texts)
            or any(one.key[:1] == "-" for one in setting.via)
        ):
            continue
        yield Finding(
            f"`{job.called(setting.name)}: true` trains on the CPU, in a project whose files name a GPU.",
            place=setting.place,
            evidence=Evidence(Level.RESOLVED, {setting.name: True}),
            stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
            remedy=Remedy(Risk.NUMERIC, f"Take `{job.called(setting.name)}` out.", (job.remove(setting.name),)),
        )
        return


def _is_given_another(text: str, script: Script) -> bool:
    """The variable that says where (`model.to(device)`) is given something else than the CPU on another line."""
    name = re.search(r"\.to\(\s*(?:device\s*=\s*)?([A-Za-z_]\w*)\s*\)$", text)
    given = re.findall(rf"(?m)^\s*{name[1]}\s*=\s*([^=\n].*)$", script.source) if name is not None else []
    return any("cpu" not in one for one in given) and (len(given) > 1 or "cuda" in given[0] or " if " in given[0])


def _accelerated(script: Script, project: Project) -> Iterator[Said]:
    """`Accelerator(cpu=True)`, though the launcher starts processes for several GPUs."""
    for one in script.calls_of("Accelerator"):
        asked = one.arguments.get("cpu") or one.arguments.get("3")
        if asked is None or asked.value is not True or asked.others:
            continue
        if any(place.key.startswith("-") for place in asked.via):
            continue  # the command line decides
        jobs = [job for job in project.jobs if script.file in job.files]
        several = [job for job in jobs if (number(job, "num_processes") or 1) > 1]
        if jobs and len(several) == len(jobs):
            yield Finding(
                "`Accelerator(cpu=True)` trains on the CPU, and the launcher starts"
                f" {number(several[0], 'num_processes'):g} processes as for GPUs: the cards are left idle, and nothing"
                " says so.",
                place=asked.place,
                evidence=Evidence(Level.RESOLVED, {"cpu": True}),
                stake=Stake(
                    AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"
                ),
                remedy=Remedy(
                    Risk.NUMERIC, "Take `cpu` out, or set it to false.", measure="dynotune profile -- python train.py"
                ),
                also=(one.place, *asked.via),
            )


def _generates(script: Script) -> Iterator[Said]:
    """A model that is loaded without a place, wrapped or not, and generates, in a file that has a GPU for another."""
    placed = {"device_map", "quantization_config", "load_in_4bit", "load_in_8bit", "**", "device"}
    source = code(script)
    if not re.search(r"device_map|cuda", source) or re.search(r"set_default_device|with torch\.device", source):
        return
    for call in script.calls:
        loads = call.name.startswith("transformers.") and call.name.endswith("from_pretrained")
        if not loads or not re.search(r"Model|LM\b", call.name) or not call.result or placed & set(call.arguments):
            continue
        wrapped = re.compile(rf"\(\s*{re.escape(call.result)}\b")
        names = {one.result for one in script.calls if one.result and wrapped.search(text_at(script, one.place))}
        names |= {call.result}
        asked = [one for one in script.calls if one.name.endswith(".generate") and one.on in names]
        if not asked or _is_moved(names, source) or is_moved_at_once(script, call):
            continue
        yield Finding(
            f"`{call.result}` is loaded to the CPU and nothing moves it: `{asked[0].on}.generate(...)` runs there,"
            f" beside"
            " the GPU.",
            place=call.place,
            evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
            stake=Stake(AtStake.TIME),
            remedy=Remedy(
                Risk.NUMERIC,
                'Give `device_map="cuda"`, and move the inputs: `inputs.to(model.device)`.',
                measure="nvidia-smi while it generates",
            ),
            also=(asked[0].place,),
        )
        return


def _is_moved(names: set[str], source: str) -> bool:
    any_of = "|".join(map(re.escape, sorted(names)))
    ways = (rf"\b({any_of})\b[^\n]*\.(to|cuda)\(", rf"(prepare|Trainer)\([^)]*\b({any_of})\b")
    return any(re.search(way, source) for way in ways)


def _trains(script: Script, project: Project) -> Iterator[Said]:
    """The only model that is loaded in a loop's file and the project's files around it."""
    if not any(loops(script)):
        return
    near = connected(script, project)
    loaded = [
        call
        for one in near
        for call in one.calls
        if call.name.startswith(("transformers.", "unsloth.", "peft."))
        and call.name.endswith("from_pretrained")
        and re.search(r"Model|LM\b|ForSequence", call.name)
        and (call.result or one is not script)
    ]
    if len(loaded) != 1:
        return
    (call,) = loaded
    follows = (
        rf"\.to\(\s*(device\s*=\s*)?{re.escape(call.result or 'model')}\.device\b"  # batches that go where the model is
    )
    texts = {one.file: re.sub(follows, "(", code(one)) for one in near}
    moved_alone = any(MOVES.search(text) for text in texts.values())
    if moved_alone and not _only_batches_move(script, call, near, texts):
        return
    mapped = call.arguments.get("device_map")
    if {"quantization_config", "load_in_4bit", "load_in_8bit", "**"} & set(call.arguments):
        return
    if mapped is not None and (mapped.value != "cpu" or mapped.others or moved_alone):
        return
    if leads_out(near, project):
        return  # the project's own code may move it
    name = call.arguments.get("pretrained_model_name_or_path")
    which = f"`{name.value}`" if name is not None and isinstance(name.value, str) else "The model"
    if moved_alone:
        yield _apart(which, call)
        return
    yield Finding(
        f"{which} is loaded to the CPU and nothing in the loop's files moves it: the loop trains there.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
        stake=Stake(AtStake.TIME, 0.8, 0.99, "a GPU multiplies matrices tens of times faster than a host's cores"),
        remedy=Remedy(
            Risk.NUMERIC,
            f"Move model and batches: `{call.result or 'model'}.to(device)` before the optimizer is made.",
            measure="dynotune profile -- python train.py",
        ),
    )


_MOVED = re.compile(r"([A-Za-z_][\w.]*(?:\[[^\]\n]*\])?)\.(?:to|cuda)\(|(?P<other>\)\.(?:to|cuda)\()")


def _only_batches_move(script: Script, call: Call, near: Sequence[Script], texts: Mapping[str, str]) -> bool:
    """The one program file moves tensors by `.to(...)` within its loops, and the model, which nothing else gets, never."""
    if call.place.file != script.file or len(near) > 2 or is_moved_at_once(script, call):
        return False
    name = name_of(script, call)
    if not name:
        return False
    text = texts[script.file]
    if is_given_on(name, text) or re.search(rf"\bself\.{name}\b", text):
        return False
    places = [loop.place for loop in loops(script)]
    rest = text
    for found in _MOVED.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        receiver = (found[1] or "").split(".")[0].split("[")[0]
        if (
            found["other"]
            or receiver in (name, "self", "model")
            or not any(place.line <= line <= place.end_line for place in places)
        ):
            return False
        rest = rest.replace(found[0], "", 1)
    others = [other for file, other in texts.items() if file != script.file]
    return not any(MOVES.search(one) for one in (rest, *others))


def _apart(which: str, call: Call) -> Finding:
    return Finding(
        f"{which} is loaded to the CPU and nothing moves it, while the loop moves its batches: the first one stops the run,"
        " for weights and inputs are on two devices.",
        place=call.place,
        evidence=Evidence(Level.TEXT, {"loaded by": call.name, "moved by": None}),
        stake=Stake(AtStake.STOPS),
        remedy=Remedy(
            Risk.BEHAVIOURAL, f"Move it too: `{call.result or 'model'}.to(device)` before the optimizer is made."
        ),
    )


_REST = """
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for batch in train_loader:
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_LOAD = """import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B\""""
_TEACHER = """import torch
from transformers import AutoModelForCausalLM

student = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B").to("cuda")
teacher = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-3B", torch_dtype=torch.bfloat16)
teacher.eval()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
for batch in train_loader:
    with torch.no_grad():
        aim = teacher(**batch).logits
    loss = distance(student(**{k: v.to("cuda") for k, v in batch.items()}).logits, aim.to("cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_SCORES = """import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("out")
model = AutoModelForSequenceClassification.from_pretrained("out", torch_dtype=torch.bfloat16)
model.eval()
with torch.inference_mode():
    for text in open("rows.txt"):
        print(model(**tokenizer(text, return_tensors="pt").to(model.device)).logits)
"""
RULE = Rule(
    code="HST004",
    name="model-on-the-cpu",
    summary="A loop trains a model that nothing moves to the GPU.",
    group=Group.PERFORMANCE,
    subject=Subject.SCRIPT,
    check=check,
    page=Page(
        what="`from_pretrained` without `device_map` puts weights into the host's memory. A trainer moves them; a"
        " loop of"
        " one's own must.",
        why="Everything works, and takes tens of times as long. Where batches are moved and the model is not, it"
        " stops.",
        detected="E0: a model generates that no call moves, in a file that speaks of a GPU, or for row after row beside a"
        " program that trains on one (unless a document speaks of the CPU); or"
        " one model is loaded, a loop trains, and no call of the program's files moves, prepares or shards anything"
        " (`batch.to(model.device)` moves batches to where the model is).",
        proven="`nvidia-smi` shows no process; `next(model.parameters()).device` says `cpu`.",
        deliberate=("It is meant for the CPU: a test, a tiny model.",),
        sources=("transformers' documentation of `from_pretrained`",),
    ),
    bad=Example({"train.py": f"{_LOAD})\n{_REST}"}, says="CPU"),
    good=Example({"train.py": f'{_LOAD}).to("cuda")\n{_REST}'}),
    also_bad=(
        Example({"distil.py": _TEACHER}, says="the loop runs it there at every step"),
        Example({"score.py": _SCORES}, says="all rows are computed there"),
    ),
)
