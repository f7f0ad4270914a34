"""E4M3 out: O / out_scale, rounded."""

import fp8_sdpa
import pytest
import torch
from conftest import E4M3, codes, offsets


def codes_that_round_to(half, scale):
    """The least and the largest code of a value that a half was rounded from."""
    apart = 2**-10 * half.float().abs() + 2**-24
    return (((half.float() + side) / scale).clamp(-448, 448).to(E4M3).float() for side in (-apart, apart))


# A head_dim that is padded too; a scale with which much is saturated.
@pytest.mark.parametrize("head_dim", [64, 80])
@pytest.mark.parametrize("scale", [2**-8, 2**-13])
def test_is_the_half_one_rounded(device, head_dim, scale):
    tensors, descales = codes(device, head_dim=head_dim)
    half, want_lse = fp8_sdpa.attention_fp8(*tensors, *descales, out_dtype=torch.float16, return_lse=True)
    options = {"out_dtype": E4M3, "out_scale": torch.tensor(scale, device=device)}
    out, lse = fp8_sdpa.attention_fp8(*tensors, *descales, return_lse=True, **options)
    assert out.dtype == E4M3 and torch.equal(lse, want_lse)
    low, high = codes_that_round_to(half, scale)
    assert torch.all((low <= out.float()) & (out.float() <= high))
    assert scale > 2**-10 or (out.float().abs() == 448).any()
    for of_out in (options, options | {"out_scale": scale}):
        again = fp8_sdpa.attention_fp8(*tensors, *descales, **of_out)
        assert torch.equal(again.float(), out.float())


def test_of_packed_sequences_too(device):
    queries, keys = (70, 1, 0, 33), (150, 131, 40, 0)
    q = torch.randn(sum(queries), 4, 64, device=device).to(E4M3)
    k, v = (torch.randn(sum(keys), 2, 64, device=device).to(E4M3) for _ in range(2))
    lengths = {
        "cu_seqlens_q": offsets(queries, device), "cu_seqlens_k": offsets(keys, device),
        "max_seqlen_q": 70, "max_seqlen_k": 150,
    }  # fmt: skip
    half, want_lse = fp8_sdpa.attention_varlen_fp8(
        q, k, v, **lengths, out_dtype=torch.float16, return_lse=True
    )
    out, lse = fp8_sdpa.attention_varlen_fp8(
        q, k, v, **lengths, out_dtype=E4M3, out_scale=2**-8, return_lse=True
    )
    assert out.dtype == E4M3 and torch.equal(lse, want_lse)
    low, high = codes_that_round_to(half, 2**-8)
    assert torch.all((low <= out.float()) & (out.float() <= high))


def test_compiles_whole(device):
    tensors, descales = codes(device)
    scale = torch.full((1,), 2**-8, device=device)

    def run(*of):
        return fp8_sdpa.attention_fp8(*of, out_dtype=E4M3, out_scale=scale)

    out = torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors, *descales)
    assert torch.equal(out.float(), run(*tensors, *descales).float())
