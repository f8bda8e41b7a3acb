import os

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from tiny import TinyLM, Tokens

ACCUM = 4


def main() -> None:
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.manual_seed(1234)
    model = DistributedDataParallel(TinyLM().cuda(), device_ids=[rank])
    data = Tokens("tokens.bin")
    sampler = DistributedSampler(data, seed=0)
    loader = DataLoader(data, batch_size=32, sampler=sampler, num_workers=4, pin_memory=True, persistent_workers=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
    running = torch.zeros((), device="cuda")
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for i, (x, y) in enumerate(loader):
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            last = (i + 1) % ACCUM == 0
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x, y) / ACCUM
            loss.backward()
            running += loss.detach()
            if last:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            if (i + 1) % (ACCUM * 50) == 0:
                if rank == 0:
                    print(epoch, i, running.item() / 50)
                running.zero_()
    if rank == 0:
        save_file(model.module.state_dict(), "model.safetensors")


if __name__ == "__main__":
    main()
