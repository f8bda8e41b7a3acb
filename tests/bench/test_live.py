"""Promise: a bench measures the training loop itself, both arms of a pair on the same documents, and leaves nothing behind
but its result; what did not engage, or makes other updates, is named and has no speed."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dynotune.bench.asking.arms import Arm
from dynotune.bench.asking.asked import Asked
from dynotune.bench.command import Options, _asked, bench
from dynotune.bench.keep import keep
from dynotune.bench.running.cast import Cast, thread_settings
from dynotune.bench.showing.markdown import markdown
from dynotune.bench.showing.terminal import screen
from dynotune.bench.workers.hand import ArmFailedError, Hand
from dynotune.config.sft import SFTConfig
from dynotune.errors import ConfigError
from dynotune.results.result import Parity, Result, Tier, Verdict
from tests.bench.plant import LATE, OUT_OF_MEMORY, plant
from tests.tiny import chats, tiny_model, tiny_tokenizer


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SFTConfig:
    """A tiny model and rows in files, for processes that load them; the current folder is empty."""
    model = tmp_path / "model"
    tiny_model().save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in chats(400)))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("DYNOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return SFTConfig(
        model_name_or_path=str(model),
        dataset_name=str(rows),
        per_device_train_batch_size=4,
        logging_steps=1,
        use_cpu=True,
        report_to="none",
        seed=3,
    )


def run(config: SFTConfig, **more: object) -> tuple[Result, Path]:
    options = {"pairs": 2, "most_pairs": 2, "steps": 2, "parity": "off", **more}
    return bench(Options(config, "base", **options), Console(quiet=True))  # type: ignore[arg-type]


@pytest.mark.long
def test_two_arms_cross_one_process(config: SFTConfig, tmp_path: Path) -> None:
    result, folder = run(config, changes=["speedups.packed_execution=off"])
    base, plain = result.arms
    assert result.tier is Tier.SWITCH
    assert plain.settings == {"speedups.packed_execution": "off"}
    for pair in (0, 1):
        mine, theirs = (next(b for b in arm.counted if b.pair == pair) for arm in result.arms)
        assert mine.first_step == theirs.first_step > base.warm_up.steps  # type: ignore[union-attr]
        assert mine.examples == theirs.examples == 8
        assert mine.tokens == theirs.tokens == theirs.real_tokens
        assert mine.real_tokens == theirs.real_tokens - mine.documents  # last tokens, which packed SFT does not compute
        assert mine.label_tokens == theirs.label_tokens
    assert len({b.first_step for b in base.counted}) == 2
    rounds = [result.schedule[:2], result.schedule[-2:]]
    assert rounds[0] == rounds[1][::-1], "every second round is the one before turned round"
    assert plain.fill == 1.0 > base.fill  # type: ignore[operator]
    assert {one.name for one in base.engaged} >= {"packed_execution", "labelled_rows_head"}
    assert {one.state for one in base.engaged} == {"engaged"}
    assert all(block.loss is not None for block in base.counted)
    assert result.gpu_seconds > 0
    assert "was not checked" in " ".join(result.notes)
    result, files = keep(result, folder)
    assert Result.read(folder / "bench.json") == result
    assert all(Path(file).is_file() for file in files)
    assert sorted([path.name for path in Path.cwd().iterdir()]) == ["benches"], (
        "a bench leaves no run, no checkpoint and no tracker's files"
    )
    assert not [path for path in folder.rglob("*") if path.name == "checkpoints"]


@pytest.mark.long
def test_a_change_that_does_not_run_here_has_no_speed(config: SFTConfig) -> None:
    result, _ = run(config, changes=["speedups.attention_fa3=auto"])
    (comparison,) = result.comparisons
    assert comparison.verdict is Verdict.NOT_COMPARABLE
    assert "attention_fa3 was left out" in comparison.why
    assert comparison.ratio is None
    assert not comparison.log_ratios


@pytest.mark.long
def test_a_collapse_of_the_step_count_is_named(config: SFTConfig) -> None:
    result, _ = run(config.replace(max_length=128), changes=["packing=true"])
    assert result.tier is Tier.RESIDENT
    said = " ".join(result.differences)
    assert "times fewer updates an epoch than base" in said
    assert "behavioural" in said
    assert "made of other rows" in said


@pytest.mark.long
def test_an_arm_that_fails_is_a_row_of_a_sweep(config: SFTConfig) -> None:
    result, _ = run(config, sweep="attn_implementation=sdpa,flash_attention_2,eager")
    broken = result.arm("attn_implementation: flash_attention_2")
    assert broken.failed
    assert not broken.blocks
    assert result.arm("attn_implementation: eager").counted
    verdicts = {one.arm: one.verdict for one in result.comparisons}
    assert verdicts[broken.name] is Verdict.NOT_COMPARABLE


@pytest.mark.long
def test_out_of_memory_is_a_row_of_a_sweep_wherever_it_comes(
    config: SFTConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two arms, the first, whose steps do not fit; a run would have gone on in smaller micro-batches."""
    plant(OUT_OF_MEMORY.format(tokens=512), tmp_path / "planted", monkeypatch)
    large = config.replace(per_device_train_batch_size=40, max_length=100)
    result, folder = run(large, sweep="micro_batch_tokens=1024,512,256")
    broken, first, second = result.arm("micro_batch_tokens: 1024"), *result.arms[:2]
    assert (broken.failed or "").startswith("out of memory in forward at step 1, micro-batch 1 of")
    assert not broken.blocks
    assert [first.settings, second.settings] == [{}, {"micro_batch_tokens": 256}]
    assert {one.arm: one.against for one in result.comparisons} == dict.fromkeys((second.name, broken.name), first.name)
    assert "of 2 arms that could be measured" in result.sentence
    assert "; 1 ran out of memory" in result.sentence  # whether the others are told apart, the host decides
    result, _ = keep(result, folder)
    assert Result.read(folder / "bench.json").arm(broken.name).failed == broken.failed
    screen_ = "\n".join(line.plain for line in screen(result, 80))
    for text in (screen_, markdown(result), (folder / "bench.html").read_text()):
        assert "out of memory" in text


