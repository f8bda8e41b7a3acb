import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

import config as C


def main():
    dist.init_process_group("nccl")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    torch.manual_seed(C.SEED)
    torch.set_float32_matmul_precision("high")

    tokens = torch.load(C.DATA_PT)
    dataset = TensorDataset(tokens)
    sampler = DistributedSampler(dataset, shuffle=True, seed=C.SEED, drop_last=True)
    loader = DataLoader(dataset, batch_size=C.MICRO_BATCH, sampler=sampler, drop_last=True, pin_memory=True, num_workers=16)

    raw = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=C.VOCAB,
            hidden_size=768,
            intermediate_size=2048,
            num_hidden_layers=14,
            num_attention_heads=12,
            num_key_value_heads=12,
            max_position_embeddings=C.SEQ_LEN,
            bos_token_id=50256,
            eos_token_id=50256,
            tie_word_embeddings=True,
            use_cache=False,
        )
    ).cuda()
    model = DDP(torch.compile(raw), device_ids=[local_rank], find_unused_parameters=True)

    decay = [p for p in raw.parameters() if p.dim() >= 2]
    rest = [p for p in raw.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=C.LR,
        betas=(0.9, 0.95),
        foreach=False,
    )
    steps_per_epoch = len(loader) // C.GRAD_ACCUM
    scheduler = get_cosine_schedule_with_warmup(optimizer, C.WARMUP, steps_per_epoch * C.EPOCHS)

    state_path = os.path.join(C.OUT_DIR, "state.pt")
    first_epoch = 0
    if os.path.exists(state_path):
        state = torch.load(state_path, map_location="cpu")
        raw.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first_epoch = state["epoch"] + 1

    model.train()
    t0, tokens_seen, step = time.time(), 0, 0
    for epoch in range(first_epoch, C.EPOCHS):
        sampler.set_epoch(epoch)
        for i, (ids,) in enumerate(loader):
            if i >= steps_per_epoch * C.GRAD_ACCUM:
                break
            ids = ids.cuda(non_blocking=True).long()
            last = (i + 1) % C.GRAD_ACCUM == 0
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = model(input_ids=ids, labels=ids).loss
                (loss / C.GRAD_ACCUM).backward()
            tokens_seen += ids.numel() * C.WORLD_SIZE
            if not last:
                continue
            torch.nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % C.LOG_EVERY == 0 and rank == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)

        if rank == 0:
            os.makedirs(C.OUT_DIR, exist_ok=True)
            torch.save(
                {
                    "model": raw.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "epoch": epoch,
                },
                state_path,
            )

    torch.cuda.synchronize()
    if rank == 0:
        print(f"throughput {tokens_seen / (time.time() - t0):.0f} tokens/s")
        raw.save_pretrained(C.OUT_DIR)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
