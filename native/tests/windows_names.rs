//! Names of PE files: of CPython for Windows, which has exports and no symbols (scripts/setup-wine).

mod windows_support;

use _native::pe::{Loaded, Pe};
use _native::symbols::pe::PeSymbolizer;
use _native::symbols::{Arena, Bytes, Refused};
use _native::unwind::pe::{Pages, Tables};
use windows_support::{BASE, file, mapping};

fn names(bytes: &[u8], offsets: &[u32]) -> Vec<Vec<String>> {
    let arena = Arena::default();
    let symbolizer = PeSymbolizer::open(&arena, Bytes::from(bytes), &bytes[..4096]).unwrap();
    assert!(!symbolizer.has_debug_info());
    let names = symbolizer.symbolize(offsets).into_iter();
    names.map(|symbols| symbols.into_iter().map(|symbol| symbol.function).collect()).collect()
}

#[test]
fn exports_name_their_whole_function_and_nothing_else() {
    let bytes = file("python314.dll");
    let loaded = Loaded::parse(&bytes, BASE).unwrap();
    let pe = Pe::read(&loaded, BASE).unwrap();
    let tables = Tables::read(&loaded, &mapping(pe.size, "x.dll"), usize::MAX).unwrap();
    let name = "_PyEval_EvalFrameDefault";
    let parts = tables.parts(&loaded, &Pages::default(), pe.export(&loaded, name).unwrap().unwrap());
    let offset = |address: u64| (address - BASE) as u32;
    let inside: Vec<u32> = parts.iter().flat_map(|part| [offset(part.start), offset(part.end - 1)]).collect();
    assert!(names(&bytes, &inside).iter().all(|found| found == &[name]), "{parts:x?}");
    // The functions right before and after have names of their own, or none.
    let outside: Vec<u32> = parts.iter().flat_map(|part| [offset(part.start) - 1, offset(part.end)]).collect();
    let inside_too = |at: &u32| parts.iter().any(|part| (offset(part.start)..offset(part.end)).contains(at));
    let outside: Vec<u32> = outside.into_iter().filter(|at| !inside_too(at)).collect();
    assert!(!outside.is_empty());
    assert!(names(&bytes, &outside).iter().all(|found| found != &[name]));
    assert_eq!(names(&bytes, &[0, u32::MAX]), [Vec::<String>::new(), Vec::new()]);
}

#[test]
fn only_the_file_that_is_loaded_gives_names() {
    let bytes = file("python314.dll");
    let arena = Arena::default();
    let open = |bytes: &'static [u8], head: &[u8]| PeSymbolizer::open(&arena, Bytes::from(bytes), head).err();
    let bytes: &'static [u8] = bytes.leak();
    let mut head = bytes[..4096].to_vec();
    assert_eq!(open(bytes, &head), None);
    let at = u32::from_le_bytes(head[0x3c..0x40].try_into().unwrap()) as usize;
    head[at + 8] ^= 1;
    assert_eq!(open(bytes, &head), Some(Refused::Changed));
    assert_eq!(open(bytes, &[]), Some(Refused::Changed));
    assert_eq!(open(b"MZ", &head), Some(Refused::NotPe));
}
