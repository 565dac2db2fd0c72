"""The README's examples are run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def block(language: str, containing: str) -> str:
    found = [b for b in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in b]
    assert len(found) == 1
    return str(found[0])


def test_the_python_example_runs_and_is_eight_lines(tmp_path: Path) -> None:
    code = block("python", "import adaptive_td")
    assert len(code.splitlines()) <= 8
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "TD was overruled at" in done.stdout
    assert (tmp_path / "cartpole-value" / "value.json").exists()


def test_the_command_line_example_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    script = block("sh", "adaptive-td fit")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["sh", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    for name in ("log.parquet", "model", "values.parquet", "predicted.parquet", "comparison.html"):
        assert (tmp_path / name).exists(), name


def test_the_two_commands_are_there_and_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README.split("## In Python")[0]
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_picture_the_readme_shows_is_committed() -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
