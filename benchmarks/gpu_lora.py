"""Fused LoRA linears against PEFT's under autocast, on a GPU: error against float32, time, launches, graphs, compiling.

    python benchmarks/gpu_lora.py --out OUT

Ways: `peft` is PEFT's forward under autocast(bfloat16), as TRL runs it; `fused` the same with the fused linears, those of
one input together; `fused one by one` each by itself; `fused, no autocast` as `fused` without that context. Frozen base in
bfloat16, adapters in float32, r=32 on all seven linears, the shape of Qwen2.5-7B with random weights. Times are of forward
and backward to the adapters' gradients. The LM head and the loss are left out: they are other parts' work. The exit code is
1 if a check of correctness fails. `--smoke` runs tiny shapes on the CPU, which checks this script and nothing else.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import Tensor, nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
from dynotune.model.lora import Engaged, install
from dynotune.model.lora.function import has_wide_products

WAYS: dict[
    str, tuple[bool | None, bool]
] = {  # whether linears of one input are computed together (None: PEFT's), autocast
    "peft": (None, True),
    "fused one by one": (False, True),
    "fused": (True, True),
    "fused, no autocast": (True, False),
}
QWEN_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 16384, "rope_theta": 1e6,
}  # fmt: skip
TINY = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 512,
}  # fmt: skip
BF16 = torch.bfloat16


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu_lora.json")
    parser.add_argument("--commit", default="")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    device = torch.device("cpu" if args.smoke else "cuda")
    shape = TINY if args.smoke else QWEN_7B
    torch.backends.cuda.matmul.allow_tf32 = False  # the reference is float32
    result: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "commit": args.commit,
        "hardware": "cpu" if args.smoke else torch.cuda.get_device_name(),
        "versions": {p: metadata.version(p) for p in ("torch", "transformers", "peft")}
        | {"python": platform.python_version()},
        "wide_products": has_wide_products(device, BF16), "shape": shape,
    }  # fmt: skip
    bench = Bench(device, shape, args.repeats, args.smoke)
    parts: dict[str, Callable[[], Any]] = {
        "linears": bench.linears, "two_layers": bench.two_layers, "model": bench.model, "graph": bench.graph,
        "compiled_layer": bench.compiled_layer,
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        result[name] = part()
        (args.out / "gpu_lora.json").write_text(
            json.dumps(result, indent=1)
        )  # a part that fails leaves the earlier ones
        print(f"{name}: done", flush=True)
    show(result)
    return (
        0
        if all(row["ok"] for row in result["linears"] + result["two_layers"]) and result["compiled_layer"]["ok"]
        else 1
    )


class Bench:
    def __init__(self, device: torch.device, shape: dict[str, Any], repeats: int, smoke: bool) -> None:
        self.device, self.shape, self.repeats, self.smoke = device, shape, repeats, smoke

    def linears(self) -> list[dict[str, Any]]:
        """Each linear of a layer alone: error of output and gradients against float32, and ms."""
        h, i = self.shape["hidden_size"], self.shape["intermediate_size"]
        kv = h // self.shape["num_attention_heads"] * self.shape["num_key_value_heads"]
        sizes = {"q": (h, h), "k, v": (h, kv), "o": (h, h), "gate, up": (h, i), "down": (i, h)}
        rows = []
        for name, (inputs, outputs) in sizes.items():
            for tokens in (30,) if self.smoke else (258, 2064, 8192):
                module = self.adapted(
                    nn.Linear(inputs, outputs, bias=name in ("q", "k, v"), device=self.device, dtype=BF16)
                )
                exact = self.adapted(nn.Linear(inputs, outputs, bias=name in ("q", "k, v"), device=self.device))
                exact.load_state_dict(module.state_dict())
                x = torch.randn(tokens, inputs, device=self.device).to(BF16)
                g = torch.randn(tokens, outputs, device=self.device).to(BF16)
                reference = gradients(exact, x.float(), g.float())
                rows.append({"linear": name, "tokens": tokens, **self.compare(module, x, g, reference)})
        return rows

    def two_layers(self) -> list[dict[str, Any]]:
        """Two decoder layers in float32 and in each way: error of the output and of the adapters' gradients."""
        small = {**self.shape, "num_hidden_layers": 2, "vocab_size": 1024}
        exact, model = self.model_of(small, torch.float32), self.model_of(small, BF16)
        exact.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
        ids = torch.randint(0, 1024, (2, 20 if self.smoke else 129), device=self.device)
        x = exact.get_input_embeddings()(ids).detach()
        g = torch.randn(x.shape, device=self.device).to(BF16)
        reference = gradients(inner(exact), x, g.float())
        del exact
        return [{"tokens": ids.numel(), **self.compare(inner(model), x.to(BF16), g, reference, of=model)}]

    def compare(
        self, module: nn.Module, x: Tensor, g: Tensor, reference: dict[str, Tensor], of: nn.Module | None = None
    ) -> Any:
        errors, ms, calls_to_peft = {}, {}, 0
        engaged: Engaged | None = None
        for way, (together, autocast) in WAYS.items():
            engaged = self.change(engaged, of or module, together)
            found = gradients(module, x, g, autocast)
            errors[way] = {kind: worst(found, reference, kind) for kind in ("y", "x", "lora_A", "lora_B")}
            ms[way] = self.time(lambda autocast=autocast: gradients(module, x, g, autocast))["ms"]
            calls_to_peft += engaged.calls_to_peft if engaged else 0
        assert engaged is not None
        for linear in engaged.linears.values():
            linear.module.scaling[linear.name] *= 1.25
        wrong = gradients(module, x, g)
        control = {kind: worst(wrong, reference, kind) for kind in ("y", "lora_A", "lora_B")}
        for linear in engaged.linears.values():
            linear.module.scaling[linear.name] /= 1.25
        engaged.uninstall()
        limit = {kind: max(1.5 * error, 1e-6) for kind, error in errors["peft"].items()}
        ok = all(e[kind] <= limit[kind] for e in errors.values() for kind in limit) and not calls_to_peft
        caught = all(control[kind] > limit[kind] for kind in ("lora_A", "lora_B"))
        return {
            "ok": ok and caught,
            "errors": errors,
            "wrong_scaling": control,
            "calls_to_peft": calls_to_peft,
            "ms": ms,
        }

    def change(self, engaged: Engaged | None, model: nn.Module, together: bool | None) -> Engaged | None:
        """Take the last way out and put the next one in."""
        if engaged is not None:
            engaged.uninstall()
        if together is None:
            return None
        engaged = install(model, BF16, share_inputs=together)
        assert engaged.linears
        assert not engaged.others
        assert not engaged.needs_autocast
        assert not engaged.not_shared
        return engaged

    def model(self) -> list[dict[str, Any]]:
        """The whole decoder: ms, ms until the host is free, launches, kernel time, peak memory."""
        rows = []
        shapes = [(2, 10)] if self.smoke else [(2, 129), (16, 129), (4, 2048)]
        for dropout in (0.0, 0.05):
            model = self.model_of(self.shape, BF16, dropout)
            engaged: Engaged | None = None
            for way, (together, autocast) in WAYS.items():
                engaged = self.change(engaged, model, together)
                for documents, length in shapes[: 1 if dropout else None]:
                    step = self.step_of(model, documents, length, autocast)
                    rows.append(
                        {"way": way, "dropout": dropout, "tokens": documents * length, **self.time(step, detail=True)}
                    )
            del model, engaged, step
        return rows

    def graph(self) -> dict[str, Any]:
        """Forward and backward of the whole decoder captured once: the device's own time, and that capture is possible."""
        if self.smoke:
            return {}
        found = {}
        for documents, length in ((2, 129), (16, 129)):
            model = self.model_of(self.shape, BF16)
            engaged: Engaged | None = None
            for way, (together, autocast) in WAYS.items():
                engaged = self.change(engaged, model, together)
                step = self.step_of(model, documents, length, autocast)
                side = torch.cuda.Stream()
                with torch.cuda.stream(side):
                    for _ in range(3):
                        step()
                torch.cuda.current_stream().wait_stream(side)
                model.zero_grad()
                captured = torch.cuda.CUDAGraph()
                with torch.cuda.graph(captured):
                    step(clear=False)
                found[f"{way}, {documents * length} tokens"] = self.time(captured.replay, detail=True)
                del captured
                model.zero_grad()
            del model
        return found

    def compiled_layer(self) -> dict[str, Any]:
        """Two layers compiled as one graph each (`fullgraph`): the same gradients as eager, and ms."""
        model = self.model_of({**self.shape, "num_hidden_layers": 2, "vocab_size": 1024}, BF16)
        install(model, BF16)
        x = torch.randn(2, 20 if self.smoke else 129, self.shape["hidden_size"], device=self.device).to(BF16)
        g = torch.randn(x.shape, device=self.device).to(BF16)
        eager = gradients(inner(model), x, g)
        eager_ms = self.time(lambda: gradients(inner(model), x, g))["ms"]
        for layer in inner(model).layers:
            layer.compile(fullgraph=True, dynamic=False)
        compiled = gradients(inner(model), x, g)
        gaps = {kind: worst(compiled, eager, kind) for kind in ("y", "x", "lora_A", "lora_B")}
        ms = self.time(lambda: gradients(inner(model), x, g))["ms"]
        return {"ok": all(gap < 3e-2 for gap in gaps.values()), "gaps": gaps, "ms": {"eager": eager_ms, "compiled": ms}}

    def adapted(self, linear: nn.Linear) -> Linear:
        config = LoraConfig(r=32, lora_alpha=64, target_modules=["0"])
        module = get_peft_model(nn.Sequential(linear), config).base_model.model[0]  # type: ignore[arg-type]
        nn.init.normal_(module.lora_B["default"].weight, std=0.02)
        assert isinstance(module, Linear)
        return module.train()

    def model_of(self, shape: dict[str, Any], dtype: torch.dtype, dropout: float = 0.0) -> Any:
        torch.manual_seed(0)
        with self.device:
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen2", **shape), dtype=dtype)
            config = LoraConfig(
                r=32, lora_alpha=64, lora_dropout=dropout, target_modules="all-linear", task_type="CAUSAL_LM"
            )
            model = get_peft_model(model, config)
        for name, p in model.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(p, std=0.02)
        return model.train()

    def step_of(self, model: Any, documents: int, length: int, autocast: bool) -> Callable[..., None]:
        ids = torch.randint(0, self.shape["vocab_size"], (documents, length), device=self.device)
        g = torch.randn(documents, length, self.shape["hidden_size"], device=self.device).to(BF16)
        context = torch.autocast(self.device.type, BF16) if autocast else nullcontext()

        def step(clear: bool = True) -> None:
            with context:
                y = forward(inner(model), input_ids=ids)
            y.backward(g)
            if clear:
                model.zero_grad(set_to_none=True)

        return step

    def time(self, step: Callable[[], Any], detail: bool = False) -> dict[str, Any]:
        """Medians; with `detail` also what one profiled call launched."""
        for _ in range(3):
            step()
        self.wait()
        if not self.smoke:
            torch.cuda.reset_peak_memory_stats()
        times, host = [], []
        for _ in range(self.repeats):
            began = time.perf_counter()
            step()
            host.append(1e3 * (time.perf_counter() - began))
            self.wait()
            times.append(1e3 * (time.perf_counter() - began))
        found: dict[str, Any] = {
            "ms": statistics.median(times), "host_ms": statistics.median(host), "spread": [min(times), max(times)],
        }  # fmt: skip
        if detail:
            found |= {} if self.smoke else {"peak_GiB": torch.cuda.max_memory_allocated() / 2**30}
            found |= launches(step, self.wait)
        return found

    def wait(self) -> None:
        if not self.smoke:
            torch.cuda.synchronize()


