"""MSR090: what a profile of the command found, each thing by the name that the profile has for it."""

from dynotune.audit.profiled import seen
from dynotune.audit.rule import Group, Page, Rule, Subject

NAMES = {
    "slow-loader": "Steps wait for data. Workers that make batches ahead hide it, unless they are slower than the device.",
    "host-reads": "Values are read from the device while a step runs (`.item()`, `.cpu()`, a printed tensor): the host"
    " cannot launch ahead, and the device runs dry.",
    "host-bound": "The device waits for the host to launch: small micro-batches, and many small kernels, cost more to launch"
    " than to run.",
    "pageable-copies": "Copies to the device come from memory that is not pinned, and block the host.",
    "slow-log": "Steps that log take far longer than the others. What comes every ten steps and takes three is a third of"
    " the time.",
    "slow-evaluate": "The same of steps with an evaluation behind them.",
    "slow-save": "The same of steps that save a checkpoint.",
    "periodic-slow-down": "Every so many steps one is slow, and nothing that was seen in them has that period.",
    "dense-mask": "Attention works on a dense mask over packed documents: its time grows with the square of the row and not"
    " of its documents.",
    "padding-mask": "Attention works on a mask because rows are padded.",
    "attention-written-out": "Attention writes its scores out to memory.",
    "low-fill": "Much of what the model was given is padding, which takes the same time as tokens.",
    "full-precision-products": "Matrix products ran in float32 where 16 bits were asked for: nothing prints that autocast"
    " did not reach them.",
    "unfused-optimizer": "The optimizer's update runs as many small kernels, each of which reads and writes memory again.",
    "recompiling": "`torch.compile` made new graphs after the warm-up; shapes that go on changing never let it end.",
    "compile-limit": "`torch.compile` gave up a function that it had compiled as often as it allows: it runs as without.",
    "weights-elsewhere": "Weights lie on the CPU while a GPU is there: a missing flag or `device_map` does so without"
    " a word.",
    "allocator-retries": "The allocator ran out, gave memory back and tried again; the next longer batch may not fit"
    " at all.",
    "exposed-communication": "Devices wait for what they send, which no computation hides.",
    "ranks-wait": "Devices wait for one another: one slow rank slows all.",
}
"""What a profile can name, and what it means."""

RULE = Rule(
    code="MSR090",
    name="profiled",
    summary="A profile of the command found where its time or memory goes.",
    group=Group.PERFORMANCE,
    subject=Subject.PROFILE,
    check=seen,
    page=Page(
        what="What was seen of running steps, a finding for each thing that the profile names:\n\n"
        + "\n".join(f"- `{name}`: {text}" for name, text in NAMES.items()),
        why="It is this run's time, seen and not deduced: each finding says its share of a step, and its remedy in the"
        " settings of whoever trains.",
        detected="E3: `dynotune audit -- COMMAND` runs the command for some steps and traces a few of them.",
        proven="`dynotune profile -- COMMAND` shows the same time in its table, and again after the change.",
        deliberate=(
            "A short profile that holds one evaluation, or the first compilation, weighs it more than a run would.",
            "A value decides what the step does next, as a loss that may stop it.",
            "Offloading, where the model fits nowhere else; a head or router that is kept in float32 on purpose.",
            "A model so small that one process cannot keep a device busy, or whose attention no fast kernel computes.",
        ),
    ),
    formerly=(
        "ATT090",
        "CMP090",
        "DST090",
        "HST090",
        "HST091",
        "HST092",
        "HST093",
        "HST094",
        "MEM090",
        "MEM091",
        "OPT090",
        "PAD090",
        "PRC090",
    ),
    former_names=(
        "profiled-slow-attention",
        "profiled-recompiling",
        "profiled-waiting-ranks",
        "profiled-loader-wait",
        "profiled-host-reads",
        "profiled-host-bound",
        "profiled-pageable-copies",
        "profiled-slow-steps",
        "profiled-allocator-retries",
        "profiled-weights-elsewhere",
        "profiled-unfused-update",
        "profiled-padding",
        "profiled-full-precision",
    ),
)
