"""The README's tables of peers are what the committed results say, and what does not belong together is not compared."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.pages import ROOT, replaced
from benchmarks.peers.measured import all_measured
from benchmarks.peers.published import EARLIER, QUOTES
from benchmarks.peers.rows import ROWS
from benchmarks.peers.table import BEGIN, END, block, main

from dynotune.errors import DataError

RESULTS = ROOT / "benchmarks" / "results"


def arm(rate: float, **more: Any) -> dict[str, Any]:
    figures = {"ms_per_step": 1e3, "real_tokens_per_second": rate, "peak_gib": 10.0, "tokens": [100, 90], **more}
    return {
        "result": figures,
        "provenance": {"commit": "c", "hardware": "H", "host": "h", "versions": {"trl": "1"}},
        "settings": {"dry": False},
    }


def put(folder: Path, row: str, arms: dict[str, Any]) -> None:
    (folder / f"peers-{row}.json").write_text(json.dumps({"row": row, "arms": arms}))


def test_the_readme_is_what_the_results_say(tmp_path: Path) -> None:
    assert main(["--check"]) == 0
    page = tmp_path / "README.md"
    page.write_text(re.sub(r"\| \d\.\d\dx \|", "| 9.99x |", (ROOT / "README.md").read_text(), count=1))
    assert main(["--check", "--page", str(page)]) == 1  # negative control: a figure by hand is found
    assert main(["--page", str(page)]) == 0
    assert page.read_text() == (ROOT / "README.md").read_text()


def test_the_older_result_keeps_its_figures_and_its_source() -> None:
    pairs = next(one for one in all_measured(RESULTS) if one.row == "dpo-mix")
    file = json.loads((RESULTS / "h200_beside_trl_dpo_mix.json").read_text())
    assert pairs.provenance["commit"] == file["commit"]
    assert pairs.provenance["command"] == file["command"]
    ours = file["works"]["preference-mix"]["arms"]["dynotune"]
    assert next(iter(pairs.whole(ours=True).values())) == ours


def test_ours_stands_beside_the_fastest_peer_and_the_extremes_are_said(tmp_path: Path) -> None:
    slow, fast = {"trl default": arm(50.0)}, {"trl tuned: fa2": arm(80.0), "unsloth": arm(100.0)}
    put(tmp_path, "16-documents", {"dynotune": arm(150.0), **slow, **fast})
    put(tmp_path, "2-documents", {"dynotune": arm(90.0), "trl default": arm(100.0)})
    text = block(all_measured(tmp_path))
    assert "Unsloth: 1,000 ms, 100 tok/s, 10 GiB | 1.50x |" in text
    assert "Least: 0.90x (2 documents). Most: 1.50x (16 documents)." in text
    assert "As a run comes" not in text
    assert "DPO" not in text  # what was not measured is not listed
    assert "Published, not measured here" in text


def test_a_run_as_it_comes_that_is_behind_our_best_setting_is_said(tmp_path: Path) -> None:
    """What one has to ask for hides nothing. Control above: nothing is said where they are the same."""
    replayed = "dynotune, with `speedups: {step_graphs: on}`"
    put(tmp_path, "16-documents", {"dynotune": arm(90.0), replayed: arm(150.0), "trl default": arm(100.0)})
    told = " ".join(block(all_measured(tmp_path)).split())
    assert "Least: 1.50x (16 documents). Most: 1.50x (16 documents)." in told
    assert "As a run comes, without what a line names: least 0.90x (16 documents)." in told


def test_the_column_of_peers_is_headed_for_whom_was_measured(tmp_path: Path) -> None:
    """Where nobody but TRL was, its best is no fastest of all peers. Control: another one beside it."""
    put(tmp_path, "16-documents", {"dynotune": arm(150.0), "trl default": arm(50.0)})
    assert "| Dynotune | TRL's best that we found |" in block(all_measured(tmp_path))
    put(tmp_path, "2-documents", {"dynotune": arm(150.0), "unsloth": arm(50.0)})
    assert "| Dynotune | faster of TRL and Unsloth |" in block(all_measured(tmp_path))
    assert "fastest peer" not in (ROOT / "README.md").read_text()


def test_what_others_took_in_another_run_is_quoted_and_no_ratio_is_made_of_it(tmp_path: Path) -> None:
    """The row that a peer once did faster says so. Control: where it is not listed, nothing is said of it."""
    put(tmp_path, "16-documents", {"dynotune": arm(150.0), "trl default": arm(50.0)})
    told = " ".join(block(all_measured(tmp_path)).split())
    assert "155 ms" not in told
    for one in EARLIER:
        assert f"{one.work}: {one.ms:,} ms, {one.tokens:,} tok/s" in told or one.row
    assert "no ratio is made of it" in told
    put(tmp_path, "2-documents", {"dynotune": arm(90.0), "trl default": arm(100.0)})
    told = block(all_measured(tmp_path))
    [row] = [line for line in told.splitlines() if line.startswith("| 2 documents")]
    assert "(155 ms with fa2 without Liger in another run, below)" in row
    assert "2 documents, TRL, fa2 without Liger: 155 ms, 1,627 tok/s" in " ".join(told.split())


def test_what_took_longer_in_another_run_is_not_shown_in_the_row(tmp_path: Path) -> None:
    """It stands below alone. Control: 155 ms were less than a step that is a millisecond longer."""
    for ms, shown in ((155.0, False), (100.0, False), (156.0, True)):
        put(tmp_path, "2-documents", {"dynotune": arm(90.0), "trl default": arm(100.0, ms_per_step=ms)})
        told = block(all_measured(tmp_path))
        [row] = [line for line in told.splitlines() if line.startswith("| 2 documents")]
        assert ("in another run, below" in row) == shown
        assert "2 documents, TRL, fa2 without Liger: 155 ms, 1,627 tok/s" in " ".join(told.split())


def test_quotes_are_those_of_the_baseline(shared: Path) -> None:
    """Rows of its table, as `| who | setting | ms | tok/s |` has them."""
    baseline = shared / "reference" / "h200-baseline.md"
    if not baseline.is_file():
        pytest.skip("the baseline is not here")
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in baseline.read_text().splitlines()]
    for one in EARLIER:
        assert [f"{one.ms:,}", f"{one.tokens:,}"] in [row[2:4] for row in rows if row and row[0].startswith(one.who)], (
            one
        )
    for quote in QUOTES:
        assert any(row[3].split()[0] == f"{quote.tokens:,}" for row in rows if len(row) > 3 and row[3]), quote


def test_what_an_arm_does_otherwise_is_said(tmp_path: Path) -> None:
    low = "trl tuned: fa2 + Liger, bfloat16 weights"
    put(tmp_path, "0.5b-full", {"dynotune": arm(1.0), "trl default": arm(1.0), low: arm(2.0)})
    [one] = all_measured(tmp_path)
    assert ROWS["0.5b-full"].arms[low].note in " ".join(block([one]).split())
    assert "0.50x" in block([one])


def test_a_failed_arm_is_no_figure_and_memory_is_said(tmp_path: Path) -> None:
    gone = arm(1.0)
    gone["result"] = {"failed": "torch.OutOfMemoryError: CUDA out of memory."}
    put(tmp_path, "packed-8k", {"dynotune": arm(2.0), "trl default": gone, "trl tuned: fa2 + Liger": arm(1.0)})
    text = block(all_measured(tmp_path))
    assert "out of memory: TRL default." in text
    assert "2.00x" in text
    put(tmp_path, "packed-8k", {"dynotune": arm(2.0), "trl default": gone})
    assert all_measured(tmp_path) == []  # alone ours is no comparison


@pytest.mark.parametrize("key", ["commit", "hardware", "host", "versions"])
def test_arms_of_two_runs_are_not_compared(tmp_path: Path, key: str) -> None:
    other = arm(1.0)
    other["provenance"][key] = "another"
    put(tmp_path, "packed-8k", {"dynotune": arm(2.0), "trl default": other})
    with pytest.raises(DataError, match=f"another {key}"):
        all_measured(tmp_path)


def test_other_tokens_are_not_compared(tmp_path: Path) -> None:
    put(tmp_path, "packed-8k", {"dynotune": arm(2.0), "trl default": arm(1.0, tokens=[100, 91])})
    with pytest.raises(DataError, match="same tokens"):
        all_measured(tmp_path)


def test_a_rehearsal_is_no_result(tmp_path: Path) -> None:
    rehearsed = arm(1.0) | {"settings": {"dry": True}}
    put(tmp_path, "packed-8k", {"dynotune": arm(2.0), "trl default": rehearsed})
    with pytest.raises(DataError, match="rehearsal"):
        all_measured(tmp_path)


def test_a_page_without_its_marks_is_refused() -> None:
    assert replaced(f"a\n{BEGIN}\nold\n{END}\nb", "new", BEGIN, END) == f"a\n{BEGIN}\n\nnew\n\n{END}\nb"
    for page in ("", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"):
        with pytest.raises(DataError, match="once each"):
            replaced(page, "new", BEGIN, END)


def test_every_row_fits_a_short_call() -> None:
    from benchmarks.peers.rows import CALL_SECONDS, who

    for name, row in ROWS.items():
        assert row.seconds < CALL_SECONDS, name
        assert {who(one) for one in row.arms} >= {"dynotune", "trl"}, name


def test_losses_agree_as_the_readme_says() -> None:
    """In nats, in every window, between all of our arms and TRL's: each kind of row by its own figure."""
    gaps: dict[str, list[float]] = {"full": [], "without masters": [], "words": [], "text": []}
    for one in all_measured(RESULTS):
        row = ROWS[one.row]
        if row.pairs:
            continue  # a new adapter's pairs scatter around ln 2 by bfloat16's rounding
        for name, theirs in one.whole(ours=False).items():
            low = (known := row.arms.get(name)) is not None and bool(known.note)
            kind = "without masters" if low else "text" if one.row == "sft-mix" else "words" if row.lora else "full"
            for ours in one.whole(ours=True).values():
                found = [b - a for a, b in zip(ours["losses"], theirs["losses"], strict=True)]
                gaps[kind] += found if kind == "text" else [max(map(abs, found))]
    page = " ".join((ROOT / "README.md").read_text().split())
    assert max(gaps["full"]) <= 1e-4
    assert "within 0.0001 nats in full training with float32 weights" in page
    assert f"learns less: {min(gaps['without masters']):.2f} to {max(gaps['without masters']):.2f} nats" in page
    assert f"within {max(gaps['words']):.4f} nats under LoRA on random words" in page
    *first, last = (f"{gap:.3f}" for gap in gaps["text"])
    assert f"ours are {', '.join(first)} and {last} nats lower" in page


def test_the_readme_begins_with_the_tables_own_range() -> None:
    head, _, below = (ROOT / "README.md").read_text().partition("<!-- peers: begin")
    sft, _, dpo = below.partition("| DPO, a step holds |")
    ranges = {
        method: (float(min(found, key=float)), float(max(found, key=float)))
        for method, found in (
            ("SFT", re.findall(r"([\d.]+)x \|$", sft, re.M)),
            ("DPO", re.findall(r"([\d.]+)x \|$", dpo, re.M)),
        )
    }
    said = re.search(
        r"([\d.]+) to ([\d.]+) times the real tokens a second in\s+SFT, ([\d.]+) to ([\d.]+) times the pairs", head
    )
    assert said is not None
    assert tuple(map(float, said.groups()[:2])) == ranges["SFT"]
    assert tuple(map(float, said.groups()[2:])) == tuple(round(ratio, 1) for ratio in ranges["DPO"])
