"""The script has just imported PyTorch: its optimizers get a hook, which waits for a first step. Loads nothing heavy."""

import atexit
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynotune.profile.foreign.protocol import VARIABLE, Asked, read_options, tell

if TYPE_CHECKING:
    from dynotune.profile.foreign.inside.watch import Watch


def begin() -> None:
    """From here on every optimizer of this process is seen. Raises what a missing or broken folder does."""
    from torch.optim import optimizer

    folder = Path(os.environ[VARIABLE])
    first = FirstStep(folder, read_options(folder))
    optimizer.register_optimizer_step_pre_hook(first.before_update)
    optimizer.register_optimizer_step_post_hook(first.after_update)
    atexit.register(first.script_ends)


class FirstStep:
    """Waits for an optimizer's first step, and hands everything to a `Watch` then.

    Workers of loaders and pools, launchers and tokenisers import PyTorch too; they never get further than this.
    """

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.folder, self.asked, self.pid = folder, asked, os.getpid()
        self.watch: Watch | None = None
        self.failed = False

    def before_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.watch is not None and not self.failed and self._is_ours():
            self._guarded("before_update", optimizer)

    def after_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.failed and self._is_ours():
            self._guarded("after_update", optimizer)

    def script_ends(self) -> None:
        if self.watch is not None and not self.failed and self._is_ours():
            self._guarded("script_ends")

    def _is_ours(self) -> bool:
        return os.getpid() == self.pid  # a forked child has this object too

    def _guarded(self, what: str, *args: Any) -> None:
        """The script goes on as it would without us, whatever we did wrong."""
        try:
            if self.watch is None:
                from dynotune.profile.foreign.inside.watch import Watch

                tell(self.folder, "step")
                self.watch = Watch(self.folder, self.asked, self.fail)
            getattr(self.watch, what)(*args)
        except Exception as error:  # noqa: BLE001  (a guest in the script's process)
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Nothing is watched from here on."""
        self.failed = True
        tell(self.folder, "failed", why=_in_words(error))
        if self.watch is not None:
            self.watch.leave()


def _in_words(error: Exception) -> str:
    """With the place in our own files, by which it can be mended."""
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"
