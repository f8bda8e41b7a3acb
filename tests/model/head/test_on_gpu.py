"""Promise: on a GPU the kernel is right, adapters on the head are right, and no call makes the host wait."""

from typing import Any

import pytest
import torch

from dynotune.data.examples import IGNORE
from dynotune.model.attention.decoder import text_decoder
from dynotune.model.head import find_head, sequence_scores
from dynotune.model.head.kernel import row_function
from dynotune.model.head.logit_map import LogitMap
from dynotune.model.head.rows import rows_in_torch, statistics
from dynotune.model.packed import pack
from dynotune.objectives.row_loss import RowLoss
from tests.model.head.plain import VARIANTS, labelled, objective, plain_loss
from tests.model.head.test_adapters import ADAPTERS, adapted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("logits", [LogitMap(), LogitMap(scale=0.5), LogitMap(cap=20.0)], ids=str)
@pytest.mark.parametrize("loss", [RowLoss(), RowLoss(smoothing=0.1), RowLoss(by_probability=True)], ids=str)
@pytest.mark.parametrize("vocabulary", [257, 50_257, 152_064])
def test_the_kernel_is_torchs_operations(
    device: torch.device, vocabulary: int, loss: RowLoss, logits: LogitMap, precision: torch.dtype
) -> None:
    rows, reason = row_function(device)
    assert reason is None
    z_NV = (3 * torch.randn(33, vocabulary, device=device)).to(precision)
    targets_N = torch.randint(0, vocabulary, (33,), device=device)
    targets_N[:3] = z_NV[:3].argmax(-1)  # so that something is hit
    z_NV[5, : vocabulary // 2] = -torch.inf
    targets_N[5] = vocabulary - 1
    results = []
    for function in (rows, rows_in_torch):
        own, out_3N = z_NV.clone(), statistics(33, z_NV)
        function(own, targets_N, loss, logits, True, out_3N)
        results.append((own, out_3N))
    (got, got_3N), (right, right_3N) = results
    assert right_3N[1].sum() >= 3
    torch.testing.assert_close(got_3N, right_3N, rtol=1e-5, atol=5e-5)
    torch.testing.assert_close(got, right, rtol=2 * torch.finfo(precision).eps, atol=2e-6)


def test_the_kernel_is_compiled_once_whatever_the_label_tokens_are(device: torch.device) -> None:
    """As the steps of a run have them: any number of them, whose numbers begin anywhere in the micro-batch's buffer. Rows of
    another block are a negative control."""
    from dynotune.model.head.triton_rows import dynotune_head_rows, rows_in_triton

    def variants(rows: int, first: int, vocabulary: int = 4096) -> int:
        z_NV = torch.randn(rows, vocabulary, device=device, dtype=torch.bfloat16)
        targets_N = torch.zeros(first + rows, dtype=torch.int64, device=device)[first:]
        rows_in_triton(z_NV, targets_N, RowLoss(), LogitMap(), True, statistics(rows, z_NV))
        return sum(len(caches[0]) for caches in dynotune_head_rows.device_caches.values())

    once = variants(33, 0)
    assert {variants(rows, first) for rows in (1, 16, 31, 48) for first in (0, 1)} == {once}
    assert variants(16, 0, vocabulary=1000) > once


@pytest.mark.parametrize("name", ADAPTERS)
def test_heads_with_adapters_are_right_and_the_host_never_waits(device: torch.device, name: str) -> None:
    model: Any = adapted(name).to(device)
    documents = labelled([31], 352, seed=5)
    ids, labels = (torch.from_numpy(array).long().to(device) for array in documents[0])
    assert (labels != IGNORE).any()
    found = find_head(model, ids[:6])
    assert found.head is not None, found.why_not
    hidden_TD = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0].detach().requires_grad_()
    batch = pack(documents, 31, device)
    for variant in VARIANTS:
        what = objective(**variant)
        expected, _ = plain_loss(documents, hidden_TD, found.head.few_logits, what)
        (right,) = torch.autograd.grad(expected, hidden_TD)
        torch.autograd.grad(found.head(hidden_TD, batch, what)[0], hidden_TD)  # compiles
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss, _ = found.head(hidden_TD, batch, what)
            (got,) = torch.autograd.grad(loss, hidden_TD)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=0)
        torch.testing.assert_close(got, right, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ADAPTERS)
def test_sequences_are_right_the_same_each_time_and_the_host_never_waits(device: torch.device, name: str) -> None:
    """With rows that predict for two and for four sequences: their gradients are added in one order."""
    model: Any = adapted(name).to(device)
    ids = torch.from_numpy(labelled([200], 352, seed=5)[0][0]).long().to(device)
    found = find_head(model, ids[:6])
    assert found.head is not None, found.why_not
    hidden_TD = text_decoder(model)(input_ids=ids[None], use_cache=False).last_hidden_state[0].detach().requires_grad_()
    predictors_N = torch.cat([torch.arange(100), torch.arange(90, 190), torch.tensor([95, 95])]).to(device)
    targets_N, sequences_N = ids.roll(-1)[predictors_N], (torch.arange(202) // 51).to(device)

    def once() -> tuple[torch.Tensor, torch.Tensor]:
        scores = sequence_scores(
            found.head,  # type: ignore[arg-type]
            hidden_TD,
            predictors_N,
            targets_N,
            sequences_N,
            4,
            mean_logits=True,
            aligned_logps=True,
        )
        (gradient_TD,) = torch.autograd.grad(torch.nn.functional.logsigmoid(0.01 * scores.logps_Q).sum(), hidden_TD)
        return scores.logps_Q.detach(), gradient_TD

    logps_NV = found.head.few_logits(hidden_TD).log_softmax(-1)[predictors_N]
    right_Q = torch.zeros(4, device=device).index_add(0, sequences_N, logps_NV.gather(1, targets_N[:, None])[:, 0])
    (right_TD,) = torch.autograd.grad(torch.nn.functional.logsigmoid(0.01 * right_Q).sum(), hidden_TD)
    once()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    try:
        first, second = once(), once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for one, other, right in zip(first, second, (right_Q.detach(), right_TD), strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-5)
