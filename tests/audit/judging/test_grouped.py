"""Promise: many findings of one cause in one file are one, which names all places; comments and baselines know each."""

from pathlib import Path

from dynotune.audit.judging.baseline import baseline_text, read_baseline
from dynotune.audit.run import Request, Result, audit
from dynotune.audit.show.as_json import as_json
from tests.audit.made_up import audited

TRL = "model_name_or_path: a/b\ndataset_name: x/y\n"
WORDS = [
    "apfel",
    "birne",
    "citrone",
    "dattel",
    "erdbeere",
    "feige",
    "granat",
    "himbeere",
    "ingwer",
    "kirsche",
    "limette",
    "nuss",
]
MANY = [f"zzz_{word}: 1" for word in WORDS]


def of(folder: Path, lines: list[str], **more: object) -> Result:
    folder.mkdir(exist_ok=True)
    (folder / "sft.yaml").write_text(TRL + "".join(f"{line}\n" for line in lines))
    return audit(Request(files=[folder / "sft.yaml"], select=("CFG001",), **more))  # type: ignore[arg-type]


def test_twelve_unknown_keys_are_one_finding_with_all_places(tmp_path: Path) -> None:
    result = of(tmp_path, MANY)
    (one,) = result.findings
    assert sorted(place.line for place in (one.place, *one.also)) == list(range(3, 15))
    assert "`zzz_birne`" in one.message
    assert "and 5 more" in one.message
    (row,) = as_json(result)["findings"]
    assert len(row["also"]) == 11
    assert len(one.evidence.facts["each"]) == one.evidence.facts["in all"] == 12


def test_a_few_stand_alone_and_so_does_what_has_a_remedy_of_its_own(tmp_path: Path) -> None:
    assert len(of(tmp_path / "few", MANY[:3]).findings) == 3
    found = of(tmp_path / "near", [*MANY, "lerning_rate: 1"]).findings
    assert len(found) == 2
    assert [one.place.key for one in found if one.remedy.changes] == ["lerning_rate"]


def test_other_files_and_other_commands_are_other_causes(tmp_path: Path) -> None:
    script = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr')\nprint(p.parse_args().lr)\n"
    flags = " ".join(f"--{word} 1" for word in WORDS[:5])
    result = audited(
        tmp_path,
        {"train.py": script, "run.sh": f"python train.py {flags}\npython train.py {flags}\n"},
        select=("CFG008",),
    )
    assert sorted((one.place.line, len(one.also)) for one in result.findings) == [(1, 4), (2, 4)]


def test_a_comment_takes_one_out_and_a_baseline_knows_each(tmp_path: Path) -> None:
    result = of(tmp_path, [f"{MANY[0]}  # dynotune: ignore[CFG001] read by a fork", *MANY[1:]])
    (one,) = result.findings
    assert len(one.also) == 10
    assert len(result.suppressed) == 1
    known = tmp_path / "known.json"
    text = baseline_text(result.single, result.project.texts, result.project.root, tmp_path)
    known.write_text(text)
    after = of(tmp_path, [*MANY, "zzz_mango: 1"], baseline=read_baseline(known))
    assert sorted(one.place.key for one in after.findings) == ["zzz_apfel", "zzz_mango"]
    assert len(after.known) == 11


def test_an_unknown_key_is_no_near_name_of_another(tmp_path: Path) -> None:
    found = of(tmp_path, ["zzz_apfel_1: 1", "zzz_apfel_2: 1"]).findings
    assert not any("Did you mean" in one.message for one in found)
