"""pprof, written and read."""

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.hostile import loaded, mutations

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


def message(**fields):
    return pb.Profile(**{"string_table": [b"", b"x"], "sample_type": [pb.ValueType()], **fields}).SerializeToString()


def located(*ids, **fields):
    return message(sample=[pb.Sample(location_id=ids, value=[1])], **fields)


HOSTILE = {
    "unknown kind": b"no profile",
    "not a pprof profile": gzip.compress(b"no profile"),
    "compressed by Zstandard": b"\x28\xb5\x2f\xfd\x20\x00",
    "unknown compression method": b"\x1f\x8bxxxx",
    "the compressed data ends too early": gzip.compress(message())[:-4],
    "empty": b"",
    "it has no strings": gzip.compress(b""),
    "no strings": pb.Profile(period=1).SerializeToString(),
    "its first string is 'x', not empty": message(string_table=[b"x"]),
    "string 5, which is not in it": message(comment=[5]),
    "string -1, which is not in it": message(function=[pb.Function(id=1, name=-1)]),
    "string 2, which is not in it": message(sample_type=[pb.ValueType(type=2)]),
    "string 3, which is not in it": message(mapping=[pb.Mapping(id=1, build_id=3)]),
    "string 4, which is not in it": message(sample=[pb.Sample(value=[1], label=[pb.Label(key=1, str=4)])]),
    "location 1, which is not in it": located(1),
    "location 18446744073709551615, which": located((1 << 64) - 1),
    "location 0, which is not in it": located(0, location=[pb.Location(id=1)]),
    "mapping 3, which is not in it": message(location=[pb.Location(id=1, mapping_id=3)]),
    "function 3, which is not in it": message(location=[pb.Location(id=1, line=[pb.Line(function_id=3)])]),
    # What refers to its like: ids name a kind each, so that a ring is a missing row.
    "function 7, which is not in it": located(7, location=[pb.Location(id=7, line=[pb.Line(function_id=7)])]),
    "a location with the id 0": message(location=[pb.Location()]),
    "a function with the id 0": message(function=[pb.Function()]),
    "a mapping with the id 0": message(mapping=[pb.Mapping()]),
    "two locations with the id 1": message(location=[pb.Location(id=1)] * 2),
    "two functions with the id 1": message(function=[pb.Function(id=1)] * 2),
    "two mappings with the id 9": message(mapping=[pb.Mapping(id=9)] * 2),
    "0 values for 1 types": message(sample=[pb.Sample()]),
    "2 values for 1 types": message(sample=[pb.Sample(value=[1, 2])]),
    "it has samples, and no sample types": message(sample_type=[], sample=[pb.Sample()]),
    "ends too early": message()[:-1],
    "a number that is too long": b"\x08" + b"\xff" * 11,
    "a field of unknown kind at byte 0": b"\x0b",
    "a part of it is larger than 4 MiB": located(*[1] * (7 << 20), location=[pb.Location(id=1)]),
    "its head is larger than 1 MiB": message(comment=[1] * (2 << 20)),
    "a sample has the value -2, below zero": message(sample=[pb.Sample(value=[-2])]),
}


@pytest.mark.parametrize(
    "ids, used",
    [
        ((1, 2, 3), ((3, 1), (2,))),
        ((1, 2, 3), ((1, 2),)),
        ((2, 1), ((1, 2),)),
        ((7, 1 << 40, (1 << 64) - 1), ((7,), (1 << 40, (1 << 64) - 1))),
        (range(9, 3 * pprof.PART), ((11,),)),
    ],
    ids=["another order", "an unused one", "listed in another order", "with gaps", "many"],
)
def test_locations_keep_their_numbers_and_order(ids, used):
    given = message(
        location=[pb.Location(id=number, address=number) for number in ids],
        sample=[pb.Sample(location_id=numbers, value=[1]) for numbers in used],
    )
    profile = pprof.parse(given)
    again = pb.Profile.FromString(written(profile, compress=False))
    assert [(location.id, location.address) for location in again.location] == [(number, number) for number in ids]
    assert [tuple(sample.location_id) for sample in again.sample] == list(used)
    assert pprof.parse(written(profile)) == profile
    # What is chosen from it is numbered anew, without what is not used.
    chosen = pb.Profile.FromString(written(profile.filter(lambda _: True), compress=False))
    assert chosen.sample[0].location_id[0] == 1
    assert len(chosen.location) == len({number for numbers in used for number in numbers})


