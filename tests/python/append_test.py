"""fp8_sdpa.append(): new keys and values into a cache in pages."""

import fp8_sdpa
import pytest
import torch
from conftest import BF16, E4M3, E5M2, WEIGHTS, exact, normal, relative

DESCALES = torch.tensor([0.25, 0.5])  # powers of two: x * (1 / descale) is x / descale


def caches(device, *, pages=6, page_size=16, heads=2, head_dim=64, dtype=E4M3):
    """Of NaN codes."""
    shape = (pages, page_size, heads, head_dim)
    return [torch.full(shape, 0xFF, dtype=torch.uint8, device=device).view(dtype) for _ in "kv"]


def rows(cache):
    """(slots, heads, head_dim)"""
    return cache.view(torch.uint8).flatten(0, 1)


def new(device, tokens=9, heads=2, head_dim=64, dtype=BF16):
    return [normal(tokens, heads, head_dim, device=device, dtype=dtype) for _ in "kv"]


def slots_of(tokens, device, slots=96):
    return torch.randperm(slots)[:tokens].to(device)


@pytest.mark.parametrize("to", [E4M3, E5M2])
@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
def test_slots_hold_the_codes_and_nothing_else_is_written(device, dtype, to):
    k, v = new(device, dtype=dtype)
    cache, slots = caches(device, dtype=to), slots_of(9, device)
    descales = DESCALES.to(device), DESCALES.flip(0).to(device)
    assert fp8_sdpa.append(k, v, *cache, slots, *descales) is None
    others = torch.ones(96, dtype=torch.bool)
    others[slots.cpu()] = False
    for x, pool, descale in zip((k, v), cache, descales, strict=True):
        want = (x.float() / descale[:, None]).to(to).view(torch.uint8)
        assert torch.equal(rows(pool)[slots], want)
        assert (rows(pool).cpu()[others] == 0xFF).all()


