"""fp8_sdpa.attention_varlen(): packed sequences that are quantised on the way."""

import fp8_sdpa
import pytest
import torch
from conftest import BF16, E4M3, KEYS, QUERIES, UNQUANTISED, exact, normal, ragged, relative, words

varlen = fp8_sdpa.attention_varlen_fp8


@pytest.mark.parametrize("head_dim", [64, 80, 128])
@pytest.mark.parametrize("smooth", [False, True])
def test_packed_tensors_are_quantised_on_the_way(device, head_dim, smooth):
    q = normal(sum(QUERIES), 4, head_dim, device=device)
    k, v = (normal(sum(KEYS), 2, head_dim, device=device) for _ in range(2))
    k += 3 * normal(1, 2, head_dim, device=device)
    lengths = ragged(device)
    out, lse = fp8_sdpa.attention_varlen(
        q, k, v, *lengths.values(), causal=True, smooth=smooth, return_lse=True
    )
    assert out.shape == q.shape and out.dtype == BF16 and lse.shape == (4, sum(QUERIES))
    parts = zip(
        q.split(QUERIES), k.split(KEYS), v.split(KEYS), out.split(QUERIES), lse.split(QUERIES, 1), strict=True
    )
    for own, keys, values, got, got_lse in parts:
        if len(own) == 0:
            continue
        if len(keys) == 0:
            assert (got == 0).all() and (got_lse == -torch.inf).all()
            continue
        want, want_lse = exact(*(x.transpose(0, 1)[None] for x in (own, keys, values)), causal=True)
        few = 2 if len(own) < 9 else 1
        assert relative(got.transpose(0, 1)[None], want) < UNQUANTISED * few * (1 if smooth else 2)
        assert (got_lse[None].cpu() - want_lse).abs().max() < (0.15 if smooth else 0.6)
    assert torch.equal(fp8_sdpa.attention_varlen(q, k, v, *lengths.values(), causal=True, smooth=smooth), out)
    halves = fp8_sdpa.attention_varlen(
        q.half(), k.half(), v.half(), *lengths.values(), causal=True, smooth=smooth
    )
    assert halves.dtype == torch.float16


@pytest.mark.parametrize("options", [{"seed": 7}, {"rotate": False}, {}])
def test_options_of_packed_tensors(device, options):
    sizes = (400, 400)
    q, k, v = (normal(sum(sizes), 8, 64, device=device) for _ in range(3))
    lengths = ragged(device, sizes, sizes)
    out, lse = fp8_sdpa.attention_varlen(q, k, v, *lengths.values(), scale=0.2, return_lse=True, **options)
    for own, got, got_lse in zip(
        zip(*(x.split(sizes) for x in (q, k, v)), strict=True),
        out.split(sizes),
        lse.split(sizes, 1),
        strict=True,
    ):
        want, want_lse = exact(*(x.transpose(0, 1)[None] for x in own), scale=0.2)
        assert relative(got.transpose(0, 1)[None], want) < UNQUANTISED * 1.2  # peaked rows
        assert (got_lse[None].cpu() - want_lse).abs().max() < 0.3
    other, other_lse = fp8_sdpa.attention_varlen(q, k, v, *lengths.values(), scale=0.2, return_lse=True)
    assert torch.equal(lse, other_lse) == (not options)
    assert torch.equal(out, other) == (not options)


def test_packed_tensors_may_want_an_exact_lse(monkeypatch):
    asked = []
    below = fp8_sdpa._varlen.attention_varlen_fp8

    def spy(*inputs, **options):
        asked.append(options["exact_lse"])
        return below(*inputs, **options)

    monkeypatch.setattr(fp8_sdpa._varlen, "attention_varlen_fp8", spy)
    x, cu = normal(10, 2, 64), words([0, 10], "cpu")
    for exact_lse in (True, False):
        fp8_sdpa.attention_varlen(x, x, x, cu, cu, 10, 10, return_lse=True, exact_lse=exact_lse)
    assert asked == [True, False]


