"""What a person gives the lab: wrong input is one sentence and changes nothing; keys stay, and stay private."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from huddle.errors import InputError
from infra.cli import policy_server as command
from simulator.apim_policies import inputs

KEY = "0123456789abcdef"


@pytest.mark.parametrize("text", ["", "x", "[]", '{"a": 5}', '{"a": "short"}', '{"a": "späße-und-mehr"}', "[" * 99_999])
def test_a_file_that_holds_no_keys_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(InputError, match="holds no subscription keys; allowed: a JSON object"):
        inputs.subscription_keys(file)
    assert file.read_text() == text


def test_keys_are_kept_for_their_owner_only_even_in_a_file_that_was_open(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text("{}")
    file.chmod(0o644)
    inputs.keep({"chat/web": KEY}, file)
    assert inputs.subscription_keys(file) == {"chat/web": KEY}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


def test_a_directory_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written: No such file"):
        inputs.keep({}, tmp_path / "nowhere" / "keys.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "holds no key"), (b"short", "holds no key"), (b"two words", "holds no key"), (b"\xff", "not UTF-8")],
)
def test_a_backend_key_that_is_none_is_refused_and_not_repeated(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        inputs.backend_key(tmp_path / "key")
    assert "two words" not in str(caught.value)


def test_a_backend_key_may_end_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    assert inputs.backend_key(tmp_path / "key") == KEY
    with pytest.raises(InputError, match="can't be read: No such file"):
        inputs.backend_key(tmp_path / "other")


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "ftp://a", "https://a", "http://", "http://a:0", "http://a:99999", "http://a/v1", "http://[a"],
)
def test_an_address_that_is_none_of_a_wrapper_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"such as http://127\.0\.0\.1:8000"):
        inputs.wrapper_url(url)


def test_addresses_and_ports_that_are_right_pass() -> None:
    assert inputs.wrapper_url("http://127.0.0.1:8000/") == "http://127.0.0.1:8000"
    assert inputs.wrapper_url("http://[::1]:1") == "http://[::1]:1"
    assert [inputs.port(0), inputs.port(65_535)] == [0, 65_535]
    for wrong in (-1, 65_536):
        with pytest.raises(InputError, match="allowed: 0-65535"):
            inputs.port(wrong)


def test_the_command_keeps_other_stacks_keys_and_creates_nothing_on_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, key = tmp_path / "keys.json", tmp_path / "key"
    key.write_text(KEY)
    line = ["lab", "-s", "dev", "--backend-key-file", str(key), "--keys", str(keys)]
    monkeypatch.setattr("sys.argv", [*line, "--wrapper", "nonsense"])
    assert command.main() == command.EXIT_INPUT
    assert capsys.readouterr().err.startswith("error: --wrapper: 'nonsense' is not allowed")
    assert not keys.exists()

    async def nothing(*_: object) -> None:
        pass

    keys.write_text(json.dumps({"other/app": KEY}))
    monkeypatch.setattr(command, "_serve", nothing)
    monkeypatch.setattr("sys.argv", [*line, "--wrapper", "http://127.0.0.1:8000"])
    assert command.main() == 0
    assert sorted(inputs.subscription_keys(keys)) == ["developers/playground", "other/app"]
