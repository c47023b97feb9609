"""Sequences side by side: each is answered as it would be alone, whatever its neighbours do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_decoders
import pytest
from reference import Shape, logits, weights_of, write_folder

from armillary.errors import ConfigError, ExecutionError
from armillary.generate import Generator, Sampling
from armillary.generate.batching import LENGTH, Batcher, Request
from armillary.generate.sampling import checked_token, distribution, penalised
from armillary.generate.text_pieces import TextPieces
from armillary.generate.tokens import Tokenizer

SHAPE = Shape()
TOKENS = [int(t) for t in np.random.default_rng(5).integers(0, SHAPE.words, 200)]
PROMPTS = [TOKENS[:3], TOKENS[3:24], TOKENS[24:25], TOKENS[40:61], TOKENS[3:20], TOKENS[70:90]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    write_folder(made, "llama", SHAPE, weights_of("llama", SHAPE))
    return made


@pytest.fixture(scope="module")
def single(folder: Path) -> Generator:
    return Generator(folder, capacity=48, chunk=8, draft=4)


@pytest.fixture(scope="module")
def several(folder: Path) -> Generator:
    return Generator(folder, capacity=48, chunk=8, slots=3)


def alone(generator: Generator, prompt: list[int], count: int) -> list[int]:
    generator.rewind()
    return list(generator.generate(prompt, count))


def test_prompts_side_by_side_are_answered_as_alone(single: Generator, several: Generator) -> None:
    truth = [alone(single, p, 12) for p in PROMPTS]
    assert several.generate_many(PROMPTS, 12) == truth
    assert several.generate_many(PROMPTS[::-1], 12) == truth[::-1]  # slots hold other beginnings now


def test_requests_join_and_leave_while_others_go_on(single: Generator, several: Generator) -> None:
    batcher, answers = Batcher(several.slots), dict[int, list[int]]()
    requests = [Request(p, n) for p, n in zip(PROMPTS, (14, 3, 9, 20, 6, 2), strict=True)]
    answers = {n: [] for n in range(len(requests))}
    batcher.add(requests[0])
    for round_ in range(200):
        if round_ in (2, 3, 4, 9, 11):
            batcher.add(requests[{2: 1, 3: 2, 4: 3, 9: 4, 11: 5}[round_]])
        if round_ == 12:
            batcher.drop(requests[3])
        for request, step in batcher.advance():
            answers[requests.index(request)].append(step.token)
    assert batcher.is_idle
    for n, request in enumerate(requests):
        want = alone(single, PROMPTS[n], request.max_tokens)
        assert answers[n] == (want[: len(answers[n])] if n == 3 else want)
    assert len(answers[3]) < 20


@pytest.mark.parametrize("form", onnx_decoders.FORMS)
def test_onnx_forms_have_slots(form: str, tmp_path: Path) -> None:
    weights = weights_of("llama", SHAPE)
    onnx_decoders.write(tmp_path / "model.onnx", form, SHAPE, weights, 48)
    generator = Generator(tmp_path / "model.onnx", capacity=48, chunk=8, slots=3)
    for prompt, answer in zip(PROMPTS[:4], generator.generate_many(PROMPTS[:4], 6), strict=True):
        tokens = list(prompt)
        for token in answer:
            row = logits("llama", SHAPE, weights, tokens)[-1]
            assert row[token] >= row.max() - 2e-5
            tokens.append(token)


def test_beginnings_are_shared_and_neighbours_kept(several: Generator) -> None:
    slots = several.slots
    for slot in range(3):
        slots.rewind(slot, 0)
    whole = slots.feed(0, TOKENS[:20])[-1]
    slots.copy(0, 2, 15)
    assert slots.tokens[2] == TOKENS[:15]
    np.testing.assert_allclose(slots.feed(2, TOKENS[15:20])[-1], whole, atol=2e-5)
    slots.feed(1, TOKENS[50:90])
    np.testing.assert_allclose(slots.step({0: 7})[0], slots.step({2: 7})[2], atol=2e-5)
    with pytest.raises(ExecutionError, match="copy of 99"):
        slots.copy(0, 1, 99)


def test_answers_end_where_a_slot_is_full(several: Generator) -> None:
    batcher = Batcher(several.slots)
    batcher.add(Request(TOKENS[:40], 100))
    steps = []
    while not batcher.is_idle:
        steps += batcher.advance()
    assert len(steps) == 9 and steps[-1][1].finish == LENGTH
    with pytest.raises(ExecutionError, match="a prompt of 48 tokens, and a slot holds 48"):
        batcher.add(Request(TOKENS[:48]))


def test_guesses_that_are_checked_change_no_token(folder: Path, single: Generator) -> None:
    plain = Generator(folder, capacity=48, chunk=8)
    calls = 0
    step = single.slots.append

    def counted(slot: int, tokens: list[int], rows: int) -> np.ndarray:
        nonlocal calls
        calls += 1
        return step(slot, tokens, rows)

    prompt = TOKENS[:6] * 2
    want = alone(plain, prompt, 30)
    single.rewind()
    single.slots.append = counted  # type: ignore[method-assign]
    try:
        assert list(single.generate(prompt, 30)) == want
        calls = 0
        single.rewind()
        assert list(single.generate(prompt + want, 4)) == alone(plain, prompt + want, 4)
    finally:
        single.slots.append = step  # type: ignore[method-assign]


def test_a_small_model_guesses_and_changes_no_token(folder: Path, tmp_path: Path) -> None:
    small = Shape(layers=1, hidden=32, heads=2, groups=1, size=16, inner=64)
    write_folder(tmp_path, "llama", small, weights_of("llama", small))
    plain, prompt = Generator(folder, capacity=48, chunk=8), TOKENS[:6]
    want = alone(plain, prompt, 30)
    for drafter in (Generator(tmp_path, capacity=40, chunk=8), plain):
        generator = Generator(folder, capacity=48, chunk=8, draft=3, drafter=drafter)
        assert list(generator.generate(prompt, 30)) == want
    feed, rows = generator.slots.feed, list[int]()

    def counted(slot: int, tokens: list[int], each: bool = False) -> np.ndarray:
        rows.extend([len(tokens)] * each)
        return feed(slot, tokens, each)

    generator.slots.feed = counted  # type: ignore[method-assign, assignment]
    generator.rewind()
    drawn = list(generator.generate(prompt, 21, temperature=0.8, seed=3))
    assert rows == [4] * 5 and len(drawn) == 21, "what the same model draws is never replaced"
    words = Shape(words=SHAPE.words + 3)
    write_folder(tmp_path, "llama", words, weights_of("llama", words))
    with pytest.raises(ConfigError, match="both need the same tokenizer"):
        Generator(folder, draft=2, drafter=Generator(tmp_path, capacity=8, chunk=2))


def test_a_request_that_is_alone_is_guessed_for_and_neighbours_change_nothing(folder: Path) -> None:
    plain = Generator(folder, capacity=48, chunk=8)
    generator = Generator(folder, capacity=48, chunk=8, slots=2, draft=3, drafter=plain)
    append, rows = generator.slots.append, list[int]()

    def counted(slot: int, tokens: list[int], count: int) -> np.ndarray:
        rows.append(len(tokens))
        return append(slot, tokens, count)

    generator.slots.append = counted  # type: ignore[method-assign]
    batcher = Batcher(generator.slots, generator.guesser)
    first, second = Request(TOKENS[:6], 30), Request(TOKENS[3:11], 10)
    answers: dict[Request, list[int]] = {first: [], second: []}
    batcher.add(first)
    while not batcher.is_idle:
        for request, step in batcher.advance():
            answers[request] += [] if step.token is None else [step.token]
        if len(answers[first]) == 6 and second not in batcher.active.values() and not answers[second]:
            assert rows[1:] == [4, 4], "three guesses come true with each token"
            batcher.add(second)
    assert answers[first] == alone(plain, TOKENS[:6], 30) and answers[second] == alone(plain, TOKENS[3:11], 10)
    assert rows.count(4) > 4, "the first is alone again when the second has its answer"


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_drawn_guesses_change_no_probability(top_p: float) -> None:
    random, count = np.random.default_rng(6), 40_000
    logits, others = (random.standard_normal(6).astype(np.float32) for _ in range(2))
    sampling = Sampling(temperature=0.7, top_p=top_p)
    wanted, weights = distribution(logits, sampling), distribution(others, Sampling(temperature=1.3))
    guesses = random.choice(6, count, p=weights)
    drawn = np.bincount([checked_token(logits, sampling, random, int(g), weights) for g in guesses], minlength=6)
    assert (np.abs(drawn / count - wanted) <= 5 * np.sqrt(wanted / count)).all()


def test_likely_tokens_have_logarithms_of_their_probabilities(several: Generator) -> None:
    batcher = Batcher(several.slots)
    batcher.add(Request(TOKENS[:9], 1, likely=SHAPE.words))
    ((_, step),) = [s for _ in range(9) for s in batcher.advance()]
    assert step.likely[0] == (step.token, step.logarithm)
    assert sum(np.exp(v) for _, v in step.likely) == pytest.approx(1)
    row = logits("llama", SHAPE, weights_of("llama", SHAPE), TOKENS[:9])[-1]
    assert step.logarithm == pytest.approx(row.max() - np.log(np.exp(row).sum()), abs=1e-4)


def test_a_repetition_penalty_makes_tokens_that_came_less_likely() -> None:
    values = np.array([2.0, -1.0, 0.5], np.float32)
    np.testing.assert_array_equal(penalised(values, Sampling(repetition_penalty=2.0), [0, 1]), [1.0, -2.0, 0.5])
    np.testing.assert_array_equal(penalised(values, Sampling(), [0, 1]), values)


class _Bytes:
    """A token for each byte, as byte-level tokenizers spell what they have no word for."""

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return bytes(ids).decode("utf-8", "replace")


@pytest.mark.parametrize("stop", [[], ["übe"], ["nd so w"], ["xyz"], ["lang", "und"]])
def test_pieces_are_the_text_up_to_a_stop_string(stop: list[str]) -> None:
    text = "Grüße über Länder, 漢字 und so weiter und so fort, lang genug."
    pieces = TextPieces(Tokenizer(_Bytes(), frozenset()), stop)
    shown = [pieces.push(token) for token in text.encode()]
    shown.append(pieces.finish())
    ends = [text.find(s) for s in stop if s in text]
    assert "".join(shown) == text[: min(ends, default=len(text))]
    assert pieces.is_stopped == bool(ends)
    assert not any("\ufffd" in piece for piece in shown)
