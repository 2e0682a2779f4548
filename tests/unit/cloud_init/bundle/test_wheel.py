"""The huddle wheel of a bundle installs like any other, and holds what a node runs."""

from __future__ import annotations

import io
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from cloud_init.bundle import wheel
from cloud_init.bundle.serving_code import closure
from tools.venvs.pinned_venv import installer

SERVING_FILES = {
    "pyproject.toml": '[project]\nname = "huddle"\nversion = "1.2.3"\ndescription = "d"\nrequires-python = ">=3.11"\n'
    '[project.scripts]\nhuddle = "huddle.cli:main"\n',
    "requirements.in": "# a remark\npyyaml\npydantic>=2  # why\n",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel in it. Its libraries are those of this test run, behind its own folder."""
    folder = tmp_path_factory.mktemp("venv")
    made = wheel.build()
    path = folder / made.name
    path.write_bytes(made.content)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env/bin/python"
    subprocess.run(
        [installer(), "pip", "install", "--quiet", "--no-deps", "--offline", "--python", str(python), str(path)],
        check=True,
    )
    site = next((folder / "env/lib").glob("python*/site-packages"))
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "env"


def run(environment: Path, *words: str) -> str:
    done = subprocess.run([environment / "bin/huddle", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_huddle_runs_from_the_installed_wheel(installed: Path) -> None:
    where = subprocess.run(
        [installed / "bin/python", "-c", "import huddle; print(huddle.__file__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(installed))
    help_text = run(installed, "--help")
    assert "launch" in help_text
    assert "wrapper" in help_text
    assert "Llama-3.2-3B-Instruct" in run(installed, "models", "show", "llama-3.2-3b")
    assert "--shutdown-timeout" in run(installed, "launch", "llama-3.2-3b", "--dry-run")
    run(installed, "wrapper", "--help")


def test_it_is_the_same_bytes_every_time() -> None:
    assert wheel.build() == wheel.build()


def test_it_holds_the_nodes_programs_and_the_packages_data() -> None:
    names = zipfile.ZipFile(io.BytesIO(wheel.build().content)).namelist()
    assert names == sorted(names)
    for program in wheel.NODE_PROGRAMS:
        assert set(closure(program)) <= set(names)
    assert "huddle/data/models.yaml" in names
    assert "huddle/data/versions.yaml" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert not [name for name in names if name.startswith("huddle/client/")]
    assert not any(name.endswith(".jinja") for name in names), "a chat template comes beside the bundle's registry"
    assert "huddle/data/engine/vllm-0.32.0.json" not in names, "no node runs the engine for the CPU"


def test_it_takes_its_metadata_from_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src/huddle"
    (package / "data").mkdir(parents=True)
    for name, text in SERVING_FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "cli.py").write_text("from huddle import used\n", encoding="utf-8")
    (package / "used.py").write_text("", encoding="utf-8")
    (package / "unused.py").write_text("", encoding="utf-8")
    (package / "data/table.yaml").write_text("{}\n", encoding="utf-8")
    (package / "data/.table.yaml.swp").write_text("an editor's", encoding="utf-8")
    monkeypatch.setattr(wheel, "NODE_PROGRAMS", ("huddle.cli",))
    made = wheel.build(tmp_path)
    archive = zipfile.ZipFile(io.BytesIO(made.content))
    info = "huddle-1.2.3.dist-info"
    assert made.name == "huddle-1.2.3-py3-none-any.whl"
    assert archive.namelist() == [
        f"{info}/METADATA",
        f"{info}/RECORD",
        f"{info}/WHEEL",
        f"{info}/entry_points.txt",
        "huddle/__init__.py",
        "huddle/cli.py",
        "huddle/data/table.yaml",
        "huddle/used.py",
    ]
    metadata = archive.read(f"{info}/METADATA").decode().splitlines()
    assert metadata[1:3] == ["Name: huddle", "Version: 1.2.3"]
    assert metadata[-2:] == ["Requires-Dist: pyyaml", "Requires-Dist: pydantic>=2"]
    assert archive.read(f"{info}/entry_points.txt") == b"[console_scripts]\nhuddle = huddle.cli:main\n"


def test_the_closure_follows_imports_inside_functions_and_packages(tmp_path: Path) -> None:
    for path, text in {
        "huddle/__init__.py": "if TYPE_CHECKING:\n    import huddle.typed\n\n\n"
        "def __getattr__(name):\n    import huddle.offered\n",
        "huddle/typed.py": "",
        "huddle/offered.py": "",
        "huddle/a/__init__.py": "from huddle import side\n",
        "huddle/a/program.py": "def f():\n    import huddle.b.deep\n    from huddle.c import name\n",
        "huddle/b/__init__.py": "",
        "huddle/b/deep.py": "",
        "huddle/c.py": "name = 1\n",
        "huddle/side.py": "",
        "huddle/other.py": "",
    }.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    found = set(closure("huddle.a.program", tmp_path))
    assert found == {
        "huddle/__init__.py",
        "huddle/a/__init__.py",
        "huddle/a/program.py",
        "huddle/b/__init__.py",
        "huddle/b/deep.py",
        "huddle/c.py",
        "huddle/side.py",
    }
    with pytest.raises(FileNotFoundError, match=r"huddle\.nowhere is not a module"):
        closure("huddle.nowhere", tmp_path)
