"""fp8_sdpa.hooks: the model that transformers builds runs these operators."""

import fp8_sdpa
import pytest
import torch
import transformers
from conftest import UNQUANTISED, relative
from fp8_sdpa import hooks


@pytest.fixture
def calls(monkeypatch):
    made = []

    def counted(*tensors, **options):
        made.append(options["causal"])
        return fp8_sdpa.attention(*tensors, **options)

    monkeypatch.setattr(hooks, "attention", counted)
    return made


def models(**config):
    """One small model of random weights, with PyTorch's attention and with ours."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 100}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}

    def built(implementation):
        made = transformers.LlamaConfig(**sizes, **heads, **config)
        return transformers.LlamaForCausalLM._from_config(made, attn_implementation=implementation)

    theirs, ours = built("sdpa"), built("fp8_sdpa")
    ours.load_state_dict(theirs.state_dict())
    return theirs.eval(), ours.eval()


def test_a_model_runs_in_fp8(calls):
    hooks.register_transformers()
    theirs, ours = models()
    tokens = torch.randint(1, 100, (2, 70))
    with torch.no_grad():
        assert relative(ours(tokens).logits, theirs(tokens).logits) < UNQUANTISED
    assert calls == [True, True]  # a layer each
    calls.clear()
    generated = ours.generate(tokens, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)
    assert generated.shape == (2, 73)
    assert calls == [True, True, False, False, False, False]  # the prompt, then a token at a time


def test_packed_sequences_run_in_fp8(monkeypatch):
    made = []

    def counted(*tensors, **options):
        made.append(options["causal"])
        return fp8_sdpa.attention_varlen(*tensors, **options)

    monkeypatch.setattr(hooks, "attention_varlen", counted)
    hooks.register_transformers(fallback=False)
    theirs, ours = models()
    lengths = (40, 3, 70)
    tokens = torch.randint(1, 100, (1, sum(lengths)))
    offsets = torch.tensor([0, 40, 43, 113], dtype=torch.int32)
    packed = {
        "position_ids": torch.cat([torch.arange(n) for n in lengths])[None],
        "cu_seq_lens_q": offsets,
        "cu_seq_lens_k": offsets,
        "max_length_q": 70,
        "max_length_k": 70,
    }
    with torch.no_grad():
        out = ours(tokens, **packed).logits
        alone = [theirs(part).logits for part in tokens.split(lengths, 1)]
    assert made == [True, True]
    for got, want in zip(out.split(lengths, 1), alone, strict=True):
        assert relative(got, want) < UNQUANTISED


def test_padding_falls_back_or_is_declined(calls):
    hooks.register_transformers()
    theirs, ours = models()
    tokens = torch.randint(0, 100, (2, 30))
    mask = torch.ones(2, 30, dtype=torch.long)
    mask[0, :7] = 0
    with torch.no_grad():
        assert torch.equal(
            ours(tokens, attention_mask=mask).logits, theirs(tokens, attention_mask=mask).logits
        )
        assert not calls
        hooks.register_transformers(fallback=False)
        with pytest.raises(NotImplementedError, match="attention_mask is given"):
            ours(tokens, attention_mask=mask)
        with pytest.raises(NotImplementedError, match="dropout is 0.5"):
            models(attention_dropout=0.5)[1].train()(tokens)
        assert not calls
        ours(tokens)
    assert len(calls) == 2
    hooks.register_transformers("other_name")
    assert models()[1].config._attn_implementation == "fp8_sdpa"


def test_what_is_not_served_is_named():
    hooks.register_transformers("strict", fallback=False)
    forward = transformers.AttentionInterface()["strict"]
    q = torch.randn(1, 2, 20, 64)
    module = torch.nn.Module()
    for option in ("softcap", "s_aux", "position_bias"):
        with pytest.raises(NotImplementedError, match=f"{option} is not served"):
            forward(module, q, q, q, None, **{option: 1.0})
    packed = dict.fromkeys(hooks._PACKED, 20)
    with pytest.raises(NotImplementedError, match="sliding_window is not served with packed"):
        forward(module, q, q, q, None, sliding_window=8, **packed)
    out, weights = forward(module, q, q, q, None, scaling=0.3)  # causal by default, as transformers has it
    assert weights is None and out.dtype == q.dtype
    assert torch.equal(out.transpose(1, 2), fp8_sdpa.attention(q, q, q, causal=True, scale=0.3).float())
    out, _ = forward(module, q, q, q, None, is_causal=False)
    assert torch.equal(out.transpose(1, 2), fp8_sdpa.attention(q, q, q).float())


def test_a_model_of_diffusers_runs_in_fp8(monkeypatch):
    from diffusers import FluxTransformer2DModel

    made = []

    def counted(*tensors, **options):
        made.append(tensors[0].shape)
        return fp8_sdpa.attention(*tensors, **options)

    monkeypatch.setattr("fp8_sdpa._sdpa.attention", counted)
    torch.manual_seed(0)
    widths = {"in_channels": 4, "joint_attention_dim": 32, "pooled_projection_dim": 32}
    heads = {"num_attention_heads": 2, "attention_head_dim": 64, "axes_dims_rope": [16, 24, 24]}
    model = FluxTransformer2DModel(num_layers=1, num_single_layers=1, **widths, **heads).eval()
    inputs = {
        "hidden_states": torch.randn(1, 64, 4),
        "encoder_hidden_states": torch.randn(1, 16, 32),
        "pooled_projections": torch.randn(1, 32),
        "timestep": torch.tensor([1.0]),
        "img_ids": torch.randn(64, 3),
        "txt_ids": torch.zeros(16, 3),
    }
    with torch.no_grad():
        want = model(**inputs).sample
        with hooks.replace_sdpa():
            out = model(**inputs).sample
    assert relative(out, want) < UNQUANTISED
    assert made == [(1, 2, 80, 64)] * 2  # a layer of each kind
