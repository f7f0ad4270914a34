"""fp8_sdpa.quantise(): codes, descales, rotation; attention with descales of blocks of rows."""

import itertools

import fp8_sdpa
import pytest
import torch
from conftest import BF16, E4M3, E5M2, UNQUANTISED, WEIGHTS, exact, normal, problem, relative


@pytest.mark.parametrize("dtype, largest", [(None, 448.0), (E4M3, 448.0), (E5M2, 57344.0)])
@pytest.mark.parametrize("of", [BF16, torch.float16, torch.float32])
def test_quantise_is_amax_and_rounding(device, dtype, largest, of):
    x = normal(2, 3, 50, 128, device=device, dtype=of)
    made = fp8_sdpa.quantise(x, dtype=dtype)
    assert made.codes.dtype == (dtype or E4M3) and made.codes.shape == x.shape
    amax = x.float().abs().amax(dim=(2, 3))
    assert torch.allclose(made.descale, amax / largest, rtol=1e-6)
    assert made.mean is None and made.infinities == 0 and made.infinities.dtype == torch.int32
    want = (x.float() * (1 / made.descale)[..., None, None]).to(made.codes.dtype)
    assert torch.equal(made.codes.view(torch.uint8), want.view(torch.uint8))


def test_quantise_by_given_descales(device):
    x = normal(2, 3, 50, 64, device=device)
    given = torch.rand(2, 3, device=device) + 0.01
    made = fp8_sdpa.quantise(x, given)
    assert torch.equal(made.descale, given)
    want = (x.float() * (1 / given)[..., None, None]).clamp(-448, 448).to(E4M3)
    assert torch.equal(made.codes.view(torch.uint8), want.view(torch.uint8))
    by_number = fp8_sdpa.quantise(x, 0.25)
    assert (by_number.descale == 0.25).all()
    assert torch.equal(by_number.codes.view(torch.uint8), (x.float() * 4).to(E4M3).view(torch.uint8))


@pytest.mark.parametrize("rows", [64, 128])
def test_quantise_by_blocks_of_rows(device, rows):
    x = normal(2, 3, 300, 64, device=device) * torch.arange(1, 301, device=device)[:, None].to(BF16)
    made = fp8_sdpa.quantise(x, block_rows=rows)
    blocks = x.float().split(rows, dim=2)
    assert torch.allclose(made.descale, torch.stack([b.abs().amax(dim=(2, 3)) for b in blocks], 2) / 448)
    whole = made.descale.repeat_interleave(rows, dim=2)[:, :, :300, None]
    assert torch.equal(made.codes.view(torch.uint8), (x.float() * (1 / whole)).to(E4M3).view(torch.uint8))
    given = torch.rand(2, 3, len(blocks), device=device) + 1
    again = fp8_sdpa.quantise(x, given, block_rows=rows)
    assert torch.equal(again.descale, given)
    whole = given.repeat_interleave(rows, dim=2)[:, :, :300, None]
    want = (x.float() * (1 / whole)).clamp(-448, 448).to(E4M3)
    assert torch.equal(again.codes.view(torch.uint8), want.view(torch.uint8))


def test_quantise_counts_infinities_and_keeps_nan(device):
    x = normal(1, 2, 50, 64, device=device)
    x[0, 0, 3, 5], x[0, 1, 7, 9], x[0, 1, 8, 8] = torch.inf, -torch.inf, torch.nan
    made = fp8_sdpa.quantise(x)
    assert made.infinities == 2
    of = made.codes.float()
    assert of[0, 0, 3, 5] == 448 and of[0, 1, 7, 9] == -448
    assert of.isnan().sum() == 1 and of[0, 1, 8, 8].isnan()


def test_rotation_keeps_scores(device):
    q, k, _ = problem(device, heads_kv=4)
    for seed in (0, 1, -3):
        a, b = (fp8_sdpa.quantise(x, rotate=True, seed=seed) for x in (q, k))
        rotated = [x.codes.float() * x.descale[..., None, None] for x in (a, b)]
        scores = rotated[0] @ rotated[1].transpose(-1, -2)
        assert relative(scores, q.double() @ k.double().transpose(-1, -2)) < 0.06
    other = fp8_sdpa.quantise(q, rotate=True, seed=1)
    assert not torch.equal(other.codes.view(torch.uint8), a.codes.view(torch.uint8))


def by_rows(descale, rows, seq):
    """(batch, heads, seq, 1) of descales of blocks of `rows` rows."""
    return descale.repeat_interleave(rows, dim=2)[:, :, :seq, None]


def has_blocks(device):
    return device == "cpu" or torch.cuda.get_device_capability()[0] == 9


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("head_dim", [64, 128, 256, 40])
def test_descales_of_blocks(device, head_dim, causal):
    q, k, v = problem(device, head_dim=head_dim, seq_q=150, seq_kv=300)
    tensors = [x.to(E4M3) for x in (q, k, v)]
    descales = [torch.rand(2, h, n, device=device) + 0.2 for h, n in ((4, 3), (2, 3), (2, 3))]
    if not has_blocks(device):
        with pytest.raises(NotImplementedError, match="block"):
            fp8_sdpa.attention_fp8(*tensors, *descales)
        return
    options = {"causal": causal, "return_lse": True}
    out, lse = fp8_sdpa.attention_fp8(*tensors, *descales, **options)
    whole = [
        x.float() * by_rows(d, rows, x.shape[2])
        for x, d, rows in zip(tensors, descales, (64, 128, 128), strict=True)
    ]
    want, want_lse = exact(*whole, causal=causal)
    for b, h in itertools.product(range(2), range(4)):
        assert relative(out[b, h], want[b, h]) < WEIGHTS
    assert (lse.cpu() - want_lse).abs().max() < 0.1
    # A number stands for all blocks; what broadcasts to them does.
    same = [torch.full_like(d, 0.7) for d in descales]
    same[0] = descales[0][:, :1].expand_as(descales[0]).contiguous()
    out, _ = fp8_sdpa.attention_fp8(*tensors, *same, **options)
    other, _ = fp8_sdpa.attention_fp8(*tensors, descales[0][:, :1], 0.7, 0.7, **options)
    assert torch.equal(out, other)


