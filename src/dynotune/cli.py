"""The commands, nothing else."""

import atexit
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from dynotune._version import __version__
from dynotune.command_line import WORDS
from dynotune.errors import RESUMABLE, ConfigError, DynotuneError, Interrupted
from dynotune.terminal import guard
from dynotune.train.outside.signals import listening, number_of

DONE, BUG, USER_ERROR, PIPE_CLOSED = 0, 1, 2, 141
"""Exit codes: done; a defect of Dynotune (with a traceback); a mistake that the user can mend; the reader of the output has
gone (what shells report for SIGPIPE). Besides: `RESUMABLE` (75), saved and left before the end; 128 + the signal (130 for
Ctrl-C, 143 for SIGTERM) for a run that a signal ended where it stood; 3, what was checked does not hold: something was not
seen to run (`dynotune engaged`), an arm is slower than allowed (`dynotune bench gate`)."""

END_SECONDS = 5.0
"""How long a process that was asked to leave may take for its last threads, such as an upload's."""

ENDED_BY_SIGNAL = (128 + signal.SIGINT, 128 + signal.SIGTERM)

LATER = {
    "tune": "the search for settings",
}

app = App(
    name="dynotune",
    help="Fine-tune language models: the same updates, nothing silent, every figure measured.",
    help_epilogue="Example: dynotune sft --config sft.yaml --learning_rate 1e-5",
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
# Imported when they are called: their flags are the configuration's keys, and those take a moment to load.
app.command(
    "dynotune.cli_config:sft",
    name="sft",
    help="Fine-tune a model on conversations, prompts with completions, or text.\n\n"
    "A TRL configuration runs as it stands. The result is a run folder with the model or adapter, metrics and a ledger.",
    help_epilogue="Examples:\n\n"
    "dynotune sft --config sft.yaml --learning_rate 1e-5\n\n"
    "dynotune sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name data.jsonl --use_peft "
    "--lora_target_modules q_proj v_proj",
)
app.command(
    "dynotune.cli_config:dpo",
    name="dpo",
    help="Train a model on preferences: pairs of answers to the same prompt, one better than the other.\n\n"
    "A TRL configuration runs as it stands. The reference is computed once and kept; the prompt of a pair runs once.",
    help_epilogue="Examples:\n\n"
    "dynotune dpo --config dpo.yaml --beta 0.05\n\n"
    "dynotune dpo --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --dataset_name pairs.jsonl --use_peft "
    "--loss_type sigmoid sft --loss_weights 1.0 0.2",
)
app.command(
    "dynotune.cli_config:prepare",
    name="prepare",
    help="Read, render and tokenise the data of a configuration, without training: the ledger, or rows to look at.\n\n"
    "The tokens are kept, and runs take them from there while nothing that made them has changed.",
    help_epilogue="Examples:\n\n"
    "dynotune prepare --config sft.yaml --show 3\n\n"
    "dynotune prepare --method dpo --config dpo.yaml\n\n"
    "dynotune prepare --config sft.yaml --export rows.parquet --export_packed 4096\n\n"
    "dynotune prepare --prune --older_than 30",
)
app.command(
    "dynotune.cli_config:plan",
    name="plan",
    help="What a run will do, before it: steps, micro-batches, padding, updates beside TRL's, memory by part and time.\n\n"
    "Reads the data and the shapes of the model. Nothing trains, no weights are loaded, no GPU is needed.",
    help_epilogue="Examples:\n\n"
    "dynotune plan --config sft.yaml\n\n"
    "dynotune plan --method dpo --config dpo.yaml\n\n"
    "dynotune plan --config sft.yaml --micro_batch_tokens 8192 --rate 15000 --json",
)
app.command(
    "dynotune.cli_bench:app",
    name="bench",
    help="Measure what a change does to speed and memory, in pairs; compare and gate kept results.",
)
app.command(
    "dynotune.cli_profile:profile",
    name="profile",
    help="Where the time of a training step goes, what holds it back, and what would change that.\n\n"
    "Warms up by rule, times steps without a profiler, traces some more, and trains nothing that is kept.",
    help_epilogue="Examples:\n\n"
    "dynotune profile --config sft.yaml\n\n"
    "dynotune profile --method dpo --config dpo.yaml --steps 50\n\n"
    "dynotune profile -- python train.py\n\n"
    "dynotune profile --record profiles/mine/record.json.gz --json",
)
app.command(
    "dynotune.cli_report:report",
    name="report",
    help="Write runs and results of benches as one page of HTML, which needs nothing else and can be sent to anybody.",
    help_epilogue="Examples:\n\ndynotune report runs/my-run\n\n"
    "dynotune report runs/first runs/second --output both.html",
)
app.command(
    "dynotune.cli_audit:audit",
    name="audit",
    help="Find what is wrong or slow in configurations, scripts, data, runs and the environment, with evidence.\n\n"
    "Nothing that is audited is run, but a command behind `--`. Exits with 0 where nothing is found, 1 where something is, 2"
    " where nothing could be checked, or not what was named.",
    help_epilogue="Examples:\n\n"
    "dynotune audit\n\n"
    "dynotune audit --config sft.yaml --data data.jsonl --env\n\n"
    "dynotune audit --project training --level warning --baseline audit-baseline.json --output sarif=audit.sarif\n\n"
    "dynotune audit --script train.py launch.sh --source trl=checkouts/trl --all\n\n"
    "dynotune rule OPT001",
)
app.command(
    "dynotune.cli_audit:rule",
    name="rule",
    help="Explain a rule of `dynotune audit`: what it finds and how, why it matters, examples. Without a code: list all.",
    help_epilogue="Examples:\n\ndynotune rule\n\ndynotune rule OPT001",
)

_Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print one JSON object on stdout.")]


@app.command(help_epilogue="Example: dynotune merge runs/my-run --output merged-model")
def merge(
    run: Path,
    /,
    *,
    output: Path,
    dtype: str | None = None,
    base: str | None = None,
    device: str = "cpu",
    trust_remote_code: Annotated[bool, Parameter(name="--trust_remote_code", negative=())] = False,
    as_json: _Json = False,
) -> None:
    """Merge a trained LoRA adapter into its base model, and prove that the result computes the same.

    Parameters
    ----------
    run
        The run folder, one of its checkpoints, or an adapter's folder.
    output
        Where the merged model is written; must not exist or be empty.
    dtype
        Precision of the merged model (float32, bfloat16, float16). Default: the base's own.
    base
        Another place of the base model, where it moved since the adapter was trained.
    device
        Where the merge is computed.
    trust_remote_code
        Run Python code that the base model's repository brings.
    """
    from dynotune.merge.merge import merge_adapter

    with _stdout_for_result(as_json):
        report = merge_adapter(run, output, dtype, device, base=base, trust_remote_code=trust_remote_code)
    text = json.dumps(asdict(report), default=str) if as_json else "\n".join(report.lines())
    sys.stdout.write(text + "\n")


@app.command(help_epilogue="Example: dynotune verify runs/my-run --json")
def verify(folder: Path, /, *, as_json: _Json = False) -> int:
    """Check every byte of what Dynotune wrote: a run with its checkpoints, a checkpoint, a merged model, a token store.

    Exits with 0 where all is as it was written, and with 2 where something is damaged, which is named.

    Parameters
    ----------
    folder
        The folder to check.
    """
    from dynotune.train.folder.verify import verify as check

    found = check(folder)
    text = json.dumps(found.to_json()) if as_json else "\n".join(found.lines())
    sys.stdout.write(text + "\n")
    return DONE if found.whole else USER_ERROR


@app.command(
    help_epilogue="Examples:\n\ndynotune engaged runs/my-run\n\n"
    "dynotune engaged runs/my-run --json\n\ndynotune engaged --forget fused_lora"
)
def engaged(
    run: Path | None = None,
    /,
    *,
    markdown: Annotated[bool, Parameter(name="--markdown", negative=())] = False,
    forget: Annotated[list[str] | None, Parameter(name="--forget", negative=(), consume_multiple=True)] = None,
    as_json: _Json = False,
) -> int:
    """Show which speed-ups a run was seen to use: in which places, by which kernels, and what they gain here.

    Exits with 0 where all that was to run was seen to run in every place and the step held nothing that it should not
    (matrix products in full precision in a 16-bit run, waits of the host), and with 3 else.

    Parameters
    ----------
    run
        The run folder, or its engagement.json.
    markdown
        Print the table as Markdown.
    forget
        Have speed-ups of these names tried again that failed on this machine before; without a name: all.
    """
    from dynotune.speedups.engaged import engaged as show_engaged
    from dynotune.speedups.engaged import forget as forget_failures

    if forget is not None:
        if run is not None:
            raise ConfigError("`--forget` concerns this machine, not a run. Leave the folder out.")
        forget_failures(forget, as_json=as_json)
        return DONE
    if run is None:
        raise ConfigError("name a run folder: `dynotune engaged runs/my-run`.")
    return show_engaged(run, as_json=as_json, as_markdown=markdown)


@app.command(help_epilogue="Example: dynotune demo")
def demo(*, output_dir: Annotated[Path | None, Parameter(name="--output_dir")] = None) -> None:
    """Fine-tune the embedded tiny model on embedded data and print what it learned. Needs no download.

    Parameters
    ----------
    output_dir
        The run folder. Default: a new one below `runs/`.
    """
    from dynotune.demo.run import run_demo

    run_demo(output_dir)


@app.command(help_epilogue="Example: dynotune env --json")
def env(*, as_json: _Json = False) -> None:
    """Show the machine, the packages, and which optional accelerators work here: each one is tried."""
    from dynotune.accelerators import Outcome
    from dynotune.environment import collect, show
    from dynotune.speedups.packages import keep_what_works

    sys.stderr.write("trying the accelerators that are installed, up to a minute ...\n")
    found = collect(try_accelerators=True)
    keep_what_works([Outcome(**one) for one in found["accelerators"]], "cuda" if found["gpus"] else "cpu")
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(found)


@app.command(
    name="config-schema",
    help_epilogue="Example: dynotune config-schema > dynotune.schema.json\n\n"
    "First line of sft.yaml: # yaml-language-server: $schema=dynotune.schema.json",
)
def config_schema(*, method: Literal["sft", "dpo"] = "sft") -> None:
    """Print a JSON Schema (2020-12) of the configuration, for editors.

    Parameters
    ----------
    method
        Of `dynotune sft` or of `dynotune dpo`.
    """
    from dynotune.config.whole import METHODS
    from dynotune.handbook.schema import json_schema

    sys.stdout.write(json.dumps(json_schema(METHODS[method]), indent=2) + "\n")


def _stdout_for_result(as_json: bool) -> AbstractContextManager[object]:
    """With `--json`, whatever else is printed goes to stderr."""
    return redirect_stdout(sys.stderr) if as_json else nullcontext()


def _later(name: str) -> None:
    def refuse(*rest: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
        raise ConfigError(f"`dynotune {name}` ({LATER[name]}) is not in this version ({__version__}).")

    app.command(refuse, name=name, show=False)


for _name in LATER:
    _later(_name)


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit code. Defects are raised."""
    WORDS.set(tuple(words))
    try:
        code = app(list(words), exit_on_error=False, print_error=False)
    except (DynotuneError, CycloptsError) as error:
        if os.environ.get("DYNOTUNE_TRACEBACK") == "1":
            traceback.print_exception(error)
        sys.stderr.write(f"error: {_for_terminal(_message(error))}\n")
        return USER_ERROR
    except Interrupted:
        return RESUMABLE  # it was said where the rest of the run is said
    except KeyboardInterrupt as interrupt:
        number = number_of(interrupt)
        who = "" if number == signal.SIGINT else f" by {signal.Signals(number).name}"
        sys.stderr.write(f"\ninterrupted{who}; {_for_terminal(str(interrupt) or 'nothing was saved')}\n")
        return 128 + number
    return code if isinstance(code, int) else DONE


def _message(error: Exception) -> str:
    text = str(error)
    if isinstance(error, UnknownOptionError):
        from dynotune.config.fates.launcher import launcher_fate

        fate = launcher_fate(error.token.keyword.lstrip("-").replace("-", "_") if error.token.keyword else "")
        if fate is not None:
            return f"flag {error.token.keyword} is refused: {fate.reason}. Instead: {fate.instead}."
    return text


def _for_terminal(text: str) -> str:
    """An error may repeat what stands in data, in a model or on the command line."""
    from dynotune.config.secrets import masked
    from dynotune.printable import printable

    return "\n".join(printable(line) for line in masked(text).split("\n"))


def main() -> NoReturn:
    """The entry point of `dynotune` and `python -m dynotune`."""
    guard()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks must not end a run.
            stream.reconfigure(errors="replace")
    try:
        with listening():
            code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; Python would complain once more when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = PIPE_CLOSED
    except Exception:
        sys.stderr.write("This is a defect of Dynotune. Please report it with the lines below and `dynotune env`.\n")
        raise
    if code == RESUMABLE or code in ENDED_BY_SIGNAL:
        ending = threading.Timer(END_SECONDS, os._exit, [code])
        ending.daemon = True
        ending.start()
    launcher = sys.modules.get("dynotune.parallel.launch")  # only there where it was wanted
    if launcher is not None and launcher.has_launched():
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
