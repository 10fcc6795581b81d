"""The two distributions: trine, and trine-sdk for the environments of training scripts. Built and installed offline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from tests.sdk.conftest import EXAMPLES, outside

ROOT = Path(__file__).parents[2]
IMPORTS = "import trine.sdk as s; s.restore(); print(s.__file__, s.EXIT_STOPPED, s.checkpoints.Checkpoint.__name__)"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    offline = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    run(sys.executable, "-m", "pip", "wheel", *offline, str(ROOT), str(ROOT / "packaging" / "sdk"))
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


class Environment:
    """A fresh virtual environment without pip; ours does the installing."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.folder, self.python = folder, str(folder / "bin" / "python")
        if python == sys.executable:
            venv.create(folder, symlinks=True)
        else:
            run(python, "-m", "venv", "--without-pip", str(folder))

    def install(self, wheel: Path) -> None:
        self._pip("install", "--no-deps", "--no-index", "--no-compile", str(wheel))

    def uninstall(self, name: str) -> None:
        self._pip("uninstall", "--yes", name)

    def _pip(self, *words: str) -> None:
        run(sys.executable, "-m", "pip", "--python", self.python, "--quiet", "--disable-pip-version-check", *words)

    def say(self, *words: str, **extra: str) -> str:
        return run(self.python, "-W", "error", *words, cwd=self.folder, **extra)


def run(*words: str, cwd: Path | None = None, **extra: str) -> str:
    env = outside() | extra
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def metadata(wheel: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        message = message_from_string(archive.read(name).decode())
    return {key: message.get_all(key) or [] for key in message}


def test_the_sdk_is_tiny_and_needs_nothing(wheels: dict[str, Path]) -> None:
    told = metadata(wheels["trine_sdk"])
    assert "Requires-Dist" not in told
    assert told["Version"] == metadata(wheels["trine"])["Version"]
    assert wheels["trine_sdk"].stat().st_size < 100_000
    assert {Path(name).suffix for name in names(wheels["trine_sdk"])} == {".py"}


def test_no_file_belongs_to_both(wheels: dict[str, Path]) -> None:
    assert not names(wheels["trine"]) & names(wheels["trine_sdk"])
    assert "trine/__init__.py" not in names(wheels["trine_sdk"])


@pytest.mark.parametrize("python", [sys.executable, "python3.10"], ids=["this Python", "the oldest Python"])
def test_a_script_runs_with_the_sdk_alone(wheels: dict[str, Path], tmp_path: Path, python: str) -> None:
    if shutil.which(python) is None or subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip(f"no {python} here")
    environment = Environment(tmp_path / "env", python)
    environment.install(wheels["trine_sdk"])
    said = environment.say(str(EXAMPLES / "toy_sdk.py"), "--steps", "30", "--step-s", "0", "--save-every", "10")
    assert json.loads(said)["steps"] == 30
    assert environment.say("-c", "import trine.sdk; print(trine.sdk.restore().step)") == "30\n"
    here = run(sys.executable, str(EXAMPLES / "toy_sdk.py"), "--steps", "30", "--step-s", "0", cwd=tmp_path)
    assert said == here, "the same as from the tree"


def test_both_can_be_installed_and_removed_in_any_order(wheels: dict[str, Path], tmp_path: Path) -> None:
    environment = Environment(tmp_path / "env")
    there: set[str] = set()
    for change in ("+trine_sdk", "+trine", "-trine", "+trine", "-trine_sdk", "+trine_sdk"):
        name = change[1:]
        if change[0] == "+":
            environment.install(wheels[name])
            there.add(name)
        else:
            environment.uninstall(name.replace("_", "-"))
            there.remove(name)
        where = Path(environment.say("-c", IMPORTS).split()[0]).parent.name
        assert where == ("sdk" if "trine" in there else "_sdk"), f"after {change}, with {there}"


@pytest.mark.parametrize("first", ["trine", "trine_sdk"])
def test_both_work_from_different_folders(wheels: dict[str, Path], tmp_path: Path, first: str) -> None:
    """As with a user's own folder beside that of the system, or trine installed from its tree."""
    for name, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / name)
    order = sorted(wheels, key=lambda name: name != first)
    path = os.pathsep.join(str(tmp_path / name) for name in order)
    command = [sys.executable, "-S", "-c", "import trine.core.errors\n" + IMPORTS]
    assert "85 Checkpoint" in run(*command, cwd=tmp_path, PYTHONPATH=path)


def test_heavy_parts_are_extras(wheels: dict[str, Path]) -> None:
    needed = metadata(wheels["trine"])["Requires-Dist"]
    always = {line.split(">")[0].split("[")[0] for line in needed if "extra ==" not in line}
    assert not always & {"pyarrow", "plotly", "scikit-learn", "psycopg", "httpx"}
    extras = {line for line in needed if "extra == " in line}
    wanted = {"pyarrow": "report", "plotly": "report", "scikit-learn": "profile", "psycopg": "postgres"}
    for name, extra in wanted.items():
        assert any(line.startswith(name) and extra in line for line in extras)
