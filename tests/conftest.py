"""Fixtures that several folders of tests use."""

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import settings

# How long one example takes depends on who else uses the machine.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may depend on a network
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


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