@pytest.mark.parametrize("rotate, smooth", [(True, True), (False, False)])
def test_attention_with_scales_of_blocks(device, rotate, smooth):
    q, k, v = problem(device, seq_q=150, seq_kv=300)
    q[:, :, 130] *= 1e5  # of the last block: it costs the rows of the others nothing
    block = {"granularity": "block", "batch_invariant": True}
    plain = fp8_sdpa.explain(q, k, v, batch_invariant=True)
    assert "a scale per (batch, head)\n" in plain
    assert plain == fp8_sdpa.explain(q, k, v, batch_invariant=True, granularity="head")
    assert fp8_sdpa.explain(q, k, v) == fp8_sdpa.explain(q, k, v, granularity="block")
    said = fp8_sdpa.explain(q, k, v, **block)
    assert fp8_sdpa.explain(q, k, v, batch_invariant=True) == plain  # two plans, remembered apart
    if not has_blocks(device):
        assert "a scale per (batch, head)\n" in said
        return
    assert "a scale per block of 64 queries and of 128 keys\n" in said
    options = {"rotate": rotate, "smooth": smooth, "seed": 5, "return_lse": True}
    out, lse = fp8_sdpa.attention(q, k, v, **options, **block)
    made = [
        fp8_sdpa.quantise(q, rotate=rotate, seed=5, block_rows=64),
        fp8_sdpa.quantise(k, rotate=rotate, seed=5, smooth=smooth, block_rows=128),
        fp8_sdpa.quantise(v, block_rows=128),
    ]
    parts, parts_lse = fp8_sdpa.attention_fp8(
        *(x.codes for x in made), *(x.descale for x in made), return_lse=True, batch_invariant=True
    )
    assert torch.equal(out, parts)
    assert smooth or torch.equal(lse, parts_lse)
    of_heads, _ = fp8_sdpa.attention(q, k, v, **options, batch_invariant=True)
    assert not torch.equal(out, of_heads)
    want, _ = exact(q, k, v)
    others = slice(0, 128)
    assert relative(out[:, :, others], want[:, :, others]) < UNQUANTISED
    assert relative(of_heads[:, :, others], want[:, :, others]) > UNQUANTISED


def test_quantise_is_forward_only(device):
    x = normal(1, 2, 50, 64, device=device).requires_grad_()
    with pytest.raises(NotImplementedError, match="fp8_sdpa.quantise is forward only"):
        fp8_sdpa.quantise(x).descale.sum().backward()
    with pytest.raises(ValueError, match=r"x has shape \(50, 64\); expected \(batch"):
        fp8_sdpa.quantise(x[0, 0], block_rows=64)


@pytest.mark.parametrize("keys", [90, 300])
def test_tensors_may_differ_in_dtype(device, keys):
    q, k, v = problem(device, seq_kv=keys)
    plain = {"rotate": False, "smooth": False}
    want = fp8_sdpa.attention(q, k, v, **plain, granularity="head")
    for mixed in ((q, k, v.float()), (q, k.float(), v)):
        for granularity in ("head", "block"):
            assert torch.equal(fp8_sdpa.attention(*mixed, **plain, granularity=granularity), want)


def test_short_heads_have_the_codes_of_one_block(device):
    """Of q too, which would be two blocks of 64 queries: a head has one descale."""
    if not has_blocks(device):
        pytest.skip("quantised head by head")
    q, k, v = problem(device, seq_q=100, seq_kv=90)
    q *= torch.arange(1, 5, device=device)[:, None, None]
    of = [
        fp8_sdpa.quantise(x, rotate=rotate, smooth=smooth, block_rows=128)
        for x, rotate, smooth in ((q, True, False), (k, True, True), (v, False, False))
    ]
    parts = fp8_sdpa.attention_fp8(*(x.codes for x in of), *(x.descale[..., 0] for x in of))
    assert torch.equal(fp8_sdpa.attention(q, k, v), parts)


def test_blocks_are_the_default(device):
    if not has_blocks(device):
        pytest.skip("no blocks here")
    q, k, v = problem(device, seq_q=150, seq_kv=300)
    out = fp8_sdpa.attention(q, k, v)
    assert torch.equal(out, fp8_sdpa.attention(q, k, v, granularity="block"))
    assert not torch.equal(out, fp8_sdpa.attention(q, k, v, granularity="head"))


def test_attention_fp8_is_batch_invariant_without_an_lse_too(device):
    of = [fp8_sdpa.quantise(x) for x in problem(device, batch=1, seq_q=16, seq_kv=900)]
    inputs = (*(x.codes for x in of), *(x.descale for x in of))
    with_lse, _ = fp8_sdpa.attention_fp8(*inputs, batch_invariant=True, return_lse=True)
    assert torch.equal(fp8_sdpa.attention_fp8(*inputs, batch_invariant=True), with_lse)
    assert device == "cuda" or not torch.equal(fp8_sdpa.attention_fp8(*inputs), with_lse)