def inner(model: Any) -> Any:
    return model.get_base_model().model


def forward(module: nn.Module, **inputs: Tensor) -> Tensor:
    """The decoder without a mask of its own making: each row is one causal document. All ways run the same."""
    return module(**inputs, attention_mask={"full_attention": None}, use_cache=False).last_hidden_state  # type: ignore[no-any-return]


def gradients(module: nn.Module, x: Tensor, g: Tensor, autocast: bool = False) -> dict[str, Tensor]:
    module.zero_grad(set_to_none=True)
    x = x.detach().requires_grad_()
    with torch.autocast(x.device.type, BF16, enabled=autocast):
        y = module(x) if isinstance(module, Linear) else forward(module, inputs_embeds=x)
    y.backward(g.to(y.dtype))
    assert x.grad is not None
    return {"y": y.detach(), "x": x.grad, **{n: p.grad for n, p in module.named_parameters() if p.grad is not None}}


def worst(found: dict[str, Tensor], reference: dict[str, Tensor], kind: str) -> float:
    """The largest relative error of the tensors whose name holds `kind`."""
    names = [kind] if kind in reference else [name for name in reference if kind in name]
    assert names
    assert found.keys() == reference.keys()
    return max(float((found[n].float() - reference[n].float()).norm() / reference[n].float().norm()) for n in names)