@pytest.mark.long
def test_updates_that_differ_hide_the_speed(config: SFTConfig) -> None:
    """The control beside it: an exact change is shown with its ratio."""
    result, _ = run(config, changes=["learning_rate=1e-3"], parity="gate")
    assert result.parity[0].state == "behavioural"
    result, _ = run(config, changes=["speedups.packed_execution=off"], parity="gate")
    assert result.parity[0].state == "same"
    assert result.comparisons[0].ratio is not None


@pytest.mark.long
def test_a_larger_batch_is_measured_over_the_same_examples(config: SFTConfig) -> None:
    result, _ = run(config, changes=["per_device_train_batch_size=8"])
    for pair in (0, 1):
        mine, theirs = (next(b for b in arm.counted if b.pair == pair) for arm in result.arms)
        assert mine.examples == theirs.examples
        assert mine.real_tokens == theirs.real_tokens
        assert mine.steps == 2 * theirs.steps
    assert "2.0 times fewer updates" in " ".join(result.differences)


@pytest.mark.long
def test_the_speed_ups_of_a_run_are_its_ladder(config: SFTConfig) -> None:
    result, _ = run(config, ladder=True)
    assert result.arms[0].name == "plain path"
    steps = [one.label for one in result.comparisons if one.role == "step"]
    assert steps.index("packed_execution") < steps.index("labelled_rows_head")
    assert [one.state for one in result.arms[0].engaged] == []


@pytest.mark.long
@pytest.mark.parametrize("how", [{"ladder": True}, {"attribute_only": "alone"}, {"attribute_only": "last"}], ids=str)
def test_a_base_has_what_it_is_asked_to_have(config: SFTConfig, how: dict[str, Any], tmp_path: Path) -> None:
    """And that is no change. Controls: without `--on_top_of` it is; what the run does not take, and what it needs."""
    options = Options(config, "base", on_top_of=["packed_execution", "packed_execution"], **how)

    def asked_of(**more: Any) -> Asked:
        work = tmp_path / str(len([*tmp_path.iterdir()]))
        work.mkdir()
        return _asked(replace(options, **more), tmp_path / "out", work, lambda line: None)

    asked = asked_of()
    labels = {one.label for one in asked.pairings} - {"all"}
    assert "packed_execution" not in labels
    assert labels
    for arm in asked.arms:
        assert arm.config.speedups["packed_execution"] == "auto"
    if how != {"attribute_only": "last"}:
        assert asked.arms[0].name == "plain path + packed_execution"
        assert all(
            value == "off" for name, value in asked.arms[0].config.speedups.items() if name != "packed_execution"
        )
    plain = asked_of(on_top_of=None)
    assert "packed_execution" in {one.label for one in plain.pairings}
    for names, said in (
        ([*labels, "packed_execution"], "takes no other speed-up here"),
        (["attention_fa3"], "not take it"),
    ):
        with pytest.raises(ConfigError, match=said):
            asked_of(on_top_of=names)


