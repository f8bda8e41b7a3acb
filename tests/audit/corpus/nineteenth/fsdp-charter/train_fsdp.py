import functools
import os

import fire
import torch
import torch.distributed as dist
from datasets import load_dataset
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils.data import DataLoader, DistributedSampler
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    get_cosine_schedule_with_warmup,
    set_seed,
)
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer


def make_collate(tokenizer, max_length):
    def collate(rows):
        texts = [row["text"] + tokenizer.eos_token for row in rows]
        batch = tokenizer(
            texts, padding=True, truncation=True, max_length=max_length, return_tensors="pt"
        )
        labels = batch["input_ids"].clone()
        labels[batch["attention_mask"] == 0] = -100
        batch["labels"] = labels
        return batch

    return collate


def save(model, tokenizer, out_dir, rank):
    cfg = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, cfg):
        state = model.state_dict()
    if rank == 0:
        model.module.save_pretrained(out_dir, state_dict=state)
        tokenizer.save_pretrained(out_dir)


def main(
    data_file: str,
    out_dir: str,
    model_name: str = "Qwen/Qwen2.5-7B",
    max_length: int = 4096,
    batch_size: int = 2,
    epochs: int = 4,
    lr: float = 1e-5,
    bf16: bool = True,
    seed: int = 11,
):
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    set_seed(seed)

    tokenizer = AutoTokenizer.from_pretrained(model_name)
    dataset = load_dataset("json", data_files=data_file, split="train")
    sampler = DistributedSampler(dataset, shuffle=True, seed=seed)
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        collate_fn=make_collate(tokenizer, max_length),
        num_workers=0,
        pin_memory=False,
        drop_last=True,
    )

    model = AutoModelForCausalLM.from_pretrained(
        model_name, torch_dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Qwen2DecoderLayer}
        ),
        device_id=local_rank,
        use_orig_params=True,
        limit_all_gathers=True,
    )

    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.1, fused=True)
    total = epochs * len(loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(0.03 * total), total)

    model.train()
    step = 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            batch = {k: v.to(local_rank, non_blocking=True) for k, v in batch.items()}
            loss = model(**batch).loss
            loss.backward()
            model.clip_grad_norm_(1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            if step % 25 == 0:
                mean = loss.detach().clone()
                dist.all_reduce(mean, op=dist.ReduceOp.AVG)
                if rank == 0:
                    print(f"epoch {epoch} step {step}/{total} loss {mean.item():.4f}", flush=True)

    save(model, tokenizer, out_dir, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    fire.Fire(main)
