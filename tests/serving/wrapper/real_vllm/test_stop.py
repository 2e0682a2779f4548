"""What `make local` runs. The last file of its folder by its name, since it stops the engine of all others."""

import subprocess
import sys
from pathlib import Path

import yaml

from huddle.client.api import Client
from huddle.local import service
from tests.serving.wrapper.real_vllm.conftest import USER, LocalService
from tools.deadlines import scaled

ROOT = Path(__file__).parents[4]


def test_what_make_local_runs_answers_through_its_wrapper_and_leaves_nothing(local_service: LocalService) -> None:
    """A streamed answer by the SDK, the examples as the README's reader would run them; last here, as it stops it."""
    paths = local_service.paths
    found = service.processes(paths)
    family = {process for each in found for process in (each, *each.children(recursive=True))}
    ask = Client(connection_file=paths.connection, environ={}).openai.chat.completions.with_streaming_response.create
    with ask(model="tiny", messages=USER, max_tokens=8, stream=True) as response:  # type: ignore[arg-type]
        assert response.headers["x-huddle-prompt-id"] == "tiny"  # the server's prompt was put before it
        assert "data: [DONE]" in list(response.iter_lines())
    url = yaml.safe_load(paths.connection.read_text())["base_url"]
    key = paths.connection.with_name("key").read_text().strip()
    environment = {**local_service.environment, "OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    for example in ("chat.py", "streaming.py", "tools.py"):
        line = [sys.executable, str(ROOT / "examples" / example)]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=scaled(120), check=False)
        assert (done.returncode, done.stderr) == (0, ""), example
    assert local_service.huddle("local", "stop").returncode == 0
    assert not any(process.is_running() for process in family)
