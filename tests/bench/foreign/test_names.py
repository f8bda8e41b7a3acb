"""Promise: an arm that is a command has a name by which it is told from the others."""

import pytest

from dynotune.bench.foreign.command import NAME, names_of

SCRIPT = 'sleep 0.3; echo "{\\"tokens\\": 1000, \\"seconds\\": 0.25}"'


def shell(script: str, *flags: str, program: str = "sh") -> tuple[str, ...]:
    return (program, *(flags or ("-c",)), script)


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        ([shell(SCRIPT), shell(SCRIPT.replace("1000", "1310"))], ["A: 1000", "B: 1310"]),
        ([shell(f"cd {x} && python train.py --epochs 3", "-lc", program="/bin/bash") for x in "ab"], ["A: a", "B: b"]),
        ([("python", "a.py"), ("python", "b.py")], ["python a.py", "python b.py"]),
        ([shell("python a.py"), shell("python b.py")], ["sh -c 'python a.py'", "sh -c 'python b.py'"]),
        ([("python", "a.py", "--a_long_name_of_a_flag", str(i)) for i in (1, 2)], ["A: 1", "B: 2"]),
        ([shell(SCRIPT), shell(SCRIPT)], ["A", "B"]),
    ],
)
def test_it_is_what_differs(commands: list[tuple[str, ...]], names: list[str]) -> None:
    """Also within the script of a shell, of which the beginning is the same in both: `A: 'sleep 0.3; echo "{\\"toke`."""
    assert names_of(commands) == names
    assert all(len(name) <= NAME for name in names)