def test_attention_reads_what_was_appended(device):
    k, v = new(device, tokens=50)
    cache = caches(device)
    table = torch.tensor([[4, 0, 5, 2]], dtype=torch.int32, device=device)
    slots = torch.cat([16 * table[0, i].long() + torch.arange(16, device=device) for i in range(4)])
    for begin, end in ((0, 33), (33, 34), (34, 50)):
        fp8_sdpa.append(k[begin:end], v[begin:end], *cache, slots[begin:end], 0.25, 0.25)
    q = normal(1, 3, 4, 64, device=device).to(E4M3)
    used = torch.tensor([50], dtype=torch.int32, device=device)
    out = fp8_sdpa.attention_varlen_fp8(
        q, *cache, None, 0.25, 0.25, seqused_k=used, block_table=table, causal=True
    )
    codes = [((x.float() / 0.25).to(E4M3).float() * 0.25).transpose(0, 1)[None] for x in (k, v)]
    want, _ = exact(q.float().transpose(1, 2), *codes, causal=True)
    assert relative(out.transpose(1, 2), want) < WEIGHTS


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_dim", [64, 32])
def test_keys_are_turned_by_their_positions(device, rotary_dim, interleaved):
    k, v = new(device)
    cache, slots = caches(device), slots_of(9, device)
    positions = torch.randint(1000, (9,))
    angles = torch.arange(1000)[:, None] * 10000.0 ** (-2 * torch.arange(rotary_dim // 2) / rotary_dim)
    table = torch.cat([angles.cos(), angles.sin()], 1).to(device)
    rotary = {"cos_sin": table, "positions": positions.to(device), "interleaved": interleaved}
    fp8_sdpa.append(k, v, *cache, slots, 0.25, 0.25, **rotary)
    x = k.cpu().double()
    pairs = x[..., :rotary_dim].unflatten(-1, (-1, 2) if interleaved else (2, -1))
    a, b = pairs.unbind(-1 if interleaved else -2)
    cos, sin = (f(angles[positions].double())[:, None] for f in (torch.cos, torch.sin))
    turned = torch.stack([a * cos - b * sin, b * cos + a * sin], -1 if interleaved else -2).flatten(-2)
    want = torch.cat([turned, x[..., rotary_dim:]], -1)
    got = rows(cache[0])[slots].view(E4M3).float().cpu() * 0.25
    half_a_code = (want.abs() * 2**-4).clamp(min=0.25 * 2**-10)
    assert ((got - want).abs() <= half_a_code + 1e-5).all()
    assert torch.equal(rows(cache[1])[slots], (v.float() / 0.25).to(E4M3).view(torch.uint8))


def test_what_has_no_place_is_not_written(device):
    k, v = new(device, tokens=4)
    cache = caches(device)
    fault = torch.zeros(1, dtype=torch.int32, device=device)
    fp8_sdpa.append(k, v, *cache, torch.tensor([-1, 3, -5, 7], device=device), fault=fault)
    assert fault.item() == 0
    written = (rows(cache[0]).cpu() != 0xFF).any(-1).any(-1).nonzero().flatten().tolist()
    assert written == [3, 7]
    for slot in (96, 2**40):
        fp8_sdpa.append(k[:1], v[:1], *cache, torch.tensor([slot], device=device), fault=fault)
        assert fault.item() == 1
        fault.zero_()
    table = torch.ones(10, 64, device=device)
    for position, is_told in ((9, 0), (10, 1), (-1, 1)):
        slots, positions = (torch.tensor([n], device=device) for n in (50, position))
        fp8_sdpa.append(k[:1], v[:1], *cache, slots, cos_sin=table, positions=positions, fault=fault)
        assert fault.item() == is_told
        assert (rows(cache[0])[50] == 0xFF).all() == is_told
        rows(cache[0])[50] = 0xFF
        fault.zero_()
    fp8_sdpa.append(k[:0], v[:0], *cache, torch.tensor([], dtype=torch.int64, device=device))


def test_caches_may_be_halves_of_one_tensor(device):
    k, v = new(device)
    both = torch.full((6, 2, 16, 2, 64), 0xFF, dtype=torch.uint8, device=device).view(E4M3)
    cache, slots = caches(device), slots_of(9, device)
    fp8_sdpa.append(k, v, both[:, 0], both[:, 1], slots)
    fp8_sdpa.append(k, v, *cache, slots)
    for half, whole in enumerate(cache):
        assert torch.equal(both[:, half].contiguous().view(torch.uint8), whole.view(torch.uint8))


def test_refusals_name_what_is_wrong(device):
    k, v = new(device)
    cache, slots = caches(device), slots_of(9, device)
    table, positions = torch.ones(10, 64, device=device), slots.clamp(max=9)

    def call(*tensors, **options):
        return lambda: fp8_sdpa.append(*tensors, **options)

    cases = [
        ("k has shape (1, 9, 2, 64); expected (tokens", call(k[None], v, *cache, slots)),
        ("v has shape (64,); expected (tokens", call(k, v[0, 0], *cache, slots)),
        ("k_cache has shape (16, 2, 64); expected (pages", call(k, v, cache[0][0], cache[1], slots)),
        ("v and k have different numbers of tokens, 8 and 9", call(k, v[1:], *cache, slots)),
        ("v and k have different numbers of heads, 1 and 2", call(k, v[:, :1], *cache, slots)),
        ("k_cache and k have different head_dims, 32 and 64",
         call(k, v, cache[0][..., :32], cache[1], slots)),
        ("v_cache and k have different numbers of heads, 1 and 2",
         call(k, v, cache[0], cache[1][:, :, :1], slots)),
        ("v_cache and k_cache have different numbers of pages, 5 and 6",
         call(k, v, cache[0], cache[1][1:], slots)),
        ("v_cache and k_cache have different page sizes, 8 and 16",
         call(k, v, cache[0], cache[1][:, :8], slots)),
        ("v_cache overlaps k_cache", call(k, v, cache[0], cache[0], slots)),
        ("slot_mapping must be int64, contiguous, of shape (9)", call(k, v, *cache, slots.int())),
        ("slot_mapping must be int64", call(k, v, *cache, slots[1:])),
        ("slot_mapping must be int64, contiguous, of shape (9)", call(k, v, *cache, slots[:, None])),
        ("slot_mapping must be int64, contiguous",
         call(k, v, *cache, slots.repeat_interleave(2)[::2])),
        ("k_descale must be float32", call(k, v, *cache, slots, DESCALES.double().to(device))),
        ("cos_sin and positions are for each other", call(k, v, *cache, slots, cos_sin=table)),
        ("cos_sin and positions are for each other", call(k, v, *cache, slots, positions=positions)),
        ("cos_sin must be float32", call(k, v, *cache, slots, cos_sin=table.half(), positions=positions)),
        ("positions must be int64, contiguous, of shape (9)",
         call(k, v, *cache, slots, cos_sin=table, positions=positions[1:])),
        ("rotary.dim is 24",
         call(k, v, *cache, slots, cos_sin=table[:, :24].contiguous(), positions=positions)),
        ("fault must be int32", call(k, v, *cache, slots, fault=slots[:1])),
        ("k.dtype is e4m3; it must be bf16, half or float",
         call(k.to(E4M3), v.to(E4M3), *cache, slots)),
        ("v.dtype is half; it must be that of k", call(k, v.half(), *cache, slots)),
        ("innermost stride is 2", call(k.repeat_interleave(2, 2)[..., ::2], v, *cache, slots)),
    ]  # fmt: skip
    for text, refused in cases:
        with pytest.raises(ValueError) as raised:
            refused()
        assert text in str(raised.value)
    with pytest.raises(NotImplementedError, match="head_dim is 8; multiples of 16"):
        narrow = (x[..., :8] for x in (k, v, *cache))
        fp8_sdpa.append(*narrow, slots)


def test_compiles_as_one_graph(device):
    k, v = new(device)
    cache, slots = caches(device), slots_of(9, device)

    def step(k, v, slots):
        fp8_sdpa.append(k * 2, v, *cache, slots, 0.5, 0.5)
        return v + 1

    torch.compile(step, fullgraph=True, backend="aot_eager")(k, v, slots)
    assert torch.equal(rows(cache[0])[slots], (k.float() * 4).to(E4M3).view(torch.uint8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_replayed_graph_sees_new_slots():
    k, v = new("cuda")
    cache, slots = caches("cuda"), slots_of(9, "cuda")
    fp8_sdpa.append(k, v, *cache, slots)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fp8_sdpa.append(k, v, *cache, slots)
    slots.copy_((slots + 13) % 96)
    k.mul_(2)
    graph.replay()
    assert torch.equal(rows(cache[0])[slots], k.to(E4M3).view(torch.uint8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_tensors_lie_together():
    k, v = new("cuda")
    cache, slots = caches("cuda"), slots_of(9, "cuda")
    for name, tensors in (("v", (k, v.cpu(), *cache, slots)), ("slot_mapping", (k, v, *cache, slots.cpu()))):
        with pytest.raises(ValueError, match=f"{name} lies on another device"):
            fp8_sdpa.append(*tensors)
