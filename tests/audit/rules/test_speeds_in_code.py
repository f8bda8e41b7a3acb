"""Promise: a speed that a script prints, or a comment claims, is doubted only for what stands there."""

from pathlib import Path

import pytest

from tests.audit.rules.scripts import TIMED, said


@pytest.mark.parametrize(
    ("inside", "after", "found"),
    [
        ("print(seen / (time.time() - start))", "", True),
        ("pass", "took = time.time() - start\nprint(seen / took)", True),
        ("pass", "print(time.time() - start)", False),
        ("pass", "took = time.time() - start\nprint(took / 60)", False),
        ("if step == 5: start, seen = time.time(), 0", "print(seen / (time.time() - start))", False),
        ("if step < warmup_steps: continue", "print(seen / (time.time() - start))", False),
    ],
)
def test_the_warm_up_in_a_speed(tmp_path: Path, inside: str, after: str, found: bool) -> None:
    assert bool(said("MSR004", tmp_path, TIMED.format(inside=inside, after=after))) is found


def test_a_clock_around_the_whole_loop(tmp_path: Path) -> None:
    after = "{}took = time.time() - start\nprint(seen / took)"
    assert said("MSR002", tmp_path / "a", TIMED.format(inside="pass", after=after.format("")))
    for number, waits in enumerate(("torch.cuda.synchronize()\n", "print(loss.item())\n")):
        assert not said("MSR002", tmp_path / str(number), TIMED.format(inside="pass", after=after.format(waits)))


@pytest.mark.parametrize(
    ("comment", "found"),
    [
        ("BATCH = 1  # faster: 4.2 it/s, was 1.3 it/s at 4", True),
        ("BATCH = 1  # 9,100 tokens/s, faster than 4", False),
        ("BATCH = 1  # 4.2 it/s on this machine", False),
        ("LR = 1  # faster: 4.2 it/s", False),
    ],
)
def test_steps_a_second(tmp_path: Path, comment: str, found: bool) -> None:
    assert bool(said("MSR005", tmp_path, f"import torch\n\n\n\n{comment}\n")) is found


def test_the_arguments_of_a_parser_of_dataclasses_are_the_commands(tmp_path: Path) -> None:
    """Flags are joined with what the script loads by itself."""
    text = """
from transformers import AutoModelForCausalLM, HfArgumentParser
from trl import SFTConfig, SFTTrainer
(args,) = HfArgumentParser(SFTConfig).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-7B")
SFTTrainer(model, args=args, train_dataset=rows, tokenizer=tokenizer).train()
"""
    run = "accelerate launch --num_processes 2 train.py --output_dir out --optim adamw_torch{}\n"
    (found,) = said("PRC008", tmp_path / "a", text, run__sh=run.format(" --fp16 true --bf16 false"))
    assert found.place.file == "run.sh"
    assert not said("PRC008", tmp_path / "b", text, run__sh=run.format(""))
    assert said("OPT001", tmp_path / "c", text, run__sh=run.format(""))
