"""Promise: settings in a class of a program's own that no line reads are found, and a class that is read whole is not."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

TRAIN = """import torch
{above}
class CFG:
    '''Of the run.'''
    model = "roberta-base"
    lr = 2e-5
    epochs = 3
    batch_size = 16
    {field} = 0.1


torch.manual_seed(1)
model = Net(CFG.model).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=CFG.lr, fused=True)
for epoch in range(CFG.epochs):
    for batch in loader(CFG.batch_size):
        loss = model(**batch).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
{below}
"""


@pytest.mark.parametrize(
    ("field", "below", "found"),
    [
        ("label_smoothing", "", 1),
        ("label_smoothing", "print(CFG.lr)", 1),
        ("label_smoothing", "print(CFG.label_smoothing)", 0),
        ("label_smoothing", "for name, value in vars(CFG).items(): use(name, value)", 0),
        ("label_smoothing", "smooth = getattr(CFG, 'label_smoothing')", 0),
    ],
)
def test_a_plain_class(tmp_path: Path, field: str, below: str, found: int) -> None:
    train = TRAIN.format(above="", field=field, below=below)
    assert len(audited(tmp_path / "a", {"train.py": train}, select=("CFG017",)).findings) == found


def test_a_class_that_does_more(tmp_path: Path) -> None:
    train = TRAIN.format(above="", field="label_smoothing", below="").replace(
        "    epochs = 3\n", "    epochs = 3\n    def total(self):\n        return self.epochs\n"
    )
    assert not audited(tmp_path / "a", {"train.py": train}, select=("CFG017",)).findings
