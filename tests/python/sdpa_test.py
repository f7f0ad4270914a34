"""fp8_sdpa.sdpa is torch.nn.functional.scaled_dot_product_attention, in FP8."""

import importlib.resources
import pathlib
import re
import subprocess
import sys

import fp8_sdpa
import pytest
import torch
from conftest import UNQUANTISED, exact, problem, relative
from fp8_sdpa import hooks

reference = torch.nn.functional.scaled_dot_product_attention


def normal(*shape, device, dtype=torch.bfloat16):
    return torch.randn(*shape).to(dtype).to(device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rows, keys", [(64, 64), (33, 150), (150, 33)])
@pytest.mark.parametrize("causal", [False, True])
def test_is_torchs(device, dtype, rows, keys, causal):
    q = normal(2, 3, rows, 64, device=device, dtype=dtype)
    k, v = (normal(2, 3, keys, 64, device=device, dtype=dtype) for _ in range(2))
    want = reference(q.float(), k.float(), v.float(), is_causal=causal, scale=0.2)
    out = fp8_sdpa.sdpa(q, k, v, is_causal=causal, scale=0.2)
    assert out.dtype == dtype and out.shape == want.shape
    assert relative(out, want) < UNQUANTISED
    # Aligned top-left, as PyTorch's is.
    assert relative(out, exact(q, k, v, causal=causal, scale=0.2, top_left=True)[0]) < UNQUANTISED


def test_grouped_heads_want_a_word(device):
    q = normal(1, 4, 40, 64, device=device)
    k, v = (normal(1, 2, 40, 64, device=device) for _ in range(2))
    want = reference(q.float(), k.float(), v.float(), enable_gqa=True)
    assert relative(fp8_sdpa.sdpa(q, k, v, enable_gqa=True), want) < UNQUANTISED
    with pytest.raises(ValueError, match="query has 4 heads and key 2: enable_gqa=True is for that"):
        fp8_sdpa.sdpa(q, k, v)
    for causal in (False, True):
        with pytest.raises(NotImplementedError, match="query has 2 axes; 4, or 3 without the batch"):
            fp8_sdpa.sdpa(q[0, 0], k[0, 0], v[0, 0], is_causal=causal)


def test_without_a_batch(device):
    q, k, v = (normal(4, 40, 64, device=device) for _ in range(3))
    out = fp8_sdpa.sdpa(q, k, v, is_causal=True)
    assert out.shape == q.shape
    assert relative(out, reference(q.float(), k.float(), v.float(), is_causal=True)) < UNQUANTISED


def test_options_reach_the_kernel(device):
    q, k, v = (normal(1, 2, 40, 64, device=device) for _ in range(3))
    for options in ({"rotate": False}, {"smooth": False}, {"rotate": False, "smooth": False}, {}):
        assert torch.equal(fp8_sdpa.sdpa(q, k, v, **options), fp8_sdpa.attention(q, k, v, **options))


def test_what_is_declined_is_named_or_handed_on(device):
    q, k, v = (normal(1, 2, 40, 64, device=device) for _ in range(3))
    mask = torch.ones(40, 40, dtype=torch.bool, device=device).tril()
    wide = normal(1, 1, 8, 300, device=device)
    cases = [
        ("attn_mask is given", (q, k, v), {"attn_mask": mask}),
        ("dropout_p is 0.5", (q, k, v), {"dropout_p": 0.5}),
        ("head_dim is 300", (wide, wide, wide), {}),
        ("value and query have different head_dims, 32 and 64", (q, k, v[..., :32]), {}),
        ("key has 3 axes", (q, k[0], v), {}),
        ("query is torch.float64, which is none of", (q.double(), k.double(), v.double()), {}),
        ("requires a gradient", (q.clone().requires_grad_(), k, v), {}),
        ("requires a gradient", (q, k, v.clone().requires_grad_()), {"is_causal": True, "scale": 0.3}),
    ]
    for text, tensors, options in cases:
        with pytest.raises(NotImplementedError, match=text):
            fp8_sdpa.sdpa(*tensors, **options)
        torch.manual_seed(0)
        got = fp8_sdpa.sdpa(*tensors, **options, fallback=True)
        torch.manual_seed(0)
        assert torch.equal(got, reference(*tensors, **options))
    with torch.no_grad():
        assert torch.equal(fp8_sdpa.sdpa(q.requires_grad_(), k, v), fp8_sdpa.attention(q, k, v))
    # What contradicts itself is an error with fallback too: PyTorch's.
    for causal in (False, True):
        with pytest.raises(ValueError, match="different lengths, 9 and 40"):
            fp8_sdpa.sdpa(q.detach(), k, v[:, :, :9], is_causal=causal)
    with pytest.raises(RuntimeError):
        fp8_sdpa.sdpa(q.detach(), k, v[:, :1, :9], fallback=True)
    # PyTorch serves heads of one that stand for all, without a word.
    one = fp8_sdpa.sdpa(q.detach(), k[:, :1], v[:, :1], fallback=True)
    assert torch.equal(one, reference(q.detach(), k[:, :1], v[:, :1]))
    grouped = fp8_sdpa.sdpa(q.double(), k[:, :1].double(), v[:, :1].double(), enable_gqa=True, fallback=True)
    assert torch.equal(grouped, reference(q.double(), k[:, :1].double(), v[:, :1].double(), enable_gqa=True))


@pytest.mark.parametrize("file", ["README.md", "python/README.md"])
def test_the_lines_of_the_readme_run(file, device, capsys):
    text = (pathlib.Path(__file__).parents[2] / file).read_text()
    lines = text.split("```python\n")[1].split("```")[0]
    exec(lines.replace('"cuda"', f'"{device}"').replace("8192", "200"), {})
    assert "FP8 tensor cores" in capsys.readouterr().out


def test_the_package_says_what_it_is():
    said = subprocess.run([sys.executable, "-m", "fp8_sdpa"], capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert re.fullmatch(r"fp8_sdpa \d+\.\d+\.\d+", lines[0])
    assert lines[1].startswith(f"PyTorch {torch.__version__}")
    assert lines[2] == "cpu"
    assert "  2 x 16 x 8192 on 8192 keys, head_dim 128: sm90_" in said.stdout
    assert importlib.resources.files("fp8_sdpa").joinpath("py.typed").is_file()


def test_replace_sdpa_reaches_who_calls_pytorchs(device, monkeypatch):
    made = []

    def counted(*tensors, **options):
        made.append(options)
        return fp8_sdpa.attention(*tensors, **options)

    monkeypatch.setattr("fp8_sdpa._sdpa.attention", counted)
    layer = torch.nn.MultiheadAttention(128, 2, batch_first=True).to(device)
    x = torch.randn(1, 40, 128, device=device)
    padding = torch.zeros(1, 40, dtype=torch.bool, device=device)
    padding[0, 30:] = True
    with torch.no_grad():
        want = layer(x, x, x, need_weights=False)[0]
        masked = layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
        with fp8_sdpa.hooks.replace_sdpa(rotate=False):
            with fp8_sdpa.hooks.replace_sdpa(), pytest.raises(ZeroDivisionError):
                assert relative(layer(x, x, x, need_weights=False)[0], want) < UNQUANTISED
                raise ZeroDivisionError
            layer(x, x, x, need_weights=False)
            assert [options["rotate"] for options in made] == [True, False]
            # Not served: PyTorch's own, not what its name stands for here.
            assert torch.equal(layer(x, x, x, key_padding_mask=padding, need_weights=False)[0], masked)
        with (
            fp8_sdpa.hooks.replace_sdpa(fallback=False),
            pytest.raises(NotImplementedError, match="attn_mask"),
        ):
            layer(x, x, x, key_padding_mask=padding, need_weights=False)
    assert len(made) == 2
    assert torch.nn.functional.scaled_dot_product_attention is reference


# --- as an implementation of PyTorch's flash attention -------------------------------------------------


@pytest.fixture
def flash_attention():
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        pytest.skip("this PyTorch has no register_flash_attention_impl")
    hooks.register_flash_attention()
    torch.nn.attention.activate_flash_attention_impl("fp8_sdpa")
    yield
    torch.nn.attention.restore_flash_attention_impl()


def test_pytorch_knows_this_flash_attention(flash_attention):
    assert torch.nn.attention.current_flash_attention_impl() == "fp8_sdpa"
    q, k, v = problem("cpu", heads_kv=4)
    found = hooks._flash_forward(q, k, v, 0.0, False, scale=0.1)
    want = fp8_sdpa.attention(q, k, v, scale=0.1, return_lse=True)
    assert len(found) == 9 and found[4:6] == (70, 150)
    assert torch.equal(found[0], want[0]) and torch.equal(found[1], want[1])
    masked, _ = fp8_sdpa.attention(q, k, v, causal=True, return_lse=True)
    assert torch.equal(hooks._flash_forward(q, k, v, 0.0, True)[0], masked)
    with pytest.raises(NotImplementedError, match="dropout_p is 0.1"):
        hooks._flash_forward(q, k, v, 0.1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("causal", [False, True])
def test_pytorchs_flash_attention_is_this(flash_attention, causal):
    from torch.nn.attention import SDPBackend, restore_flash_attention_impl, sdpa_kernel

    q, k, v = problem("cuda", seq_q=150, heads_kv=4)
    theirs = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        out = theirs(q, k, v, is_causal=causal)
        assert torch.equal(out, fp8_sdpa.attention(q, k, v, causal=causal, return_lse=True)[0])
        with pytest.raises(NotImplementedError, match="forward only"):
            theirs(q.requires_grad_(), k, v).sum().backward()
        restore_flash_attention_impl()
        assert not torch.equal(theirs(q, k, v, is_causal=causal), out)
        torch.nn.attention.activate_flash_attention_impl("fp8_sdpa")
