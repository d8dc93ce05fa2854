//! Files made to hurt: no panic, no hang, no memory without end. Mutated ones: hostile.rs.

mod symbols_support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use _native::symbols::{Arena, Place, Symbolizer, demangle, jitdump, perfmap};
use _native::target::sys::thread_cpu_ns;
use symbols_support::{Random, folder, jit_dump};

const LIMIT: Duration = Duration::from_secs(1);

/// Looks everything up once, and says what CPU time it took.
fn look_up(bytes: &[u8], addresses: &[u64], path: &Path) -> Duration {
    let start = thread_cpu_ns();
    let arena = Arena::default();
    let roots = [PathBuf::from("/nowhere")];
    let place = Place { path, roots: &roots, ..Place::default() };
    if let Ok(symbolizer) = Symbolizer::open(&arena, bytes, &place) {
        symbolizer.symbolize(addresses);
        for &address in addresses {
            symbolizer.file_address(0, 0, address);
        }
    }
    Duration::from_nanos(thread_cpu_ns() - start)
}

/// An ELF file with the given sections, and one of code at 0x1000.
fn elf_with(sections: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut names = vec![0];
    let mut headers = vec![[0_u64; 8]];
    let mut bytes = vec![0; 64];
    let mut add = |bytes: &mut Vec<u8>, name: &str, kind: u64, flags: u64, address: u64, content: &[u8]| {
        headers.push([
            names.len() as u64 | kind << 32,
            flags,
            address,
            bytes.len() as u64,
            content.len() as u64,
            0,
            1,
            0,
        ]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        bytes.extend_from_slice(content);
        names.clone()
    };
    add(&mut bytes, ".text", 1, 6, 0x1000, &[0x90; 4096]);
    for (name, content) in sections {
        add(&mut bytes, name, 1, 0, 0, content);
    }
    let text = add(&mut bytes, ".shstrtab", 3, 0, 0, &[]);
    let last = headers.len() - 1;
    headers[last][3] = bytes.len() as u64;
    headers[last][4] = text.len() as u64;
    bytes.extend_from_slice(&text);
    let table = bytes.len() as u64;
    for header in &headers {
        for word in header {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    bytes[20] = 1;
    bytes[40..48].copy_from_slice(&table.to_le_bytes());
    bytes[52] = 64;
    bytes[54] = 56;
    bytes[58] = 64;
    bytes[60..62].copy_from_slice(&(headers.len() as u16).to_le_bytes());
    bytes[62..64].copy_from_slice(&(last as u16).to_le_bytes());
    bytes
}

/// A DWARF 4 unit over 0x1000..0x2000 with `body` as the children of its root.
fn unit(body: &[u8]) -> Vec<u8> {
    let mut root = vec![1];
    root.extend_from_slice(&0x1000_u64.to_le_bytes());
    root.extend_from_slice(&0x1000_u64.to_le_bytes());
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8];
    unit.extend_from_slice(&root);
    unit.extend_from_slice(body);
    let mut all = (unit.len() as u32).to_le_bytes().to_vec();
    all.append(&mut unit);
    all
}

/// 1: the root. 2: a function, 3: an inlined call, with low_pc, high_pc; 4: the same two with a range list.
fn abbreviations() -> Vec<u8> {
    let pc = [0x11, 0x01, 0x12, 0x07, 0, 0];
    let mut bytes = Vec::new();
    for (code, tag) in [(1, 0x11), (2, 0x2e), (3, 0x1d)] {
        bytes.extend_from_slice(&[code, tag, 1]);
        bytes.extend_from_slice(&pc);
    }
    bytes.extend_from_slice(&[4, 0x1d, 1, 0x55, 0x17, 0, 0, 0]);
    bytes
}

#[test]
fn nested_without_end() {
    let mut body = vec![2];
    let code = [0x1000_u64.to_le_bytes(), 0x1000_u64.to_le_bytes()].concat();
    body.extend_from_slice(&code);
    for _ in 0..300_000 {
        body.push(3);
        body.extend_from_slice(&code);
    }
    let file = elf_with(&[(".debug_abbrev", abbreviations()), (".debug_info", unit(&body))]);
    let known: Vec<u64> = (0x1000..0x1400).collect();
    let took = look_up(&file, &known, Path::new(""));
    eprintln!("{took:?}");
    assert!(took < LIMIT, "{took:?}");
}

#[test]
fn ranges_told_again_and_again() {
    // 100,000 calls that all share a list of 100,000 ranges.
    let mut ranges = Vec::new();
    for _ in 0..100_000 {
        ranges.extend_from_slice(&0_u64.to_le_bytes());
        ranges.extend_from_slice(&0x800_u64.to_le_bytes());
    }
    ranges.extend_from_slice(&[0; 16]);
    let mut body = vec![2];
    body.extend_from_slice(&0x1000_u64.to_le_bytes());
    body.extend_from_slice(&0x1000_u64.to_le_bytes());
    for _ in 0..100_000 {
        body.extend_from_slice(&[4, 0, 0, 0, 0, 0]);
    }
    let file = elf_with(&[(".debug_abbrev", abbreviations()), (".debug_info", unit(&body)), (".debug_ranges", ranges)]);
    let known: Vec<u64> = (0x1000..0x1400).collect();
    let took = look_up(&file, &known, Path::new(""));
    eprintln!("{took:?}");
    assert!(took < 2 * LIMIT, "{took:?}");
}

#[test]
fn sections_that_unpack_without_end() {
    // Says 1 EiB; holds nothing of it.
    let mut packed = Vec::new();
    packed.extend_from_slice(b"ZLIB");
    packed.extend_from_slice(&(1_u64 << 60).to_be_bytes());
    packed.extend_from_slice(&[0x78, 0x9c, 1, 2, 3]);
    let file = elf_with(&[(".debug_abbrev", abbreviations()), (".zdebug_info", packed)]);
    assert!(look_up(&file, &[0x1000], Path::new("")) < LIMIT);
}

#[test]
fn mutated_names() {
    let names = [
        "_ZNSt6vectorISt10unique_ptrIN12_GLOBAL__N_15ShapeESt14default_deleteIS2_EESaIS5_EEC2Ev",
        "_RNvXse_NtNtCslNYArtu3iFV_5alloc3vec9into_iterINtB5_8IntoIterNtNtNtCsjrHSEGnQ3l9_3std3ffi6os_str8OsStringE",
        "_ZN4core3ptr85drop_in_place$LT$std..rt..lang_start$LT$$LP$$RP$$GT$..$u7b$$u7b$closure$u7d$$u7d$$GT$17h01E",
    ];
    let mut random = Random(0xabcd);
    let start = thread_cpu_ns();
    for index in 0..30_000 {
        let mut name = names[index % names.len()].as_bytes().to_vec();
        for _ in 0..=random.below(6) {
            let at = random.below(name.len() as u64) as usize;
            match random.below(3) {
                0 => name[at] = b"SITNEZ_0123456789abcdR"[random.below(22) as usize],
                1 => name.insert(at, b"SITNEZ_0123456789abcdR"[random.below(22) as usize]),
                _ => drop(name.remove(at)),
            }
        }
        demangle(&String::from_utf8_lossy(&name));
    }
    let deep = [format!("_Z1f{}", "P".repeat(60_000)), format!("_Z{}", "N".repeat(60_000)), "_RI".repeat(20_000)];
    for name in &deep {
        demangle(name);
    }
    assert!(thread_cpu_ns() - start < 10 * LIMIT.as_nanos() as u64);
}

#[test]
fn perf_maps() {
    let text = b"1000 20 one\n\
        garbage\n\
        ffffffffffffffff 10 over the end\n\
        zz 10 no hex\n\
        +1000 10 signed\n\
        1010 8 two\n\
        0x1018 0x10 three with spaces \n\
        1100 0 empty\n\
        1200\n\
        1300 10\n\
        1000000000000000000000 10 long\n\
        1400 10 no newline at the end \xff";
    let names =
        perfmap::find(text, &[0x1018, 0x1000, 0x100f, 0x1010, 0x1027, 0x1028, 0x1100, 0x1300, 0x1400, u64::MAX]);
    let names: Vec<Option<&str>> = names.iter().map(Option::as_deref).collect();
    assert_eq!(
        names[..6],
        [Some("three with spaces"), Some("one"), Some("one"), Some("two"), Some("three with spaces"), None]
    );
    assert_eq!(names[6..], [None, None, Some("no newline at the end \u{fffd}"), None]);

    // A million lines that all cover everything.
    let text = "0 ffffffff x\n".repeat(1_000_000);
    let known: Vec<u64> = (0..1000).collect();
    let start = thread_cpu_ns();
    assert!(perfmap::find(text.as_bytes(), &known).iter().all(Option::is_some));
    assert!(thread_cpu_ns() - start < LIMIT.as_nanos() as u64);
}

#[test]
fn jit_dumps() {
    let folder = folder("symbols_jitdump");
    let told = |bytes: &[u8], addresses: &[u64]| {
        std::fs::write(folder.join("dump"), bytes).unwrap();
        jitdump::find(&std::fs::File::open(folder.join("dump")).unwrap(), addresses)
    };
    let dump = jit_dump();
    let found = told(&dump, &[0x100b, 0x1000, 0x100c, 0x1010, 0x1018, 0x1020, 0x2010, 0x3017, 0]).unwrap();
    let shown: Vec<String> = found
        .into_iter()
        .map(|told| told.map_or(String::new(), |told| format!("{} {}:{}", told.name, told.file, told.line)))
        .collect();
    let (other, three) = ("one /src/other.js:3", "three /src/three.js:7");
    assert_eq!(shown, ["one /src/one.js:11", "one /src/one.js:10", other, "two :0", other, "", three, three, ""]);
    // Another kind of machine, another version, a header that lies, none.
    for (at, byte) in [(12, 183), (4, 2), (0, 0), (8, 39), (11, 255)] {
        let mut other = dump.clone();
        other[at] = byte;
        assert!(told(&other, &[0x1000]).is_err(), "{at}");
    }
    assert!(told(b"JiTD", &[0x1000]).is_err());

    // Many records that all cover everything, with as many rows as fit.
    let (start, mut large) = (dump.len() - 60, dump.clone());
    large.truncate(start);
    for _ in 0..100_000 {
        large.extend_from_slice(&dump[40..start]);
    }
    let known: Vec<u64> = (0x1000..0x1400).collect();
    let began = thread_cpu_ns();
    assert_eq!(told(&large, &known).unwrap().iter().flatten().count(), 0x20);
    assert!(thread_cpu_ns() - began < 3 * LIMIT.as_nanos() as u64);
}
