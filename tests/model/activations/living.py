"""Bytes of tensors that live at once, counted on the CPU as the allocator of a GPU would count them."""

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from dynotune.model.activations.host import PlainCopies


class Living(TorchDispatchMode):
    """Inside, every storage that operations make is counted until it is gone, but for those of `model`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.now = self.most = 0
        self._there: dict[int, weakref.ref[Any]] = {}
        self._own = {p.untyped_storage()._cdata for p in (*model.parameters(), *model.buffers())}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, Tensor):
                self._count(one.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()
        if address in self._there or address in self._own:
            return

        def gone(_: Any) -> None:
            del self._there[address]
            self.now -= size

        self._there[address] = weakref.ref(storage, gone)
        self.now += size
        self.most = max(self.most, self.now)


class HostCopies(PlainCopies):
    """What lies on the host counts nowhere."""

    def to_host(self, flat: Tensor) -> tuple[Tensor, None]:
        with _disable_current_modes():
            return super().to_host(flat)
