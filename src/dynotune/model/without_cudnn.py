"""Keeps PyTorch's attention from cuDNN."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_cudnn_attention() -> Iterator[None]:
    """Inside, `scaled_dot_product_attention` takes another backend. Holds for the whole process.

    From PyTorch 2.11 on cuDNN is its default on Hopper, and cuDNN's gradient of queries is not a number where a mask is
    given, the length is 64 more than a multiple of 128, and a row's scores are all below about -88 (pytorch issue 196678).
    transformers gives a mask for layers with a sliding window that the document outgrows, and for padded rows.

    Without a mask it is right, but it makes a plan for each length that it has not seen, forward and backward, while the
    device stands still: `benchmarks/gpu_attention_lengths.py` times that. Documents seldom have lengths that were there.
    """
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
