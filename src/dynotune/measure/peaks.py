"""What a device could do at most: dense bf16 matrix products, by the exact name that PyTorch gives it.

A device that is not in the table has no peak, and a run on it no MFU: a guess flatters or slanders by factors (an H200 taken
for an A100 looks 3.2 times as good as it is). Never the figure with sparsity, which no training reaches: where a data sheet
gives only that one, half of it stands here. Where a card multiplies faster with fp16 accumulation, the rate with fp32
accumulation stands here, because bf16 products have no other. The peak is that of the data sheet at full clocks: a power cap
or a low clock does not lower it, and shows as a lower MFU.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

AMPERE = "NVIDIA A100 data sheet, BF16 Tensor Core without sparsity"
HOPPER = "NVIDIA H100 data sheet, half of BF16 Tensor Core with sparsity"
GA102 = "NVIDIA Ampere GA102 white paper, BF16 Tensor with FP32 accumulate, without sparsity"
ADA = "NVIDIA Ada white paper, BF16 Tensor with FP32 accumulate, without sparsity"
BLACKWELL = "NVIDIA RTX Blackwell white paper, BF16 Tensor with FP32 accumulate, without sparsity"


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that one device can do."""

    tflops: float
    """10^12 FLOPs a second, dense bf16."""

    source: str
    """Where the figure comes from; stands beside every MFU."""

    @property
    def flops(self) -> float:
        """FLOPs a second."""
        return self.tflops * 1e12


@dataclass(frozen=True, slots=True)
class _Known:
    tflops: float
    multiprocessors: int
    """What PyTorch reports on the whole device. Fewer are a slice of it (MIG) or another product under the same name."""

    source: str


KNOWN: dict[str, _Known] = {
    "NVIDIA GB200": _Known(2500.0, 152, "NVIDIA GB200 NVL72 data sheet, a quarter of a superchip's BF16 with sparsity"),
    "NVIDIA B200": _Known(2250.0, 148, "NVIDIA HGX B200 data sheet, half of a GPU's BF16 Tensor Core with sparsity"),
    "NVIDIA H200": _Known(989.5, 132, "NVIDIA H200 data sheet (SXM), half of BF16 Tensor Core with sparsity"),
    "NVIDIA H200 NVL": _Known(835.5, 132, "NVIDIA H200 data sheet (NVL), half of BF16 Tensor Core with sparsity"),
    "NVIDIA GH200 480GB": _Known(989.5, 132, "NVIDIA GH200 data sheet, half of BF16 Tensor Core with sparsity"),
    "NVIDIA H100 80GB HBM3": _Known(989.5, 132, f"{HOPPER} (SXM)"),
    "NVIDIA H100 NVL": _Known(835.5, 132, f"{HOPPER} (NVL)"),
    "NVIDIA H100 PCIe": _Known(756.5, 114, f"{HOPPER} (PCIe)"),
    "NVIDIA A100-SXM4-80GB": _Known(312.0, 108, AMPERE),
    "NVIDIA A100-SXM4-40GB": _Known(312.0, 108, AMPERE),
    "NVIDIA A100 80GB PCIe": _Known(312.0, 108, AMPERE),
    "NVIDIA A100-PCIE-40GB": _Known(312.0, 108, AMPERE),
    "NVIDIA A40": _Known(149.7, 84, "NVIDIA A40 data sheet, BF16 Tensor without sparsity"),
    "NVIDIA A30": _Known(165.0, 56, "NVIDIA A30 data sheet, BF16 Tensor without sparsity"),
    "NVIDIA A10": _Known(125.0, 72, "NVIDIA A10 data sheet, BF16 Tensor without sparsity"),
    "NVIDIA A10G": _Known(70.0, 80, "NVIDIA A10G data sheet for AWS, BF16 Tensor without sparsity"),
    "NVIDIA L40S": _Known(362.05, 142, "NVIDIA L40S data sheet, BF16 Tensor without sparsity"),
    "NVIDIA L40": _Known(181.05, 142, "NVIDIA L40 data sheet, BF16 Tensor without sparsity"),
    "NVIDIA L4": _Known(121.0, 58, "NVIDIA L4 data sheet, half of BF16 Tensor with sparsity"),
    "NVIDIA RTX A6000": _Known(154.8, 84, GA102),
    "NVIDIA GeForce RTX 3090": _Known(71.0, 82, GA102),
    "NVIDIA GeForce RTX 4080": _Known(97.5, 76, ADA),
    "NVIDIA GeForce RTX 4090": _Known(165.2, 128, ADA),
    "NVIDIA GeForce RTX 5080": _Known(112.6, 84, BLACKWELL),
    "NVIDIA GeForce RTX 5090": _Known(209.5, 170, BLACKWELL),
    "AMD Instinct MI300X": _Known(1307.4, 304, "AMD Instinct MI300X data sheet, bfloat16 matrix without sparsity"),
}

HOW_TO_ADD = (
    "Set `device_peak_tflops` to the dense bf16 figure of its data sheet, without sparsity, with fp32 accumulation"
)


def peak_of(device: "torch.device", given_tflops: float | None = None) -> Peak | str:
    """The peak of `device`, or the reason why there is none. `given_tflops` is the user's own figure, and said to be it."""
    if given_tflops is not None:
        return Peak(given_tflops, "given by you as `device_peak_tflops`")
    if device.type != "cuda":
        return f"a {device.type.upper()} has no bf16 peak here"
    import torch

    properties = torch.cuda.get_device_properties(device)
    return peak_by_name(properties.name, properties.multi_processor_count)


def peak_by_name(name: str, multiprocessors: int) -> Peak | str:
    """The peak of a device by exact name and number of multiprocessors, as PyTorch reports them, or why there is none."""
    known = KNOWN.get(name)
    if known is None:
        return f"the peak of `{name}` is not known. {HOW_TO_ADD}"
    if multiprocessors != known.multiprocessors:
        return (
            f"this `{name}` has {multiprocessors} multiprocessors where the whole device has {known.multiprocessors}: a"
            f" slice, or another product. {HOW_TO_ADD}"
        )
    return Peak(known.tflops, f"{name}: {known.source}")
