"""The wheels of scripts/build-wheels: what is in them, what they may be installed on, that they work."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pefile
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from support import cli, pprof, wine
from support.targets import CACHE, ROOT, program, started

import remoteprof

MODULES = {"linux": "remoteprof/_native.abi3.so", "windows": "remoteprof/_native.pyd"}
FOLDERS = {"linux": CACHE / "wheels" / "quick", "windows": wine.WINDOWS / "wheel"}
GLIBC = (2, 28)
MANYLINUX = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libgcc_s.so.1",
    "ld-linux-x86-64.so.2",
}
"""Libraries that every system of that tag has (PEP 600), of those that could be needed here."""
OF_WINDOWS = re.compile(
    r"python3\.dll|(kernel32|ntdll|advapi32|winmm|bcryptprimitives|msvcrt|userenv|ws2_32)\.dll|api-ms-win-.*\.dll", re.I
)


def wheel(system: str) -> Path:
    found = list(FOLDERS[system].glob("*.whl"))
    assert len(found) == 1, (
        f"not one wheel for {system}: run scripts/build-wheels --quick --out {FOLDERS[system]} {system}"
    )
    return found[0]


def sources() -> dict[str, bytes]:
    """The files of the package in this tree."""
    files = (path for path in (ROOT / "remoteprof").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files if path.suffix not in (".so", ".pyd")
    }


@pytest.mark.parametrize("system", MODULES)
def test_the_package_and_nothing_else(system: str) -> None:
    with zipfile.ZipFile(wheel(system)) as archive:
        assert archive.testzip() is None
        content = {name: archive.read(name) for name in archive.namelist()}
    package = {name: text for name, text in content.items() if name.startswith("remoteprof/")}
    assert package.pop(MODULES[system])
    known = sources()
    assert {
        "remoteprof/nt/sampler.py",
        "remoteprof/py.typed",
        "remoteprof/formats/flamegraph_page/page.html",
    } < known.keys()
    assert package.keys() == known.keys()
    assert [name for name in known if package[name] != known[name]] == [], (
        "the wheel is of older sources: build it anew"
    )
    rest = content.keys() - package.keys() - {MODULES[system]}
    assert all(name.startswith(f"remoteprof-{remoteprof.__version__}.dist-info/") for name in rest), rest
    commands = next(text for name, text in content.items() if name.endswith("/entry_points.txt")).decode()
    assert "remoteprof=remoteprof.cli:main" in commands.replace(" ", "")


@pytest.mark.parametrize(("system", "platform"), [("linux", "manylinux_2_28_x86_64"), ("windows", "win_amd64")])
def test_tags(system: str, platform: str) -> None:
    path = wheel(system)
    name, version, _, tags = parse_wheel_filename(path.name)
    assert (name, str(version)) == ("remoteprof", remoteprof.__version__)
    assert Tag("cp310", "abi3", platform) in tags
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("cp310", "abi3")}
    with zipfile.ZipFile(path) as archive:
        folder = f"remoteprof-{remoteprof.__version__}.dist-info"
        told = email.message_from_bytes(archive.read(f"{folder}/WHEEL"))
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
    assert {str(tag) for tag in tags} == {tag for line in told.get_all("Tag", []) for tag in expanded(line)}
    assert told["Root-Is-Purelib"] == "false"
    assert metadata["Requires-Python"] == ">=3.10"
    assert any("pefile" in line and "win32" in line for line in metadata.get_all("Requires-Dist", []))


def expanded(tag: str) -> list[str]:
    interpreter, abi, platforms = tag.split("-")
    return [f"{interpreter}-{abi}-{platform}" for platform in platforms.split(".")]


def test_the_linux_module_asks_for_no_newer_glibc(tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel("linux")) as archive:
        module = Path(archive.extract(MODULES["linux"], tmp_path))
    with module.open("rb") as file:
        elf = ELFFile(file)
        section = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        needed = {str(vars(tag)["needed"]) for tag in dynamic.iter_tags("DT_NEEDED")}
        versions = {(need.name, auxiliary.name) for need, all_of in section.iter_versions() for auxiliary in all_of}
    assert needed <= MANYLINUX, needed
    glibc = {tuple(int(part) for part in name[6:].split(".")) for _, name in versions if name.startswith("GLIBC_")}
    assert glibc and max(glibc) <= GLIBC, sorted(versions)


def test_the_windows_module_asks_for_no_certain_python() -> None:
    with zipfile.ZipFile(wheel("windows")) as archive:
        module = pefile.PE(data=archive.read(MODULES["windows"]))
    assert module.FILE_HEADER.Machine == pefile.MACHINE_TYPE["IMAGE_FILE_MACHINE_AMD64"]
    imported = {entry.dll.decode().lower() for entry in module.DIRECTORY_ENTRY_IMPORT}
    assert "python3.dll" in imported
    assert [name for name in imported if not OF_WINDOWS.fullmatch(name)] == []
    assert b"PyInit__native" in {symbol.name for symbol in module.DIRECTORY_ENTRY_EXPORT.symbols}


def test_the_linux_wheel_installs_and_records(tmp_path: Path) -> None:
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--python",
        str(home / "bin" / "python"),
    ]
    subprocess.run([*pip, "install", str(wheel("linux"))], check=True, cwd=tmp_path)
    output = tmp_path / "x.pb.gz"
    with started(program("shares.py", version="3.12")) as target:
        arguments = [str(home / "bin" / "remoteprof"), "attach", str(target.pid), "-d", "1", "-o", str(output)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert cli.COMMAND.parent != home / "bin"
    profile = pprof.load(output)
    assert profile.with_function("heavy", "wall") > 0
