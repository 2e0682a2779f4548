"""Streams that break off are judged by what the engine said of others."""

from hypothesis import given
from hypothesis import strategies as st

from huddle.wrapper.engine.unreported import Measured, Unreported
from huddle.wrapper.engine.usage import Usage


def test_until_the_engine_has_told_a_piece_is_a_token() -> None:
    assert Unreported().usage("tiny", Measured(30, 4)) == Usage(30, 4, estimated=True)


def test_each_model_has_its_own_scale() -> None:
    known = Unreported()
    known.learn("tiny", Measured(100, 10), Usage(50, 20))
    assert known.usage("tiny", Measured(30, 4)) == Usage(15, 8, estimated=True)
    assert known.usage("other", Measured(30, 4)) == Usage(30, 4, estimated=True)


def test_a_plain_answer_says_nothing_of_pieces() -> None:
    known = Unreported()
    known.learn("tiny", Measured(100, 0), Usage(50, 20))
    assert known.usage("tiny", Measured(100, 4)) == Usage(50, 4, estimated=True)


def test_what_was_learned_long_ago_gives_way() -> None:
    known = Unreported()
    for tokens in (100, 200):
        for _ in range(30):
            known.learn("tiny", Measured(100_000, 1), Usage(tokens * 1_000, 1))
    assert 195 <= known.usage("tiny", Measured(100, 1)).prompt_tokens <= 200


@given(st.lists(st.tuples(st.integers(1, 10_000), st.integers(0, 10_000)), min_size=1), st.integers(0, 10_000))
def test_an_estimate_lies_between_what_was_learned(told: list[tuple[int, int]], measured: int) -> None:
    known = Unreported()
    for inputs, prompt in told:
        known.learn("tiny", Measured(inputs, 0), Usage(prompt, 0))
    ratios = [prompt / inputs for inputs, prompt in told]
    estimate = known.usage("tiny", Measured(measured, 0)).prompt_tokens
    assert min(ratios) * measured - 1 <= estimate <= max(ratios) * measured + 1
