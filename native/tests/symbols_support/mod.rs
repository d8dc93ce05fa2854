//! Builds programs, asks addr2line, compares.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use _native::symbols::{Arena, Elf, Place, Symbol, Symbolizer};
use object::LittleEndian;
use object::read::elf::{SectionHeader, Sym};

/// A folder of this test's own.
pub fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A source file of tests/targets/native.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/targets/native").join(name).canonicalize().unwrap()
}

/// Runs a program in `folder`; whether it is there and succeeded.
pub fn runs(folder: &Path, program: &str, arguments: &[&str]) -> bool {
    let command = Command::new(program).args(arguments).current_dir(folder).output();
    match command {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            false
        }
    }
}

/// Runs a program that must succeed.
pub fn run(folder: &Path, program: &str, arguments: &[&str]) {
    assert!(runs(folder, program, arguments), "{program} {arguments:?}");
}

/// What a program that must succeed writes.
pub fn shown_by(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Builds tests/targets/native/symbols_inline.c as `folder`/`name`.
pub fn build_c(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = source("symbols_inline.c");
    let mut arguments = vec!["-o", name, source.to_str().unwrap()];
    arguments.extend(flags);
    run(folder, "gcc", &arguments);
    folder.join(name)
}

/// A jitdump: `one` at 0x1000 with lines of two files, `two` in its place from 0x1010 on, `three`, moved from 0x3000 to
/// 0x2000, and half a record.
pub fn jit_dump() -> Vec<u8> {
    let record = |kind: u32, words: &[u64], text: &[u8]| {
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend_from_slice(text);
        [&kind.to_le_bytes()[..], &(16 + body.len() as u32).to_le_bytes(), &[0; 8], &body].concat()
    };
    let row = |address: u64, line: u32, file: &[u8]| {
        [&address.to_le_bytes()[..], &line.to_le_bytes(), &[0; 4], file, &[0]].concat()
    };
    let threads = 0x2a_0000_002a;
    let load = |address: u64, size: u64, index: u64, name: &[u8]| {
        record(0, &[threads, address, address, size, index], &[name, &[0], &vec![0x90; size as usize]].concat())
    };
    let rows = [row(0x1000, 10, b"/src/one.js"), row(0x1008, 11, b"\xff"), row(0x100c, 3, b"/src/other.js")].concat();
    let header = [0x4a69_5444, 1, 40, 62, 0, 42, 0, 0, 0, 0];
    let mut dump: Vec<u8> = header.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    dump.extend(record(2, &[0x1000, 3], &rows));
    dump.extend(load(0x1000, 0x20, 1, b"one"));
    dump.extend(record(9, &[1, 2], b"of a later version"));
    dump.extend(load(0x1010, 8, 2, b"two"));
    dump.extend(record(2, &[0x3000, 1], &row(0x3000, 7, b"/src/three.js")));
    dump.extend(load(0x3000, 0x18, 3, b"three"));
    dump.extend(record(1, &[threads, 0x3000, 0x3000, 0x2000, 0x18, 3], b""));
    dump.extend(&load(0x1000, 0x100, 4, b"not all there")[..60]);
    dump
}

/// A fixed sequence of numbers.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// What we say of file addresses.
pub fn ours(path: &Path, addresses: &[u64]) -> Vec<Vec<Symbol>> {
    ours_at(path, addresses, &Place { path, roots: &[PathBuf::from("/")], ..Place::default() })
}

/// What we say, with what is known of the place.
pub fn ours_at(path: &Path, addresses: &[u64], place: &Place<'_>) -> Vec<Vec<Symbol>> {
    let arena = Arena::default();
    let file = std::fs::File::open(path).unwrap();
    let symbolizer = Symbolizer::open(&arena, arena.file(&file).unwrap(), place).unwrap();
    symbolizer.symbolize(addresses)
}

/// Random addresses in functions of the file (or anywhere in `.text` where it has none).
pub fn addresses(path: &Path, count: usize, seed: u64) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let elf = Elf::parse(&bytes[..]).unwrap();
    let text = elf.section(".text").unwrap();
    let (start, size) = (text.sh_addr(LittleEndian), text.sh_size(LittleEndian));
    let mut random = Random(seed);
    let symbols = elf.symbols(object::elf::SHT_SYMTAB);
    let functions: Vec<(u64, u64)> = symbols
        .entries
        .iter()
        .filter(|symbol| symbol.st_type() == object::elf::STT_FUNC && symbol.st_size(LittleEndian) > 0)
        .map(|symbol| (symbol.st_value(LittleEndian), symbol.st_size(LittleEndian)))
        .filter(|(at, _)| *at >= start && *at < start + size)
        .collect();
    let mut addresses: Vec<u64> = (0..count)
        .map(|index| {
            if functions.is_empty() || index % 2 == 0 {
                start + random.below(size)
            } else {
                let (at, size) = functions[random.below(functions.len() as u64) as usize];
                at + random.below(size)
            }
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// One function as addr2line tells it: name, file, line.
pub type Told = (String, String, u32);

/// What addr2line says.
pub fn theirs(path: &Path, addresses: &[u64]) -> Vec<Vec<Told>> {
    told_by(Command::new("addr2line").args(["-a", "-i", "-f", "-e"]).arg(path), addresses)
}

/// What llvm-symbolizer says, if it is there.
pub fn theirs_too(path: &Path, addresses: &[u64]) -> Option<Vec<Vec<Told>>> {
    Command::new("llvm-symbolizer").arg("--version").output().ok()?;
    let mut command = Command::new("llvm-symbolizer");
    command.args(["--output-style=GNU", "-a", "-i", "--functions=linkage", "--no-demangle"]);
    Some(told_by(command.arg(format!("--obj={}", path.display())), addresses))
}

fn told_by(command: &mut Command, addresses: &[u64]) -> Vec<Vec<Told>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    for address in addresses {
        writeln!(text, "{address:#x}").unwrap();
    }
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let mut found: BTreeMap<u64, Vec<Told>> = BTreeMap::new();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = output.lines();
    let mut current = 0;
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        if let Some(hex) = line.strip_prefix("0x")
            && let Ok(address) = u64::from_str_radix(hex, 16)
        {
            current = address;
            found.entry(current).or_default();
            continue;
        }
        let place = lines.next().unwrap();
        let place = place.split(" (discriminator").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        found.get_mut(&current).unwrap().push((line.to_string(), file.to_string(), number.parse().unwrap_or(0)));
    }
    addresses.iter().map(|address| found.remove(address).unwrap_or_default()).collect()
}

/// The figures of a comparison.
#[derive(Debug, Default)]
pub struct Compared {
    pub total: usize,
    pub equal: usize,
    pub chains: usize,
    /// Where neither side has a name; part of `equal`.
    pub unknown: usize,
    /// Between functions, where addr2line takes the function before.
    pub padding: usize,
    /// As llvm-symbolizer has it, where addr2line differs: it gives inlined functions that no other file sees the name of
    /// the function around them.
    pub llvm: usize,
    pub differing: Vec<String>,
}

impl Compared {
    /// At least 99.9 % are equal.
    pub fn check(&self, name: &str) {
        eprintln!(
            "{name}: {} addresses, {} equal, {} of them inline chains, {} padding, {} as llvm, {} without a name",
            self.total, self.equal, self.chains, self.padding, self.llvm, self.unknown
        );
        for difference in self.differing.iter().take(12) {
            eprintln!("  {difference}");
        }
        assert!(self.equal * 1000 >= self.total * 999, "{name}: {} of {} equal", self.equal, self.total);
    }
}

/// Whether two names are of one function: the linker's name of a part, such as `foo.cold`, counts as `foo`; another name
/// of the same address counts as the same.
fn same_name(symbol: &Symbol, told: &str, aliases: &[String]) -> bool {
    let base = |name: &str| name.split(['.', '@']).next().unwrap_or("").to_string();
    let same = |name: &str| name == told || (!name.starts_with('.') && base(name) == base(told));
    same(&symbol.system_name) || same(&symbol.function) || aliases.iter().any(|alias| base(alias) == base(told))
}

/// Compares addr2line's and our word on `addresses`. With `lines`, lines must be equal too.
pub fn compare(path: &Path, addresses: &[u64], lines: bool) -> Compared {
    let ours = ours(path, addresses);
    compare_with(path, addresses, lines, &ours)
}

/// Compares what was found with addr2line's word on `path`.
pub fn compare_with(path: &Path, addresses: &[u64], lines: bool, ours: &[Vec<Symbol>]) -> Compared {
    let theirs = theirs(path, addresses);
    let llvm = theirs_too(path, addresses);
    let names = names_at(path);
    let sized = sized_symbols(path);
    let mut compared = Compared { total: addresses.len(), ..Compared::default() };
    for (index, (address, ours)) in addresses.iter().zip(ours).enumerate() {
        let theirs = &theirs[index];
        let aliases =
            ours.last().and_then(|symbol| names.get(&symbol.system_name)).map_or(&[][..], |names| names.as_slice());
        let equal = |theirs: &Vec<Told>| {
            ours.len() == theirs.len()
                && ours.iter().zip(theirs).enumerate().all(|(index, (ours_, (name, _, line)))| {
                    let outermost = index + 1 == ours.len();
                    same_name(ours_, name, if outermost { aliases } else { &[] }) && (!lines || ours_.line == *line)
                })
        };
        let same = if ours.is_empty() {
            let unknown = theirs.iter().all(|(name, _, _)| name == "??");
            let padding = !unknown && !covered(&sized, *address);
            compared.padding += usize::from(padding);
            compared.unknown += usize::from(unknown);
            unknown || padding
        } else if equal(theirs) {
            true
        } else {
            let second = llvm.as_ref().is_some_and(|llvm| equal(&llvm[index]));
            compared.llvm += usize::from(second);
            second
        };
        if same {
            compared.equal += 1;
            compared.chains += usize::from(ours.len() > 1);
        } else {
            let ours: Vec<_> = ours.iter().map(|symbol| format!("{}:{}", symbol.system_name, symbol.line)).collect();
            let theirs: Vec<_> = theirs.iter().map(|(name, _, line)| format!("{name}:{line}")).collect();
            compared.differing.push(format!("{address:#x}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    compared
}

/// For each symbol the other names of its address.
fn names_at(path: &Path) -> BTreeMap<String, Vec<String>> {
    let bytes = std::fs::read(path).unwrap();
    let elf = Elf::parse(&bytes[..]).unwrap();
    let id: String = elf.build_id().iter().map(|byte| format!("{byte:02x}")).collect();
    let (first, rest) = id.split_at(id.len().min(2));
    let separate = std::fs::read(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")).unwrap_or_default();
    let mut at: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for elf in [Some(elf), Elf::parse(&separate[..])].into_iter().flatten() {
        for kind in [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM] {
            let symbols = elf.symbols(kind);
            for symbol in symbols.entries {
                let name = symbols.name(symbol).unwrap_or(&[]);
                at.entry(symbol.st_value(LittleEndian)).or_default().push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    at.into_values().flat_map(|names| names.clone().into_iter().map(move |name| (name, names.clone()))).collect()
}

/// The ranges of all symbols that have a size, sorted.
fn sized_symbols(path: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(path).unwrap();
    let elf = Elf::parse(&bytes[..]).unwrap();
    let mut ranges = Vec::new();
    for kind in [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM] {
        for symbol in elf.symbols(kind).entries {
            if !symbol.is_undefined(LittleEndian) {
                let start = symbol.st_value(LittleEndian);
                ranges.push((start, start + symbol.st_size(LittleEndian)));
            }
        }
    }
    ranges
}

fn covered(ranges: &[(u64, u64)], address: u64) -> bool {
    ranges.iter().any(|&(start, end)| start <= address && address < end)
}
