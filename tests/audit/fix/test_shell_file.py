"""Promise: a change of a launcher changes that flag's words and no other character, or nothing."""

import pytest

from dynotune.audit.change import Change, Edit
from dynotune.audit.fix.shell_file import changed_shell
from dynotune.audit.fix.splice import NotAppliedError
from dynotune.audit.place import Place

TEXT = """\
#!/bin/bash
export A=1   # a comment
NCCL_DEBUG=INFO torchrun --nproc_per_node 8 train.py \\
    --optim adamw_torch \\
    --lr=1e-5 --bf16 \\
    --targets q_proj v_proj \\
    --name "é x" 2>&1 | tee log   # --optim stays
trl sft --config a.yaml
"""
FIRST, SECOND = Place("run.sh", 3, 1), Place("run.sh", 8, 1)


@pytest.mark.parametrize(
    ("edit", "place", "name", "value", "to", "old", "new"),
    [
        (Edit.SET, FIRST, "optim", "adamw_torch_fused", "", "--optim adamw_torch ", "--optim adamw_torch_fused "),
        (Edit.SET, FIRST, "lr", 2e-5, "", "--lr=1e-5", "--lr=2e-05"),
        (Edit.SET, FIRST, "bf16", True, "", "--bf16", "--bf16 True"),
        (Edit.SET, FIRST, "targets", ["a b", "c"], "", "q_proj v_proj", "'a b' c"),
        (Edit.SET, FIRST, "seed", 1, "", '"é x"', '"é x" \\\n    --seed 1'),
        (Edit.SET, SECOND, "seed", 1, "", "a.yaml", "a.yaml --seed 1"),
        (Edit.REMOVE, FIRST, "targets", None, "", "--targets q_proj v_proj \\\n    ", ""),
        (Edit.REMOVE, FIRST, "bf16", None, "", " --bf16", ""),
        (Edit.RENAME, FIRST, "nproc-per-node", None, "nproc", "--nproc_per_node", "--nproc"),
        (Edit.SET, Place("run.sh", 4, 5), "optim", "x", "", "--optim adamw_torch ", "--optim x "),
    ],
)
def test_only_this_flag_changes(
    edit: Edit, place: Place, name: str, value: object, to: str, old: str, new: str
) -> None:
    assert old in TEXT
    assert changed_shell(TEXT, Change(edit, place, name, value, to)) == TEXT.replace(old, new, 1)


@pytest.mark.parametrize(
    "change",
    [
        Change(Edit.REMOVE, SECOND, "optim"),
        Change(Edit.SET, Place("run.sh", 99), "optim", "x"),
        Change(Edit.SET, SECOND, "optim", {"a": 1}),
    ],
)
def test_where_it_cannot_be_done_nothing_is(change: Change) -> None:
    with pytest.raises(NotAppliedError):
        changed_shell(TEXT, change)


@pytest.mark.parametrize("edit", [Edit.SET, Edit.REMOVE])
@pytest.mark.parametrize(
    "given",
    [
        "--optim $OPT",
        "--optim ${OPT:-adamw_torch}",
        '--optim "${1:-adamw_torch}"',
        "--optim=$OPT",
        "--optim $(choose)",
        "--optim `choose`",
        "--optim adamw_torch $MORE",
        "--optim adamw_torch --optim sgd",
    ],
)
def test_what_is_decided_elsewhere_or_twice_stays(given: str, edit: Edit) -> None:
    with pytest.raises(NotAppliedError, match=r"plain value|last counts"):
        changed_shell(f"trl sft {given} --bf16 true\n", Change(edit, Place("run.sh", 1, 1), "optim", "x"))


@pytest.mark.parametrize("given", ["'adamw_torch'", '"adamw_torch"', 'adamw"_torch"'])
def test_quotes_do_not_make_it_anothers_to_decide(given: str) -> None:
    text = f"trl sft --optim {given} --more $MORE\n"
    after = changed_shell(text, Change(Edit.SET, Place("run.sh", 1, 1), "optim", "x"))
    assert after == "trl sft --optim x --more $MORE\n"
