"""Fixtures that several folders of tests use."""

import os
import random
import shutil
import sys
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on who else uses the machine. The same examples each time: what is not wrong here is not
# wrong there. `pytest --hypothesis-profile explore` draws new ones.
settings.register_profile("explore", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("any machine", settings.get_profile("explore"), derandomize=True)
settings.load_profile("any machine")

# What a terminal or a CI asks of everything that prints is not asked of what tests read.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may depend on a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test, and what is made for it, draws the same numbers whichever tests ran before it in its process."""
    random.seed(0)
    for library, seed in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if library in sys.modules:
            attrgetter(seed)(sys.modules[library])(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data, tokenizers and a tiny pretrained model, where the machine has them."""
    place = os.environ.get("DYNOTUNE_SHARED")
    if not place or not Path(place).is_dir():
        pytest.skip("DYNOTUNE_SHARED does not name a folder with the shared test data")
    return Path(place).resolve()


@pytest.fixture(scope="session")
def stories(shared: Path) -> Path:
    """A real pretrained Llama of 260 thousand parameters with its tokenizer and chat template."""
    return shared / "tiny-lm" / "stories260K"


@pytest.fixture(scope="session", autouse=True)
def token_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test takes tokens from the user's cache or leaves some there."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DYNOTUNE_CACHE"] = str(folder)
    return folder / "tokens"


@pytest.fixture(autouse=True)
def no_memory_of_other_tests(token_cache: Path) -> None:
    """What one test makes fail must not be remembered of this machine in the next one."""
    shutil.rmtree(token_cache.parent / "machines", ignore_errors=True)
