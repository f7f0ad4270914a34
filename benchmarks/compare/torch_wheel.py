#!/usr/bin/env python3
"""Measures the wheel beside PyTorch on a machine with a GPU, and prints what it found as JSON.

    torch_wheel.py WHEEL

The Python that runs it has PyTorch, transformers and the wheel. Times are medians of calls in turns: ours,
then each of PyTorch's backends. torch_floors.py makes floors of it.
"""

from __future__ import annotations

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import fp8_sdpa
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = [(2, 16, 8192, 128), (2, 16, 8192, 64), (2, 16, 8192, 256), (2, 16, 16384, 128)]
OURS = "fp8_sdpa"
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
ROUNDS = 15
WARM_UP = 3
HOST_GROUPS, HOST_TURNS = 50, 100
PROCESSES = 4
LAYERS = 4
TOKENS = [4096, 16384, 32768]

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "examples"))


def seconds_of(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def install_s(wheel: pathlib.Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of("-m", "pip", "install", "-q", "--no-deps", "--target", folder, str(wheel))


def import_s() -> float:
    """Beyond PyTorch's own."""
    code = "import time, torch; start = time.perf_counter(); import fp8_sdpa; print(time.perf_counter() - start)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(run.stdout)


def in_turns_us(calls: dict) -> dict[str, float]:
    """The median time on the GPU of each call; nothing for a backend that raises."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(WARM_UP + ROUNDS):
        for name, call in calls.items():
            if name not in times:
                continue
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            try:
                call()
            except RuntimeError:  # a backend that does not serve the shape
                if name == OURS:
                    raise
                del times[name]
                continue
            end.record()
            end.synchronize()
            if turn >= WARM_UP:
                times[name].append(1e3 * begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in times.items()}


def beside_torch(shape: tuple[int, ...], causal: bool) -> dict:
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def of_backend(backend: SDPBackend):
        def call():
            with sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    calls = {OURS: lambda: fp8_sdpa.sdpa(q, k, v, is_causal=causal)}
    calls |= {backend.name: of_backend(backend) for backend in BACKENDS}
    return {"shape": shape, "causal": causal, "us": in_turns_us(calls)}


def host_us() -> dict[str, float]:
    """Host time of a call of attention_fp8(), and of an operator that does nothing, in turns: medians of the
    hundred turns in a row that were fastest. A host's clock changes by 1.8 within a run.
    """
    x = [torch.randn((1, 2, 128, 128), device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    q, k, v = (fp8_sdpa.quantise(one) for one in x)
    calls = {
        "attention_fp8": lambda: fp8_sdpa.attention_fp8(
            q.codes, k.codes, v.codes, q.descale, k.descale, v.descale
        ),
        "empty": lambda: torch.ops.aten.alias.default(q.codes),
    }
    groups = []
    for _ in range(HOST_GROUPS):
        samples: dict[str, list[float]] = {name: [] for name in calls}
        torch.cuda.synchronize()
        for _ in range(HOST_TURNS):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                samples[name].append(1e6 * (time.perf_counter() - start))
        groups.append({name: statistics.median(values) for name, values in samples.items()})
    return min(groups, key=lambda group: group["attention_fp8"])


def graph_breaks() -> int:
    q = torch.randn((1, 2, 256, 64), device="cuda", dtype=torch.bfloat16)
    return torch._dynamo.explain(lambda x: fp8_sdpa.sdpa(x * 2, x, x, is_causal=True) + x)(q).graph_break_count


def of_one_process(rank: int, store: str, out: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    torch.manual_seed(1)
    q, k, v = (torch.randn((1, 2, 1280, 64), dtype=torch.bfloat16) for _ in range(3))
    parts = [fp8_sdpa.shard(x) for x in (q, k, v)]
    whole = fp8_sdpa.unshard(fp8_sdpa.context_parallel(*parts, causal=True)).double()
    alone = fp8_sdpa.attention(q, k, v, causal=True, batch_invariant=True).double()
    if rank == 0:
        pathlib.Path(out).write_text(str(float((whole - alone).norm() / alone.norm())))
    dist.destroy_process_group()


def context_parallel_rel_l2() -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        mp.spawn(of_one_process, (os.path.join(folder, "store"), out), nprocs=PROCESSES)
        return float(pathlib.Path(out).read_text())


def forward_passes() -> list[dict]:
    """Of a made model of the shape of some layers of Llama 3 8B."""
    import model_quality

    with torch.device("cuda"):
        model, _ = model_quality.made_model(LAYERS)
    return [one._asdict() for one in model_quality.speed_of(model.eval(), TOKENS)]


def main() -> None:
    wheel = pathlib.Path(sys.argv[1])
    document = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "wheel_mb": wheel.stat().st_size / 1e6,
        "install_s": install_s(wheel),
        "import_s": import_s(),
        "host_us": host_us(),  # before graph_breaks(): every operator is slower after torch.compile
        "graph_breaks": graph_breaks(),
        "host_us_after_compile": host_us(),
        "context_parallel_rel_l2": context_parallel_rel_l2(),
        "layers": LAYERS,
        "forward_passes": forward_passes(),
        "rows": [beside_torch(shape, causal) for shape in SHAPES for causal in (False, True)],
    }
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
