"""Promise: pins of several files are held against each other where one environment gets them all, and there alone."""

from pathlib import Path

import pytest

from tests.audit.made_up import audited

_SCRIPT = {"a.py": "import torch\n"}
_OLD, _NEW = "peft==0.17.1\n", "transformers==5.0.0\n"
R, G = "requirements.txt", "requirements-gen.txt"
_R, _G = f"pip install -r {R}\n", f"pip install -r {G}\n"
_PROJECT = '[project]\nname = "a"\ndependencies = ["transformers==5.0.0"]\n'
_WHEEL = "pip install https://a.org/flash_attn-2.7.4.post1+cu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({R: _NEW, "install.sh": f"{_R}pip install {_OLD}"}, True),
        ({R: _NEW, "Dockerfile": f"FROM a\nRUN pip install -r /tmp/requirements.txt\nRUN pip install {_OLD}"}, True),
        ({R: _NEW, "requirements-dev.txt": f"-r requirements.txt\n{_OLD}"}, True),
        ({"requirements/base.txt": _NEW, "requirements/gpu.txt": f"-c base.txt\n{_OLD}"}, True),
        ({"requirements/base.txt": _NEW, "requirements/gpu.txt": _OLD}, False),
        ({R: _NEW, G: _OLD, "Makefile": f"env:\n\tpip install -r {R} -r {G}\n"}, True),
        ({R: _NEW, G: _OLD, "Makefile": f"env:\n\t{_R}\ngen:\n\t{_G}"}, False),
        ({R: _NEW, G: _OLD, "setup.sh": f"a/bin/{_R}b/bin/{_G}"}, False),
        (
            {
                R: _NEW,
                G: _OLD,
                "setup.sh": f"python -m venv a\n. a/bin/activate\n{_R}python -m venv b\n. b/bin/activate\n{_G}",
            },
            False,
        ),
        ({R: _NEW, "setup.sh": f"if [ $1 = new ]; then\n  {_R}else\n  pip install {_OLD}fi\n"}, False),
        ({R: _NEW, "setup.sh": f"{_R}pip install transformers==4.50.0 {_OLD}"}, False),
        ({"pyproject.toml": _PROJECT, "setup.sh": f"pip install -e .\npip install {_OLD}"}, True),
        ({R: "torch==2.1.2\nnumpy>=2.0\n"}, True),
        ({R: "torch==2.1.2\nnumpy>=1.20\n"}, False),
        ({R: "datasets==2.14.4\nfsspec==2023.10.0\n"}, True),
        ({R: "datasets==2.14.6\nfsspec==2023.10.0\n"}, False),
        ({R: "vllm==0.6.3.post1\ntorch==2.5.1\n"}, True),
        ({R: "vllm==0.6.3.post1\ntorch==2.4.0+cu121\n"}, False),
        ({R: "transformers==4.37.2\naccelerate==0.20.3\n"}, True),
        ({R: "transformers==4.36.2\naccelerate==0.20.3\n"}, False),
        ({"environment.yml": "dependencies:\n  - python=3.12\n  - pip:\n      - torch==2.1.2\n"}, True),
        ({"environment.yml": "dependencies:\n  - python=3.11\n  - pip:\n      - torch==2.1.2\n"}, False),
        ({R: "torch==2.1.2\n", "Dockerfile": f"FROM python:3.12-slim\nCOPY . .\nRUN {_R}"}, True),
        ({R: "torch==2.6.0\n", "setup.sh": _R + _WHEEL}, True),
        ({R: "torch==2.5.1\n", "setup.sh": _R + _WHEEL}, False),
        ({R: "torch==2.4.0\nunsloth[cu121-torch230]\n"}, True),
        ({R: "torch==2.3.1\nunsloth[cu121-torch230]\n"}, False),
    ],
)
def test_what_one_environment_gets(tmp_path: Path, files: dict[str, str], found: bool) -> None:
    assert bool(audited(tmp_path, files | _SCRIPT, select=("ENV007",)).findings) is found
