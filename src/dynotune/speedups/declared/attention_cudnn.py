"""Packed attention by cuDNN."""

from dynotune.speedups.attention import AttentionBackend
from dynotune.speedups.contract import Context, No
from dynotune.speedups.registry import register


@register
class AttentionCudnn(AttentionBackend):
    name = "attention_cudnn"
    summary = "Attends within all documents of a micro-batch in one call of cuDNN, through nvidia-cudnn-frontend."
    backend = "cudnn"
    package = "cudnn-frontend"

    def trial(self, context: Context) -> No | None:
        no = super().trial(context)
        if no is None or not no.expected:
            return no
        return No(
            f"{no.reason}, and PyTorch's own way to cuDNN for rows of documents is not taken: its backward pass writes out"
            " of bounds (pytorch pull request 186142)",
            no.remedy,
            expected=True,
        )