@pytest.mark.long
def test_the_half_without_a_base_has_its_updates_compared(config: SFTConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each arm that leaves a change out, against what it is measured against. Control: where a change is looked at alone,
    its figure as the last one needs no look of its own."""
    checked: list[tuple[str, str]] = []

    def check(first: Arm, other: Arm, *_: Any, **__: Any) -> Parity:
        checked.append((first.name, other.name))
        return Parity(arm=other.name, against=first.name, kind="exact", state="same")

    monkeypatch.setattr("dynotune.bench.parity.gate.check", check)
    changes = ["speedups.prefetch=off", "speedups.fused_optimizer=off"]
    both: dict[str, Any] = {"attribute": True, "changes": changes}
    for how, pairs in (({"attribute_only": "last", "changes": changes}, 2), (both, 3)):
        checked.clear()
        run(config, parity="gate", memory=False, pairs=2, most_pairs=2, **how)
        assert len(checked) == pairs, checked


@pytest.mark.long
def test_of_several_ranks_the_slowest_counts(
    config: SFTConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one's clock says a thousand seconds more; nothing of these tests takes as long."""
    plant(LATE.format(rank="1", seconds=1000), tmp_path / "planted", monkeypatch)
    result, _ = run(config.replace(gpus=2), changes=["speedups.prefetch=off"])
    blocks = [block for arm in result.arms for block in arm.counted]
    assert {block.examples for block in blocks} == {16}, "a step is of all ranks"
    assert min(block.seconds for block in blocks) > 1000 > max(sum(block.step_seconds) for block in blocks)
    assert {result.devices, *(arm.devices for arm in result.arms)} == {2}


@pytest.mark.long
def test_a_process_ends_with_whoever_started_it(config: SFTConfig, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    arm = Arm("base", config)
    hand = Hand(arm, folder, 0, thread_settings())
    process = hand.process
    hand._orders.close()
    hand._answers.close()
    hand._speaking.close()
    deadline = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert process.poll() is not None
    hand.close()


@pytest.mark.long
def test_a_process_that_dies_is_told_of_with_what_it_printed(config: SFTConfig, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    broken = Arm("broken", config.replace(model_name_or_path=str(tmp_path / "nowhere")))
    with (
        Hand(broken, folder, 0, thread_settings()) as hand,
        pytest.raises(ArmFailedError, match="nowhere") as told,
    ):
        hand.stand(broken)
    assert told.value.kind == "user"
    assert "nowhere" in (folder / "worker-0.log").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "nothing to compare"),
        ({"changes": ["nonsense=1"]}, "there is no key `nonsense`"),
        ({"changes": ["seed"]}, "write `key=value`"),
        ({"changes": ["speedups.nothing=off"]}, "there is no speed-up"),
        ({"changes": ["speedups.prefetch=maybe"]}, "`auto`, `on` or `off`"),
        ({"sweep": "seed"}, "write `key=v1,v2`"),
        ({"sweep": "seed=1,2", "changes": ["seed=3"]}, "both given"),
        ({"sweep": "seed=1,2", "ladder": True}, "Give one of"),
        ({"versus": ("b", SFTConfig()), "ladder": True, "attribute": True}, "Only `--attribute` goes with `--ladder`"),
        ({"attribute_only": "last", "ladder": True}, "leave `--ladder` out"),
        ({"attribute_only": "last", "sweep": "seed=1,2"}, "Give one of"),
        ({"attribute_only": "last", "attribute": True}, "leave one of them out"),
        ({"ladder": True, "on_top_of": []}, "names no speed-up"),
        ({"ladder": True, "on_top_of": ["nothing"]}, "there is no speed-up `nothing`"),
        (
            {"ladder": True, "on_top_of": ["eight_bit_optimizer"]},
            "`--on_top_of eight_bit_optimizer`: it is no switch, since .* it follows `optim: adamw_torch_fused`",
        ),
        ({"ladder": True, "on_top_of": ["prefetch"], "changes": ["seed=3"]}, "without `--set`"),
        ({"on_top_of": ["prefetch"], "changes": ["seed=3"]}, "it goes with `--ladder`"),
        ({"changes": ["seed=3"], "expect": "speed"}, "does not understand"),
        ({"changes": ["seed=3"], "pairs": 1}, "at least 2"),
        ({"changes": ["seed=3"], "pairs": 0}, "at least 2"),
        ({"changes": ["seed=3"], "steps": 0}, "measures nothing"),
        ({"changes": ["seed=3"], "budget": math.nan}, "A budget of nan"),
        ({"ladder": True, "budget": math.inf}, "A budget of inf"),
        ({"ladder": True, "resolution": math.nan}, "A resolution of nan"),
        ({"ladder": True, "steps": 0}, "measures nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_runs(
    config: SFTConfig, options: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hand, "__init__", lambda *words: pytest.fail("a process began"))
    with pytest.raises(ConfigError, match=said):
        run(config, **options)
    assert not [path.name for path in Path.cwd().iterdir()]


@pytest.mark.long
def test_more_than_a_change_can_gain_is_suspect(config: SFTConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the arms' blocks are told to have taken a second and a fiftieth of one for each step, whatever a busy host
    made of them. The control is the same bench, in which both are told to have taken a second.
    """
    changes, times = {"changes": ["speedups.fused_optimizer=off"]}, 1
    take = Cast.block

    def told(self: Cast, name: str, first: int, steps: int) -> dict[str, object]:
        taken = take(self, name, first, steps)
        return {**taken, "seconds": steps if name == "base" else steps / times}

    monkeypatch.setattr(Cast, "block", told)
    (fair,) = run(config, **changes)[0].comparisons
    assert fair.share is not None
    assert 0 < fair.share < 1
    assert fair.ceiling == pytest.approx(1 / (1 - fair.share))
    assert fair.verdict is not Verdict.SUSPECT
    times = 50
    (planted,) = run(config, **changes)[0].comparisons
    assert planted.verdict is Verdict.SUSPECT
    assert "the most that its share of the step allows" in planted.why


@pytest.mark.long
def test_another_plan_has_no_ceiling(config: SFTConfig) -> None:
    (found,) = run(config, changes=["speedups.packed_execution=off"])[0].comparisons
    assert found.ceiling is None
    assert found.no_ceiling