def launches(step: Callable[[], Any], wait: Callable[[], None]) -> dict[str, Any]:
    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])
    with profile(activities=kinds) as prof:
        step()
        wait()
    events = list(prof.events())
    on_device = [e for e in events if e.device_type == DeviceType.CUDA]
    host = [e for e in events if e.device_type == DeviceType.CPU]
    products = ("gemm", "nvjet", "cutlass", "splitk", "cublas")
    of_products = [e for e in on_device if any(word in e.name.lower() for word in products)]
    return {
        "launches": sum(e.name.startswith(("cudaLaunchKernel", "cuLaunchKernel", "cudaMemcpy", "cudaMemset")) for e in host),
        "kernels": len(on_device), "kernel_ms": sum(e.time_range.elapsed_us() for e in on_device) / 1e3,
        "product_kernels": len(of_products), "product_ms": sum(e.time_range.elapsed_us() for e in of_products) / 1e3,
        "dispatched": sum(e.name.startswith("aten::") for e in host),
        "fused_forward": sum(e.name == "LoraLinears" for e in host),
        "fused_backward": sum(e.name == "LoraLinearsBackward" for e in host),
    }  # fmt: skip


def show(result: dict[str, Any]) -> None:
    print(f"\n{result['hardware']}, torch {result['versions']['torch']}, float32 results: {result['wide_products']}")
    for row in result["linears"]:
        ms = "  ".join(f"{way} {row['ms'][way]:.3f}" for way in WAYS)
        ratio = max(row["errors"]["fused"][k] / max(row["errors"]["peft"][k], 1e-12) for k in row["errors"]["fused"])
        print(
            f"{'ok ' if row['ok'] else 'BAD'} {row['linear']:9} {row['tokens']:5} tokens, ms: {ms}; error/PEFT's {ratio:.2f}"
        )
    for row in result["two_layers"]:
        print(f"{'ok ' if row['ok'] else 'BAD'} two layers, errors {row['errors']}")
    print(f"compiled layer: {result['compiled_layer']}")
    print(
        f"{'way':34} {'tokens':>6} {'ms':>8} {'host':>8} {'kernels ms':>10} {'products':>9} {'launches':>8} {'GiB':>6}"
    )
    rows = [(f"{r['way']}, dropout {r['dropout']}", r) for r in result["model"]]
    rows += [(f"graph: {name}", r) for name, r in result["graph"].items()]
    for name, r in rows:
        print(
            f"{name:34} {r.get('tokens', ''):>6} {r['ms']:8.2f} {r['host_ms']:8.2f} {r['kernel_ms']:10.2f}"
            f" {r['product_ms']:9.2f} {r['launches']:8} {r.get('peak_GiB', 0):6.1f}"
        )


if __name__ == "__main__":
    sys.exit(main())
