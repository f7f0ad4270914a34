"""fp8_sdpa.context_parallel: processes with a part each get the bits of the whole."""

import socket

import fp8_sdpa
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from conftest import relative


def inputs(seq, device, heads=4, heads_kv=2, head_dim=64):
    torch.manual_seed(1)
    q = torch.randn(1, heads, seq, head_dim)
    k = torch.randn(1, heads_kv, seq, head_dim) + 2 * torch.randn(1, heads_kv, 1, head_dim)
    v = torch.randn(1, heads_kv, seq, head_dim)
    q[0, 1], q[0, 2, seq // 8 :], v[0, 0, : seq // 2] = 0.0, 0.0, 0.0  # no amax: everywhere, in a part
    return [x.bfloat16().to(device) for x in (q, k, v)]


def check(rank, size, port, device):
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
    )
    torch.set_num_threads(1)
    try:
        seq = 288 * size
        for causal, scale in ((True, 0.2), (False, None)):
            if size == 4 and not causal:
                continue  # takes long, and says what two processes said
            whole = inputs(seq, device)
            parts = [fp8_sdpa.shard(x) for x in whole]
            assert parts[0].shape[2] == seq // size
            for x, part in zip(whole, parts, strict=True):
                assert torch.equal(fp8_sdpa.unshard(part), x)
            want, want_lse = fp8_sdpa.attention(
                *whole, causal=causal, scale=scale, return_lse=True, batch_invariant=True
            )
            out, lse = fp8_sdpa.context_parallel(*parts, causal=causal, scale=scale, return_lse=True)
            assert torch.equal(out, fp8_sdpa.shard(want))
            assert torch.allclose(lse, fp8_sdpa.shard(want_lse[..., None])[..., 0], atol=2e-3)
            options = {"smooth": False, "seed": 3} if causal else {"rotate": False}
            want = fp8_sdpa.attention(*whole, causal=causal, batch_invariant=True, **options)
            out = fp8_sdpa.context_parallel(*parts, causal=causal, **options)
            assert torch.equal(out, fp8_sdpa.shard(want)), options
        # Parts that no kernel's rows line up with: near.
        whole = inputs(266 * size, device)
        want = fp8_sdpa.attention(*whole, causal=True, batch_invariant=True)
        out = fp8_sdpa.context_parallel(*(fp8_sdpa.shard(x) for x in whole), causal=True)
        assert relative(out, fp8_sdpa.shard(want)) < 0.01
        half = fp8_sdpa.context_parallel(*(fp8_sdpa.shard(x.half()) for x in whole))
        assert half.dtype == torch.float16
        want = fp8_sdpa.attention(*(x.half() for x in whole), batch_invariant=True)
        assert relative(half, fp8_sdpa.shard(want)) < 0.01
        with pytest.raises(ValueError, match="needs a multiple of"):
            fp8_sdpa.shard(whole[0][:, :, 1:])
        q, k, v = (fp8_sdpa.shard(x) for x in whole)
        for bad in ((q[:, :, 1:], k[:, :, 1:], v), (q, k[:, :, 2:], v)):
            with pytest.raises(ValueError, match="expected equal even numbers"):
                fp8_sdpa.context_parallel(*bad)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("size, device", [(1, "cpu"), (2, "cpu"), (4, "cpu"), (1, "cuda")])
def test_parts_have_the_bits_of_the_whole(size, device):
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        port = any_port.getsockname()[1]
    mp.spawn(check, (size, port, device), nprocs=size)