def test_a_new_location_gets_a_number_that_is_free():
    profile = pprof.parse(located(2, location=[pb.Location(id=2), pb.Location(id=(1 << 64) - 1)]))
    profile.samples += [Sample((Location(address=address),), [1]) for address in (5, 6)]
    again = pb.Profile.FromString(written(profile, compress=False))
    assert [sample.location_id[0] for sample in again.sample] == [2, 1, 3]


@pytest.mark.parametrize("problem", HOSTILE)
def test_what_is_no_profile_is_an_error(problem, tmp_path):
    (tmp_path / "x.pb.gz").write_bytes(HOSTILE[problem])
    with pytest.raises(RemoteprofError, match=r"^[^\n]*x\.pb\.gz: ") as raised:
        Profile.load(tmp_path / "x.pb.gz")
    assert problem in raised.value.message


def test_values_below_zero_belong_into_a_difference(tmp_path):
    path = tmp_path / "x.pb"
    path.write_bytes(HOSTILE["a sample has the value -2, below zero"])
    assert Profile.load(path, signed=True).samples[0].values == [-2]
    base = pb.Sample(value=[-2], label=[pb.Label(key=1, str=2)])
    path.write_bytes(message(sample=[base], string_table=[b"", b"pprof::base", b"true"]))
    assert Profile.load(path).samples[0].values == [-2]


def test_memory_is_bounded(monkeypatch):
    content = message(
        sample=[pb.Sample(location_id=[1] * 100, value=[1], label=[pb.Label(key=1, num=7)])] * 1_000,
        location=[pb.Location(id=1, line=[pb.Line(function_id=1)])],
        function=[pb.Function(id=1)],
        mapping=[pb.Mapping(id=1)],
    )
    assert len(pprof.parse(content).samples) == 1_000
    monkeypatch.setattr(pprof_reader, "MAX_MEMORY", 1 << 20)
    with pytest.raises(RemoteprofError, match="more than 1 MiB of memory"):
        pprof.parse(content)


def test_many_pieces_are_one_message(profile, monkeypatch):
    content = written(profile, compress=False)
    monkeypatch.setattr("remoteprof.formats.wire.PIECE", 10)
    assert pprof.parse(content) == profile


def test_gzip_in_several_members(profile):
    content = written(profile, compress=False)
    packed = gzip.compress(content[:100]) + gzip.compress(b"") + gzip.compress(content[100:]) + bytes(20)
    assert pprof.parse(packed) == profile
    with pytest.raises(RemoteprofError, match="not a pprof profile"):
        pprof.parse(packed + b"x")


def test_a_small_bomb_is_refused(monkeypatch):
    monkeypatch.setattr(pprof_reader, "MAX_FILE", 1 << 20)
    with pytest.raises(RemoteprofError, match="larger than 1 MiB"):
        pprof.parse(gzip.compress(bytes(5 << 20)))


BOMB = """
import sys, zlib
from remoteprof import Profile, RemoteprofError
pack = zlib.compressobj(9, wbits=31)
nothing = bytes(1 << 20)
with open(sys.argv[1], "wb") as file:
    for _ in range(1 << 10):
        file.write(pack.compress(nothing))
    file.write(pack.flush())
try:
    Profile.load(sys.argv[1])
except RemoteprofError as error:
    print(error.message)
# Not ru_maxrss, which begins with that of the process that started this one.
print(*[int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


def test_a_gigabyte_in_a_small_file_is_refused_before_it_is_unpacked(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", BOMB, str(tmp_path / "bomb.pb.gz")]
    said, memory = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.splitlines()
    assert said == f"{tmp_path}/bomb.pb.gz: larger than 512 MiB"
    assert int(memory) < 150, "MiB"


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


def test_ten_thousand_damaged_files_are_refused_or_read():
    found = [loaded(content) for content in mutations(10_000)]
    read = sum(profile is not None for profile in found)
    assert 500 < read < 9500, "mutations that all do the same show nothing"
