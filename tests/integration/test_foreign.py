"""Profiles that other programs wrote: loaded and saved, `go tool pprof` sees no difference."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path

import pytest
from support import cli
from support.gotool import go, go_pprof
from support.targets import ROOT

from remoteprof import Profile, RemoteprofError

FILES = sorted((ROOT / "tests/data/foreign").glob("*.pprof"))

SHAPES = ("inlined", "generic", "deep", "labelled")
KINDS = ("cpu", "heap", "allocs", "block", "mutex", "goroutine", "threadcreate")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tests/targets/profiles, built."""
    path = tmp_path_factory.mktemp("go") / "profiles"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    command = [go(), "build", "-o", str(path), "."]
    built = subprocess.run(
        command, cwd=ROOT / "tests/targets/profiles", env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return path


@pytest.fixture(scope="module")
def written(program: Path) -> dict[str, Path]:
    """SHAPE-KIND → a profile that runtime/pprof wrote."""
    found = {}
    for shape in SHAPES:
        directory = program.with_name(shape)
        directory.mkdir()
        subprocess.run([program, shape, directory], check=True)
        for kind in KINDS:
            found[f"{shape}-{kind}"] = directory / kind
    return found


def raw(path: Path) -> list[str]:
    return go_pprof("-raw", "-symbolize=none", path).splitlines()


def same_again(path: Path, directory: Path, signed: bool = False) -> Profile:
    """Loads, saves and compares; gives the profile."""
    profile = Profile.load(path, signed=signed)
    again = directory / f"again-{path.name}.pb.gz"
    profile.save(again)
    expected = raw(path)
    assert any(line.startswith("Locations") for line in expected)
    assert raw(again) == expected
    assert Profile.load(again, signed=signed) == profile
    return profile


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_runtime_pprof(written: dict[str, Path], shape: str, kind: str, tmp_path: Path) -> None:
    profile = same_again(written[f"{shape}-{kind}"], tmp_path)
    assert profile.samples and profile.mappings
    if kind == "cpu":
        assert profile.total("cpu") == profile.total("samples") * profile.period > 0
        named = {function.name for function in profile.functions()}
        expected = {"generic": "main.generic[go.shape.", "labelled": "main.outer"}.get(shape, "main.inner")
        assert any(name.startswith(expected) for name in named), named
        if shape == "labelled":
            labels = {label for sample in profile.samples for label in sample.labels}
            assert {label.key for label in labels} >= {"request", "odd\x1b<k>"}
        if shape == "deep":
            assert max(len(sample.locations) for sample in profile.samples) > 60


@pytest.mark.parametrize("kind", ("cpu", "heap"))
def test_uncompressed_and_in_two_members(written: dict[str, Path], kind: str, tmp_path: Path) -> None:
    content = gzip.decompress(written[f"inlined-{kind}"].read_bytes())
    (tmp_path / "plain").write_bytes(content)
    first = same_again(tmp_path / "plain", tmp_path)
    half = len(content) // 2
    (tmp_path / "two").write_bytes(gzip.compress(content[:half]) + gzip.compress(content[half:]))
    assert same_again(tmp_path / "two", tmp_path) == first


def test_written_again_by_pprof(written: dict[str, Path], tmp_path: Path) -> None:
    for name in ("labelled-cpu", "generic-heap"):
        go_pprof("-proto", f"-output={tmp_path / name}", written[name])
        same_again(tmp_path / name, tmp_path)


@pytest.mark.parametrize("option", ("-base", "-diff_base"))
def test_differences_by_pprof(written: dict[str, Path], option: str, tmp_path: Path) -> None:
    path = tmp_path / "diff"
    go_pprof("-proto", f"-output={path}", f"{option}={written['deep-cpu']}", written["inlined-cpu"])
    profile = same_again(path, tmp_path, signed=True)
    assert min(sample.values[0] for sample in profile.samples) < 0
    if option == "-base":
        with pytest.raises(RemoteprofError, match="below zero"):
            Profile.load(path)
    else:
        assert Profile.load(path) == profile


def top(*arguments: object) -> list[str]:
    """The table of `pprof -top`, without what tells of the file."""
    lines = go_pprof("-top", "-symbolize=none", "-nodecount=1000", "-nodefraction=0", *arguments).splitlines()
    return lines[next(number for number, line in enumerate(lines) if line.split()[:1] == ["flat"]) :]


@pytest.mark.parametrize(
    ("base", "new"), (("inlined-cpu", "generic-cpu"), ("deep-cpu", "deep-cpu"), ("inlined-heap", "deep-heap"))
)
def test_a_difference_is_what_pprof_makes_of_two(written: dict[str, Path], base: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "diff.pb.gz"
    result = cli.remoteprof("diff", written[base], written[new], "-o", path)
    assert (result.status, result.stdout, result.stderr) == (0, "", "")
    assert top(path) == top(f"-diff_base={written[base]}", written[new])


def test_the_table_of_a_difference_is_that_of_pprof(written: dict[str, Path]) -> None:
    old, new = written["inlined-allocs"], written["deep-allocs"]
    result = cli.remoteprof("diff", old, new, "-t", "alloc_objects", "-n", 1000)
    assert result.status == 0, result.stderr
    lines = top("-sample_index=alloc_objects", f"-diff_base={old}", new)[1:]
    theirs = {}
    for line in lines:
        flat, _, _, cumulative, _, name = line.split(maxsplit=5)
        theirs[name.removesuffix(" (inline)").removesuffix(" (partial-inline)")] = (int(flat), int(cumulative))
    ours = {}
    for line in result.stdout.splitlines()[2:]:
        words = line.split()
        # flat, share, change of share, the same cumulative, name and file
        cells, name = words[:14], " ".join(words[14:])
        ours[name.rpartition(" (")[0] or name] = (int(cells[0]), int(cells[7]))
    assert len(ours) > 10
    assert ours == theirs


def test_a_sum_is_that_of_pprof(written: dict[str, Path], tmp_path: Path) -> None:
    for kind in ("cpu", "heap", "mutex"):
        parts = [written[f"{shape}-{kind}"] for shape in SHAPES]
        path = tmp_path / f"{kind}.pb.gz"
        result = cli.remoteprof("merge", *parts, "-o", path)
        assert (result.status, result.stdout, result.stderr) == (0, "", "")
        assert top(path) == top(*parts)
        assert raw(path)[:4] == raw_of_all(parts, tmp_path / kind)[:4]


def raw_of_all(parts: list[Path], path: Path) -> list[str]:
    go_pprof("-proto", "-symbolize=none", f"-output={path}", *parts)
    return raw(path)


def totals(lines: list[str]) -> list[int]:
    """The sum of each column, as -raw lists the samples."""
    start, end = lines.index("Samples:") + 2, lines.index("Locations")
    rows = [re.fullmatch(r" *(-?\d+(?: +-?\d+)*): [\d ]*", line) for line in lines[start:end]]
    return [sum(column) for column in zip(*(map(int, row[1].split()) for row in rows if row), strict=True)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_of_others(path: Path, tmp_path: Path) -> None:
    profile = same_again(path, tmp_path)
    types, labels, function = facts(path)
    assert " ".join(kind.type for kind in profile.sample_types) == types
    assert {label.key for sample in profile.samples for label in sample.labels} == labels
    assert function in {function.name for function in profile.functions()}
    sums = [profile.total(kind.type) for kind in profile.sample_types]
    assert sums == totals(raw(path))
    assert min(sums) >= 0 < max(sums)
    for kind, total in zip(profile.sample_types, sums, strict=True):
        if total:
            shown = go_pprof("-top", "-symbolize=none", f"-sample_index={kind.type}", f"-unit={kind.unit}", path)
            assert re.search(rf"of {total}\D* total", shown), shown


def facts(path: Path) -> tuple[str, set[str], str]:
    """What README.md lists of a file: sample types, keys of labels, and a function that ran."""
    for line in (path.parent / "README.md").read_text().splitlines():
        cells = [cell.strip(" `") for cell in line.split("|")]
        if cells[1:2] == [path.stem]:
            return cells[3], set(filter(None, cells[4].split(", "))), cells[5]
    raise AssertionError(f"{path.name} is not in the README.md beside it")


def test_each_listed_file_is_there() -> None:
    listed = re.findall(r"(?m)^\| `(\S+)` ", (ROOT / "tests/data/foreign/README.md").read_text())
    assert sorted(listed) == sorted(path.stem for path in FILES)
    assert len(FILES) >= 20
    assert max(path.stat().st_size for path in FILES) <= 10240


def test_zstandard_is_refused_as_pprof_refuses_it(tmp_path: Path) -> None:
    path = ROOT / "tests/data/foreign/ddtrace.pprof.zst"
    with pytest.raises(AssertionError, match="unrecognized profile format"):
        raw(path)
    with pytest.raises(RemoteprofError, match="compressed by Zstandard") as raised:
        Profile.load(path)
    assert "zstd -d" in raised.value.hint


def test_unlike_profiles(written: dict[str, Path], tmp_path: Path) -> None:
    cpu, heap = written["deep-cpu"], written["deep-heap"]
    merged = cli.remoteprof("merge", cpu, heap, "-o", tmp_path / "x")
    merged.failed_with(2, "different sample types", "samples/count, cpu/nanoseconds, and alloc_objects/count")
    cli.remoteprof("diff", cpu, heap).failed_with(2, "no inuse_space/bytes in the base profile")
