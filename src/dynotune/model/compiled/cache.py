"""Where the compiler keeps its results between runs: in Dynotune's cache folder, unless the user named a place."""

import os

from dynotune.cache_folder import cache_folder

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


class CompileCache:
    """While it stands, PyTorch's compiler (graphs, autograd's traces, Triton's binaries) reads and writes `folder`.

    PyTorch's own default lies in the temporary folder, which is gone with the container or the reboot.
    """

    def __init__(self) -> None:
        from torch._inductor.runtime.cache_dir_utils import default_cache_dir

        self.note: str | None = None
        """What is to be said of it; None where nothing is."""

        self._before = os.environ.get(VARIABLE)
        # PyTorch writes its default into the variable when it first compiles: that is nobody's wish.
        self.is_users = self._before is not None and self._before != default_cache_dir()
        self._ours: str | None = None
        if self.is_users:
            self.folder = str(self._before)
            return
        folder = cache_folder() / "compiled"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            writable = os.access(folder, os.W_OK | os.X_OK)
        except OSError:
            writable = False
        if not writable:
            self.folder = self._before or default_cache_dir()
            self.note = f"note: {folder} cannot be written: compiled layers are kept in {self.folder}"
            return
        self.folder = self._ours = os.environ[VARIABLE] = str(folder)

    def close(self) -> None:
        """The variable as it was. Twice is once."""
        if self._ours is not None and os.environ.get(VARIABLE) == self._ours:
            if self._before is None:
                del os.environ[VARIABLE]
            else:
                os.environ[VARIABLE] = self._before
        self._ours = None
