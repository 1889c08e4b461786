"""The package: what an import costs, types, and installations."""
import os
import re
import shutil
import subprocess
import sys
import venv

import pytest
from conftest import BUILD, SOURCE, run_python

import gshm

# Modules that take long, or that are not there everywhere.
HEAVY = {"torch", "numpy", "asyncio", "json", "pathlib", "dataclasses", "inspect", "subprocess", "importlib.metadata"}


def test_an_import_needs_neither_torch_nor_the_library():
    environment = {**os.environ, "GSHM_LIBRARY": "/nonexistent", "PYTHONPATH": str(SOURCE / "python")}
    code = "import sys; before = set(sys.modules); import gshm; print(*set(sys.modules) - before)"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(SOURCE / 'python')!r})\n{code}"],
        env=environment, capture_output=True, text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert HEAVY.isdisjoint(ended.stdout.split()), HEAVY & set(ended.stdout.split())


def test_a_missing_library_is_reported_with_the_remedy():
    ended = subprocess.run(
        [sys.executable, "-c", "import gshm; gshm.connect()"],
        env={**os.environ, "GSHM_LIBRARY": "/nonexistent/libgshm.so"}, capture_output=True, text=True,
    )
    assert "ImportError: libgshm cannot be loaded: /nonexistent/libgshm.so" in ended.stderr and "GSHM_LIBRARY" in ended.stderr
    ended = subprocess.run(
        [sys.executable, "-c", "import gshm; gshm.connect()"],
        env={**os.environ, "GSHM_LIBRARY": "libc.so.6"}, capture_output=True, text=True,
    )
    assert "is older than this package" in ended.stderr


def test_types_are_checked_by_mypy():
    mypy = pytest.importorskip("mypy.api", reason="mypy is not installed")
    found, errors, status = mypy.run(
        ["--config-file", str(SOURCE / "python/pyproject.toml"), "--cache-dir", os.devnull, str(SOURCE / "python/gshm")]
    )
    assert status == 0, found + errors
    assert (SOURCE / "python/gshm/py.typed").exists()


def test_every_public_name_exists():
    assert len(gshm.__all__) == len(set(gshm.__all__))
    for name in gshm.__all__:
        assert getattr(gshm, name) is not None
    assert re.fullmatch(r"\d+\.\d+\.\d+", gshm.__version__)
    with pytest.raises(AttributeError):
        gshm.nonsense


def test_no_file_is_too_long():
    for path in (SOURCE / "python").rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"])
def test_other_interpreters(version, gshmd, tmp_path):
    """Without pytest, NumPy and torch, which they need not have."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", ""], capture_output=True).returncode != 0:
        pytest.skip(f"there is no python{version}")
    ended = subprocess.run(
        [found, "-W", "error", SOURCE / "tests/python/smoke.py", gshmd.dir, tmp_path], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ok\n", ""), ended.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    return folder


def clean():
    """Without what the tests set: neither the sources nor a compiler are found."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GSHM_LIBRARY", "CC", "CXX")}
    return {**kept, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CC": "false"}


def install(environment, *arguments, **variables):
    return subprocess.run(
        [environment / "bin/python3", "-m", "pip", "install", "--quiet", "--force-reinstall", *arguments],
        env={**clean(), **variables}, capture_output=True, text=True,
    )


def run_installed(environment, code, *arguments, **variables):
    ended = subprocess.run(
        [environment / "bin/python3", "-c", code, *map(str, arguments)], cwd="/", env={**clean(), **variables},
        capture_output=True, text=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


USE = """
import sys, gshm
c = gshm.connect(sys.argv[1])
with c.create("a", (2, 3), "int32", replace=True) as made: made.fill(1)
print(c.open("a").tobytes() == bytes([1]) * 24, gshm.__file__.startswith(sys.prefix), gshm.__version__ == gshm.library_version())
"""


def test_pip_installs_from_the_sources_without_compiler_and_network(environment, gshmd):
    ended = install(environment, str(SOURCE / "python"))
    assert ended.returncode == 0, ended.stderr
    assert run_installed(environment, USE, gshmd.dir, GSHM_LIBRARY=str(BUILD / "lib/libgshm.so.0")).startswith("True True True")
    # by the loader
    assert run_installed(environment, USE, gshmd.dir, LD_LIBRARY_PATH=f"{BUILD / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}")
    listed = subprocess.run([environment / "bin/python3", "-m", "pip", "show", "-f", "gshm"], env=clean(), capture_output=True, text=True)
    assert f"Version: {gshm.library_version()}" in listed.stdout and "gshm/py.typed" in listed.stdout
    assert "gshm/torch/modules.py" in listed.stdout and "gshm/safetensors/torch.py" in listed.stdout


def test_an_editable_installation(environment):
    ended = install(environment, "-e", str(SOURCE / "python"))
    assert ended.returncode == 0, ended.stderr
    assert run_installed(environment, "import gshm; print(gshm.__file__)").strip() == str(SOURCE / "python/gshm/__init__.py")


def test_a_source_distribution_builds_the_same_wheel(tmp_path):
    code = """
import sys; sys.path.insert(0, sys.argv[1]); sys.dont_write_bytecode = True
import build_backend as b
print(b.build_sdist(sys.argv[2]), b.build_wheel(sys.argv[2]))
"""
    ended = run_python(code, SOURCE / "python", tmp_path)
    archive, wheel = ended.stdout.split()
    first = (tmp_path / wheel).read_bytes()
    subprocess.run(["tar", "-xzf", tmp_path / archive, "-C", tmp_path], check=True)
    again = run_python(code, tmp_path / archive[: -len(".tar.gz")], tmp_path)
    assert again.stdout.split() == [archive, wheel] and (tmp_path / wheel).read_bytes() == first


def test_a_wheel_with_the_library_inside_can_be_moved(environment, gshmd, tmp_path):
    """./dev python, with the libraries of this build."""
    ended = subprocess.run(
        [SOURCE / "python/make_wheel", BUILD / "lib/libgshm.so.0", tmp_path], env={**clean(), "LD_LIBRARY_PATH": ""},
        capture_output=True, text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "manylinux" in wheel.name or "linux" in wheel.name
    ended = install(environment, str(wheel))
    assert ended.returncode == 0, ended.stderr
    said = run_installed(environment, USE, gshmd.dir)
    assert said.startswith("True True True")
    maps = "import gshm; gshm.library_version(); print(open('/proc/self/maps').read())"
    mapped = {line.split()[-1] for line in run_installed(environment, maps).splitlines() if ".so" in line}
    ours = {path.name for path in (environment / "lib").rglob("gshm/lib/*")}
    assert "libgshm.so.0" in ours
    for path in mapped:
        if os.path.basename(path) in ours:
            assert path.startswith(str(environment)), path
