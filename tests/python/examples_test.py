"""python/examples run as they stand."""

import importlib.util
import pathlib
import re

import pytest
import torch
import transformers

EXAMPLES = pathlib.Path(__file__).parents[2] / "python" / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def model_quality():
    return example("model_quality")


@pytest.fixture
def needle():
    return example("needle")


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


@pytest.mark.parametrize("values", ["centred", "biased", "centred, repeated", "biased, repeated"])
def test_a_needle_is_found_as_often_as_in_bfloat16(needle, device, values):
    row = needle.rates(2, 256, 1024, 64, values, 7, device)
    assert 0.7 < row["bf16"] < 0.99  # not so easy that anything finds it
    for name in needle.OPTIONS:
        assert row[name] > 0.96 * row["bf16"], name


def test_needles_are_where_they_are_said_to_be(needle):
    q, k, v, codewords, words = needle.haystack(1, 50, 300, 128, "biased, repeated", 3, "cpu")
    scores = (q.double() @ k.double().transpose(-1, -2))[0, 0] / 128**0.5
    nearest = ((v[0, 0].float() - 1.0) @ codewords.T).argmax(-1)
    target = needle.needle_score(300, 128, 0.0)
    hidden = [abs(row - target).argmin().item() for row in scores]
    assert [abs(row - target).min().item() for row in scores] == pytest.approx([0.0] * 50, abs=0.05)
    assert (nearest[hidden] == words[0]).float().mean() > 0.9


def test_needle_prints_a_row_for_each_length(needle, capsys, monkeypatch):
    sizes = ["--keys", "256", "--rows", "16", "--heads", "1", "--head-dim", "64"]
    monkeypatch.setattr("sys.argv", ["needle.py", "--device", "cpu", *sizes])
    needle.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()]
    assert [row[1].strip() for row in rows[2:]] == list(needle.VALUES)
    assert all(len(row) == 3 + len(needle.OPTIONS) for row in rows)
