"""python/examples run as they stand."""

import importlib.util
import pathlib
import re

import pytest
import torch
import transformers

EXAMPLES = pathlib.Path(__file__).parents[2] / "python" / "examples"


@pytest.fixture
def model_quality():
    spec = importlib.util.spec_from_file_location("model_quality", EXAMPLES / "model_quality.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def layers_of(text):
    return [list(map(float, row.split()[1:])) for row in re.findall(r"^ +\d+ .*", text, re.MULTILINE)]


def test_model_quality_of_a_made_model(model_quality, device, capsys):
    model_quality.main(["--tokens", "150", "--pieces", "2", "--device", device, "--speed", "140", "150"])
    said = capsys.readouterr().out
    layers = layers_of(said)
    assert len(layers) == 2
    assert all(0.0 < error < 0.08 for layer in layers for error in layer)
    assert len({error for layer in layers for error in layer}) >= 4
    assert all(int8 < 0.4 * min(fp8) for *fp8, int8 in layers)
    changes = [float(x) for x in re.findall(r"\(([-+.0-9]+) %\)", said)]
    assert len(changes) == 5 and all(0.0 < abs(change) < 2.0 for change in changes)
    passes = re.findall(r"^(\d+) tokens: sdpa ([.\d]+) ms, fp8_sdpa ([.\d]+) ms, ([.\d]+) times$", said, re.M)
    assert [int(tokens) for tokens, *_ in passes] == [140, 150]
    for _, sdpa_ms, fp8_ms, times in passes:
        assert float(times) == pytest.approx(float(sdpa_ms) / float(fp8_ms), rel=0.1, abs=0.01)


def test_model_quality_of_an_encoder_on_disk(model_quality, tmp_path, capsys):
    letters = "abcdefghijklmnopqrstuvwxyz"
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]))
    transformers.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "model")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2}
    torch.manual_seed(0)
    transformers.BertModel(
        transformers.BertConfig(vocab_size=31, initializer_range=0.2, **sizes)
    ).save_pretrained(tmp_path / "model")
    (tmp_path / "text").write_text(" ".join(letters) * 20)
    model_quality.main(
        ["--model", str(tmp_path / "model"), "--text", str(tmp_path / "text"), "--tokens", "130"]
    )
    said = capsys.readouterr().out
    assert len(layers_of(said)) == 3
    cosines = [float(x) for x in re.findall(r"least ([.0-9]+)", said)]
    assert len(cosines) == 5 and all(0.9 < cosine < 1.0 for cosine in cosines)
    with pytest.raises(SystemExit):
        model_quality.main(["--model", str(tmp_path / "model")])
    assert "--model needs --text FILE" in capsys.readouterr().err
