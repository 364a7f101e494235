"""Prompts are read as the dataset reads text, and texts end where they are asked to."""

import pytest
import torch

from depthtime.data.vocabulary import Vocabulary
from depthtime.errors import DataError
from depthtime.generate.decoder import Decoder
from depthtime.generate.text import banned_classes, encode_prompt, explain_unknown, generate, stop_classes
from fresh_clone import WORDS
from small_models import CLASSES, ODE, POSITIONS, model

STANDARD = Vocabulary(("the", "<unk>", "<eos>", "company"), unknown=1, dead=None, eos=2)


def _texts(*, start=(1, 2), max_words=20, network=None, **options):
    """Classes of each text, as `generate` yields them."""
    options = {"temperature": 1.0, **options}
    rows = list(generate(Decoder(network or model(ODE)), start, max_words=max_words, **options))
    return [[number for number in text if number is not None] for text in zip(*rows, strict=True)]


def test_a_prompt_is_split_at_white_space_and_keeps_its_case():
    prompt = encode_prompt("  w3\n w1\tW3 nonsense W3 ", WORDS)
    assert prompt.classes == (4, 2, 0, 0, 0)
    assert prompt.words == ("w3", "w1", "UNK", "UNK", "UNK")
    assert prompt.unknown == ("W3", "nonsense")
    assert explain_unknown(prompt, WORDS) == "not in the vocabulary, read as UNK: 'W3' ('w3' is known), 'nonsense'"


def test_the_standard_protocol_opens_with_eos_and_ends_lines_with_it():
    assert encode_prompt("", STANDARD).classes == (2,)
    assert encode_prompt("the company", STANDARD).classes == (2, 0, 3)
    assert encode_prompt("the\ncompany\n", STANDARD).classes == (2, 0, 2, 3, 2)
    assert encode_prompt("the firm", STANDARD).words == ("the", "<unk>")


def test_the_continuumlm_protocol_needs_a_word_and_names_one():
    with pytest.raises(DataError, match=r'prompt is empty.*--prompt "w0"'):
        encode_prompt(" ", WORDS)


def test_an_unknown_word_needs_a_class():
    with pytest.raises(DataError, match="'firm' is not in the vocabulary, and no class"):
        encode_prompt("firm", Vocabulary(("the", "<eos>"), unknown=None, dead=None, eos=1))


def test_the_name_of_the_dead_class_is_no_word():
    assert encode_prompt("<dead>", WORDS).unknown == ("<dead>",)
    with pytest.raises(DataError, match=r"--stop 'w99': not in the vocabulary.*did you mean w9"):
        stop_classes(["w99"], WORDS)


def test_bans_are_the_dead_class_and_on_demand_every_unknown_word():
    assert banned_classes(WORDS, unknown=False) == {29}
    assert banned_classes(WORDS, unknown=True) == {0, 28, 29}
    assert banned_classes(STANDARD, unknown=False) == frozenset()
    assert banned_classes(STANDARD, unknown=True) == {1}


def test_the_likeliest_text_is_that_of_full_passes_within_the_window():
    network, text = model(ODE), [1, 2]
    while len(text) < POSITIONS:
        text.append(int(network(torch.tensor([text]))[0, -1].argmax()))
    assert _texts(network=network, max_words=POSITIONS - 2, temperature=0) == [text[2:]]


def test_one_seed_gives_one_text():
    assert _texts(seed=3, max_words=40) == _texts(seed=3, max_words=40) != _texts(seed=4, max_words=40)


def test_each_of_several_texts_is_as_likely_as_one_alone():
    """First words of many texts in one batch follow the model's distribution after the prompt."""
    network, count = model(ODE), 5_000
    firsts = torch.tensor(next(iter(generate(Decoder(network), (1, 2), max_words=1, temperature=1.0, samples=count))))
    expected = network(torch.tensor([[1, 2]]))[0, -1].softmax(0)
    shares = torch.bincount(firsts, minlength=CLASSES) / count
    torch.testing.assert_close(shares, expected, rtol=0, atol=0.03)


def test_a_text_ends_before_a_stop_word_and_others_go_on():
    texts = _texts(samples=8, stop=frozenset({5, 7}))
    assert not {5, 7} & {number for text in texts for number in text}
    assert len({len(text) for text in texts}) > 1
    free = _texts(samples=8)
    for stopped, text in zip(texts, free, strict=True):  # one batch, one generator: the same draws
        assert text[: len(stopped)] == stopped
        assert len(stopped) == 20 or text[len(stopped)] in {5, 7}


def test_banned_classes_are_never_drawn():
    texts = _texts(samples=8, max_words=60, temperature=5.0, banned=frozenset({0, 3}))
    assert {number for text in texts for number in text} == set(range(CLASSES)) - {0, 3}


def test_words_come_one_at_a_time_and_no_pass_is_spent_on_the_last():
    decoder, fed = Decoder(model(ODE)), []
    feed = decoder.feed_last
    decoder.feed_last = lambda tokens: fed.append(tokens.shape[1]) or feed(tokens)
    words = generate(decoder, (1, 2, 3), max_words=3, temperature=1.0)
    for expected in ([3], [3, 1], [3, 1, 1]):
        next(words)
        assert fed == expected
    assert next(words, None) is None
    assert fed == [3, 1, 1]
