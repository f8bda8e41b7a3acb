"""Promise: which scripts work together is told from their imports, and each script's imports are gone through once."""

import ast
from collections.abc import Iterable, Mapping, ValuesView

from dynotune.audit.facts.project import Project
from dynotune.audit.facts.script import Script
from dynotune.audit.facts.together import connected, imported, leads_out, together


class Counted(dict[str, str]):
    """Imports that count how often they are gone through."""

    asked = 0

    def values(self) -> ValuesView[str]:
        Counted.asked += 1
        return super().values()


def a_script(file: str, imports: Mapping[str, str]) -> Script:
    return Script(file, "", ast.parse(""), [], imports, {})


def names(scripts: Iterable[Script]) -> list[str]:
    return [one.file for one in scripts]


def test_programs() -> None:
    files = {"b/model.py": {}, "train.py": {"net": ".b.model.net", "rows": "data.rows"}, "data.py": {}, "other.py": {}}
    project = Project(".", scripts=[a_script(file, imports) for file, imports in files.items()])
    model, train, data, other = project.scripts
    assert names(imported(train, project)) == ["b/model.py", "data.py"]
    assert names(connected(data, project)) == ["data.py", "train.py", "b/model.py"]
    assert names(together(model, project)) == ["b/model.py", "train.py", "data.py"]
    assert names(connected(other, project)) == ["other.py"]
    assert not leads_out([train], project)
    assert leads_out([a_script("c.py", {"x": ".gone.x"})], project)


def test_look_ups_grow_with_scripts_and_not_with_their_pairs() -> None:
    def asked(count: int) -> int:
        scripts = [a_script(f"train_{i}.py", Counted(rows="data.rows")) for i in range(count)]
        project = Project(".", scripts=[a_script("data.py", {}), *scripts])
        Counted.asked = 0
        for _ in range(8):  # rules
            assert all(len(connected(one, project)) == 2 for one in scripts)
        return Counted.asked

    assert 0 < asked(80) <= 4 * 80


def test_modules_of_libraries_are_nobodys_files() -> None:
    """`from torch.utils.data import DataLoader` loads neither `utils.py` nor `data.py`. Control: the project's own are."""
    theirs, own = {"DataLoader": "torch.utils.data.DataLoader"}, {"rows": "lib.utils.rows"}
    for imports, loaded in ((theirs, []), (own, ["lib/utils.py"]), ({"rows": ".utils.rows"}, ["lib/utils.py"])):
        files = {"train.py": imports, "lib/utils.py": {}, "data.py": {}}
        project = Project(".", scripts=[a_script(file, imports) for file, imports in files.items()])
        assert names(imported(project.scripts[0], project)) == loaded