def test_nan_reaches_its_own_sequence_alone(device):
    queries, keys = (40, 33), (50, 60)
    q = normal(sum(queries), 2, 64, device=device)
    k, v = (normal(sum(keys), 2, 64, device=device) for _ in range(2))
    lengths = ragged(device, queries, keys).values()
    out, lse = fp8_sdpa.attention_varlen(q, k, v, *lengths, return_lse=True)
    k[70, 1, 5] = torch.nan  # of the second sequence, in one head
    got, got_lse = fp8_sdpa.attention_varlen(q, k, v, *lengths, return_lse=True)
    assert got[40:, 1].isnan().all() and got_lse[1, 40:].isnan().all()
    for whole, part in ((got[:40], out[:40]), (got_lse[:, :40], lse[:, :40]), (got[40:, 0], out[40:, 0])):
        assert not part.isnan().any()
        assert (whole - part).abs().max() < 0.2 * part.abs().max()


@pytest.mark.parametrize("junk", [1e30, float("nan"), 1e4])
def test_rows_behind_the_last_sequence_have_no_part(device, junk):
    sizes = (30, 20)
    q, k, v = (normal(sum(sizes), 2, 64, device=device) for _ in range(3))
    lengths = ragged(device, sizes, sizes).values()
    want = fp8_sdpa.attention_varlen(q, k, v, *lengths, return_lse=True)
    longer = [torch.cat((x, torch.full_like(x[:7], junk))) for x in (q, k, v)]
    got = fp8_sdpa.attention_varlen(*longer, *lengths, return_lse=True)
    assert relative(got[0][:50], want[0]) < 0.05  # other codes: what smoothing takes off K is another mean
    assert (got[1][:, :50] - want[1]).abs().max() < 0.1


def test_packed_tensors_agree(device):
    x = normal(20, 2, 64, device=device)
    narrow = normal(20, 2, 32, device=device)
    cu = words([0, 10, 20], device)
    for tensors, name in (((x, narrow, x), "k"), ((x, x, narrow), "v")):
        with pytest.raises(ValueError, match=f"{name} and q have different head_dims, 32 and 64"):
            fp8_sdpa.attention_varlen(*tensors, cu, cu, 10, 10)
    with pytest.raises(ValueError, match="head_dim is 0"):
        fp8_sdpa.attention_varlen(x[..., :0], x[..., :0], x[..., :0], cu, cu, 10, 10)
    with pytest.raises(ValueError, match=r"cu_seqlens_k has shape \(0,\); expected \(batch \+ 1\)"):
        fp8_sdpa.attention_varlen(x, x, x, cu, cu[:0], 10, 10)
    codes = x.to(E4M3)
    with pytest.raises(ValueError, match=r"cu_seqlens_q has shape \(0,\)"):
        varlen(codes, codes, codes, cu_seqlens_q=cu[:0], cu_seqlens_k=cu, max_seqlen_q=10, max_seqlen_k=10)
    with pytest.raises(ValueError, match=r"q has shape \(64,\); expected tokens, heads, head_dim last"):
        varlen(codes[0, 0], codes, codes)


def test_packed_tensors_may_be_empty(device):
    none = normal(0, 2, 64, device=device)
    some = normal(5, 2, 64, device=device)
    nothing, five = words([0, 0], device), words([0, 5], device)
    assert fp8_sdpa.attention_varlen(none, some, some, nothing, five, 1, 5).shape == (0, 2, 64)
    out, lse = fp8_sdpa.attention_varlen(some, none, none, five, nothing, 5, 1, return_lse=True)
    assert (out == 0).all() and (lse == -torch.inf).all()
    with pytest.raises(ValueError, match=r"k has shape \(1, 5, 2, 64\); expected \(total, heads, head_dim\)"):
        fp8_sdpa.attention_varlen(some, some[None], some, five, five, 5, 5)
    with pytest.raises(NotImplementedError, match="attention_varlen is forward only"):
        fp8_sdpa.attention_varlen(some.requires_grad_(), some, some, five, five, 5, 5).sum().backward()
