"""pprof, written and read."""

import gzip
import io
import subprocess

import pytest

from remoteprof.errors import RemoteprofError, UsageError
from remoteprof.formats import choose, pprof, pprof_reader, save
from remoteprof.formats import profile_pb2 as pb
from remoteprof.modules import Module
from remoteprof.profile.build import build
from remoteprof.profile.model import Function, Line, Location, Mapping, Profile, Sample, ValueType

MODULES = {7: [Module(0x1000, 0x2000, 0x10, "/bin/app", "ab12"), Module(0x3000, 0x4000, 0, "[vdso]")]}


@pytest.fixture
def profile(native):
    made = build([native.batch(7)], 100, MODULES)
    made.comments = ["command: x", "second"]
    return made


def written(profile, compress=True):
    stream = io.BytesIO()
    pprof.write(profile, stream, compress)
    return stream.getvalue()


@pytest.mark.parametrize("compress", [True, False])
def test_what_was_written_is_read(profile, compress):
    profile.drop_frames, profile.keep_frames, profile.doc_url = "a|b", "c", "https://example.com/"
    assert pprof.parse(written(profile, compress)) == profile


def test_the_message_is_in_order(profile):
    message = pb.Profile.FromString(written(profile, compress=False))
    assert message.string_table[0] == b""
    for table in (message.mapping, message.location, message.function):
        ids = [one.id for one in table]
        assert 0 not in ids and len(set(ids)) == len(ids)
    assert [mapping.id for mapping in message.mapping] == [1, 2]
    assert message.string_table[message.default_sample_type] == b"cpu"
    assert len(message.string_table) == len(set(message.string_table))


def test_equal_profiles_give_equal_bytes(profile):
    assert written(profile) == written(profile)


def test_many_samples_are_written_in_parts_that_add_up():
    function = Function("f", "f", "f.py", 1)
    samples = [Sample((Location([Line(function, line)]),), [line]) for line in range(3 * pprof.PART + 1)]
    profile = Profile([ValueType("samples", "count")], samples, [Mapping()])
    read = pprof.parse(written(profile))
    assert read.samples == samples
    assert len(list(read.functions())) == 1


@pytest.mark.parametrize(
    "name, shown", [("a\udcffb", "a\ufffdb"), ("\ud800", "?"), ("\x1b[31m\0", "\x1b[31m\0"), ("é", "é")]
)
def test_names_are_valid_text_in_the_file(name, shown):
    profile = Profile([ValueType("samples", "count")], [Sample((Location([Line(Function(name))]),), [1])], [Mapping()])
    [sample] = pprof.parse(written(profile)).samples
    assert sample.locations[0].lines[0].function.name == shown


@pytest.mark.parametrize(
    "content",
    [
        b"no profile",
        gzip.compress(b"no profile"),
        gzip.compress(b"")[:-4],
        b"\x1f\x8bxxxx",
        pb.Profile(comment=[5]).SerializeToString(),
        pb.Profile(sample=[pb.Sample(location_id=[1])], string_table=[b""]).SerializeToString(),
        pb.Profile(sample=[pb.Sample(value=[1])], string_table=[b""]).SerializeToString(),
        pb.Profile(location=[pb.Location(id=1, mapping_id=3)], string_table=[b""]).SerializeToString(),
    ],
)
def test_what_is_no_profile_is_an_error(content, tmp_path):
    (tmp_path / "x.pb.gz").write_bytes(content)
    with pytest.raises(RemoteprofError, match=r"x\.pb\.gz: .*not a pprof profile"):
        Profile.load(tmp_path / "x.pb.gz")


def test_a_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(pprof_reader, "MAX_FILE", 1 << 20)
    with pytest.raises(RemoteprofError, match="larger than 1 MiB"):
        pprof.parse(gzip.compress(bytes(5 << 20)))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(RemoteprofError, match="No such file"):
        Profile.load(tmp_path / "none")


def test_formats_are_chosen_by_name_then_suffix(profile, tmp_path):
    assert choose("x.pb")[1] == ".pb"
    assert choose("x")[1] == choose("x.pb.gz")[1] == ".pb.gz"
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        choose("x.pb", "xml")
    assert save(profile, str(tmp_path / "x.pb")) == (tmp_path / "x.pb").stat().st_size
    assert profile.save(tmp_path / "x.pb.gz") == (tmp_path / "x.pb.gz").stat().st_size
    assert (tmp_path / "x.pb.gz").read_bytes()[:2] == b"\x1f\x8b" != (tmp_path / "x.pb").read_bytes()[:2]
    assert Profile.load(tmp_path / "x.pb") == Profile.load(tmp_path / "x.pb.gz")


def test_go_reads_it(profile, tmp_path):
    profile.save(tmp_path / "x.pb.gz")

    def read(*options):
        command = ["go", "tool", "pprof", "-symbolize=none", *options, str(tmp_path / "x.pb.gz")]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    raw = read("-raw")
    assert "samples/count cpu/nanoseconds[dflt] wall/nanoseconds gil/nanoseconds" in raw
    assert "1: 0x1000/0x2000/0x10 /bin/app ab12" in raw
    assert "work /app/work.py:12" in raw
    assert "1.50s   100%   100%" in read("-top")
    for column in ("samples", "cpu", "wall", "gil"):
        assert "work" in read("-top", f"-sample_index={column}")
    assert "work" in read("-tree", "-tagfocus=thread_name=MainThread")
    assert "work" in read("-peek", "work")
    read("-proto", "-output=/dev/null")
