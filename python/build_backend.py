"""Builds the wheel of gshm (PEP 517, PEP 660), with the standard library alone.

$GSHM_WHEEL_LIBRARIES is a folder with libgshm.so.0 and the libraries it needs: they become a part of the wheel, which then
has the tag of this machine's C library.
"""
import base64
import hashlib
import io
import os
import pathlib
import platform
import re
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent / "include" / "gshm" / "version.h"
STORED_VERSION = HERE / "VERSION"  # in a source distribution
FIXED_TIME = (2020, 1, 1, 0, 0, 0)  # the same sources give the same wheel


def version():
    if HEADER.exists():
        text = HEADER.read_text()
        numbers = [re.search(rf"^#define GSHM_VERSION_{part} (\d+)$", text, re.MULTILINE) for part in ("MAJOR", "MINOR", "PATCH")]
        return ".".join(number.group(1) for number in numbers)
    return STORED_VERSION.read_text().strip()


def metadata():
    lines = [
        "Metadata-Version: 2.1",
        "Name: gshm",
        f"Version: {version()}",
        "Summary: /dev/shm for GPU memory: tensors that several processes share",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    return "\n".join(lines).encode()


def tag(has_library):
    if not has_library:
        return "py3-none-any"
    libc, number = platform.libc_ver()
    system = f"manylinux_{number.replace('.', '_')}" if libc == "glibc" else "linux"
    return f"py3-none-{system}_{platform.machine()}"


def package_files():
    folder = HERE / "gshm"
    for path in sorted(folder.rglob("*")):
        if path.is_file() and (path.suffix == ".py" or path.name == "py.typed") and path.name != "_version.py":
            yield path.relative_to(HERE).as_posix(), path.read_bytes()
    yield "gshm/_version.py", f'VERSION = "{version()}"\n'.encode()


def write_wheel(folder, files, has_library):
    number = version()
    info = f"gshm-{number}.dist-info"
    name = f"gshm-{number}-{tag(has_library)}.whl"
    purelib = "false" if has_library else "true"
    wheel = f"Wheel-Version: 1.0\nGenerator: gshm\nRoot-Is-Purelib: {purelib}\nTag: {tag(has_library)}\n"
    files = [*files, (f"{info}/METADATA", metadata()), (f"{info}/WHEEL", wheel.encode())]
    record = ""
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
            _add(archive, path, data)
        _add(archive, f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode())
    return name


def _add(archive, path, data):
    entry = zipfile.ZipInfo(path, FIXED_TIME)
    entry.external_attr = (0o755 if ".so" in path else 0o644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = list(package_files())
    libraries = os.environ.get("GSHM_WHEEL_LIBRARIES")
    if libraries:
        for path in sorted(pathlib.Path(libraries).iterdir()):
            files.append((f"gshm/lib/{path.name}", path.read_bytes()))
    return write_wheel(wheel_directory, files, bool(libraries))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(wheel_directory, [("gshm.pth", f"{HERE}\n".encode())], False)


def build_sdist(sdist_directory, config_settings=None):
    root = f"gshm-{version()}"
    own = ["pyproject.toml", "README.md", "build_backend.py"]
    files = [(one, (HERE / one).read_bytes()) for one in own] + list(package_files())
    files += [("VERSION", version().encode()), ("PKG-INFO", metadata())]
    with tarfile.open(pathlib.Path(sdist_directory) / f"{root}.tar.gz", "w:gz") as archive:
        for path, data in files:
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return f"{root}.tar.gz"
