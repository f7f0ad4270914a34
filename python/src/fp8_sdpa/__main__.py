"""python -m fp8_sdpa: versions, devices, and the kernel that each takes for some shapes."""

import importlib.metadata

import torch

import fp8_sdpa

SHAPES = [(4, 16, 4096, 64), (2, 16, 8192, 128), (2, 8, 8192, 256), (16, 32, 1, 128)]


def main() -> None:
    """Prints them; launches nothing."""
    print(f"fp8_sdpa {importlib.metadata.version('fp8-sdpa')}")
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda or 'none'}")
    for device in ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]:
        print(device if device == "cpu" else f"{device}: {torch.cuda.get_device_name(device)}")
        for batch, heads, rows, head_dim in SHAPES:
            q = torch.empty(batch, heads, rows, head_dim, dtype=torch.bfloat16, device=device)
            k = torch.empty(batch, heads, max(rows, 4096), head_dim, dtype=torch.bfloat16, device=device)
            try:
                text = fp8_sdpa.explain(q, k, k, causal=True).splitlines()[0]
            except NotImplementedError as error:
                text = f"declined: {error}"
            print(f"  {batch} x {heads} x {rows} on {k.shape[2]} keys, head_dim {head_dim}: {text}")


if __name__ == "__main__":
    main()
