//! Where names come from: debug files, split and compressed DWARF, mini debug info, PLT stubs; what is not used.

mod symbols_support;

use std::fs::File;
use std::path::{Path, PathBuf};

use _native::symbols::{Arena, Place, Refused, Symbol, Symbolizer};
use symbols_support::{addresses, build_c, compare_with, folder, ours, ours_at, run, runs, shown_by};

const COUNT: usize = 400;

/// The same names and lines as the unstripped program gives.
fn check_same(full: &Path, other: &[Vec<Symbol>], addresses: &[u64]) {
    let expected = ours(full, addresses);
    assert!(expected.iter().filter(|chain| chain.len() > 1).count() > 20, "no inline chains");
    for ((address, expected), other) in addresses.iter().zip(&expected).zip(other) {
        assert_eq!(expected, other, "{address:#x}");
    }
}

#[test]
fn separate_file_by_build_id() {
    let folder = folder("symbols_by_id");
    let full = build_c(&folder, "full", &["-g", "-O2", "-Wl,--build-id"]);
    run(&folder, "objcopy", &["-S", "full", "stripped"]);
    let stripped = folder.join("stripped");
    let id = {
        let arena = Arena::default();
        let bytes = arena.file(&File::open(&full).unwrap()).unwrap();
        Symbolizer::open(&arena, bytes, &Place::default()).unwrap().build_id().to_vec()
    };
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let root = folder.join("root");
    let place = root.join(format!("usr/lib/debug/.build-id/{}", &hex[..2]));
    std::fs::create_dir_all(&place).unwrap();
    let debug = place.join(format!("{}.debug", &hex[2..]));
    run(&folder, "objcopy", &["--only-keep-debug", "full", debug.to_str().unwrap()]);
    let addresses = addresses(&full, COUNT, 1);
    let roots = [folder.join("nothing"), root];
    let place = Place { path: &stripped, roots: &roots, build_id: &id, debug_file: None };
    check_same(&full, &ours_at(&stripped, &addresses, &place), &addresses);
    let given = File::open(&debug).unwrap();
    let place = Place { path: &stripped, debug_file: Some(&given), ..Place::default() };
    check_same(&full, &ours_at(&stripped, &addresses, &place), &addresses);
    // A file of another build is not used.
    build_c(&folder, "other", &["-g", "-O1", "-Wl,--build-id"]);
    run(&folder, "objcopy", &["--only-keep-debug", "other", debug.to_str().unwrap()]);
    let place = Place { path: &stripped, roots: &roots, ..Place::default() };
    assert!(ours_at(&stripped, &addresses, &place).iter().all(Vec::is_empty));
    let given = File::open(&debug).unwrap();
    let place = Place { path: &stripped, debug_file: Some(&given), ..Place::default() };
    assert!(ours_at(&stripped, &addresses, &place).iter().all(Vec::is_empty));
}

#[test]
fn separate_file_by_link() {
    let folder = folder("symbols_by_link");
    let full = build_c(&folder, "full", &["-g", "-O2", "-Wl,--build-id=none"]);
    let addresses = addresses(&full, COUNT, 2);
    let root = folder.join("root");
    let inside = Path::new("/opt/bin/stripped");
    for place in ["opt/bin", "opt/bin/.debug", "usr/lib/debug/opt/bin"] {
        let _ = std::fs::remove_dir_all(&root);
        let place = root.join(place);
        std::fs::create_dir_all(&place).unwrap();
        let debug = place.join("full.debug");
        run(&folder, "objcopy", &["--only-keep-debug", "full", debug.to_str().unwrap()]);
        let link = format!("--add-gnu-debuglink={}", debug.display());
        run(&folder, "objcopy", &["-S", &link, "full", "stripped"]);
        let roots = [root.clone()];
        let place = Place { path: inside, roots: &roots, ..Place::default() };
        check_same(&full, &ours_at(&folder.join("stripped"), &addresses, &place), &addresses);
        // Its CRC is checked.
        let mut bytes = std::fs::read(&debug).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&debug, bytes).unwrap();
        assert!(ours_at(&folder.join("stripped"), &addresses, &place).iter().all(Vec::is_empty));
    }
}

#[test]
fn compressed_sections() {
    let folder = folder("symbols_compressed");
    let full = build_c(&folder, "full", &["-g", "-O2"]);
    let addresses = addresses(&full, COUNT, 3);
    for form in ["zlib-gabi", "zlib-gnu", "zstd"] {
        if runs(&folder, "objcopy", &[&format!("--compress-debug-sections={form}"), "full", form]) {
            check_same(&full, &ours(&folder.join(form), &addresses), &addresses);
        } else {
            assert_eq!(form, "zstd", "{form} is always there");
        }
    }
}

#[test]
fn mini_debug_info() {
    let folder = folder("symbols_mini");
    let full = build_c(&folder, "full", &["-g", "-O2"]);
    run(&folder, "objcopy", &["-S", "full", "stripped"]);
    run(&folder, "objcopy", &["-S", "--keep-symbol=outer", "--keep-symbol=compare", "full", "mini"]);
    run(&folder, "xz", &["-k", "mini"]);
    run(&folder, "objcopy", &["--add-section", ".gnu_debugdata=mini.xz", "stripped", "with"]);
    let addresses = addresses(&full, COUNT, 4);
    let expected = ours(&full, &addresses);
    let found = ours(&folder.join("with"), &addresses);
    let mut known = 0;
    for (expected, found) in expected.iter().zip(&found) {
        if let Some(outermost) = expected.last().filter(|symbol| matches!(&*symbol.function, "outer" | "compare")) {
            known += 1;
            assert_eq!(found[0].function, outermost.function);
            assert_eq!(found[0].line, 0);
        }
    }
    assert!(known > 5);
}

#[test]
fn split_dwarf() {
    let folder = folder("symbols_split");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let path = build_c(&folder, "split", &[version, "-gsplit-dwarf", "-O2", "-g"]);
        let addresses = addresses(&path, COUNT, 5);
        // binutils 2.40 does not read what GCC 12 splits; the same code unsplit is the measure.
        let whole = build_c(&folder, "whole", &[version, "-O2", "-g"]);
        let found = ours(&path, &addresses);
        let same = |symbols: &[Vec<Symbol>]| -> Vec<Vec<(String, u32, u32)>> {
            let short = |symbol: &Symbol| (symbol.function.clone(), symbol.line, symbol.start_line);
            symbols.iter().map(|chain| chain.iter().map(short).collect()).collect()
        };
        assert_eq!(same(&found), same(&ours(&whole, &addresses)), "{version}");
        let parts: Vec<PathBuf> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "dwo"))
            .collect();
        assert!(!parts.is_empty());
        // binutils 2.40 packs DWARF 4 only; LLVM 14's llvm-dwp takes minutes for what GCC writes.
        let packed = runs(&folder, "dwp", &["-e", "split", "-o", "split.dwp"]);
        assert!(packed || version == "-gdwarf-5", "no package to try");
        if packed {
            for part in &parts {
                std::fs::remove_file(part).unwrap();
            }
            assert_eq!(ours(&path, &addresses), found, "{version} in a package");
            std::fs::remove_file(folder.join("split.dwp")).unwrap();
        }
        // Without the parts the symbol table and the lines remain.
        for part in &parts {
            let _ = std::fs::remove_file(part);
        }
        let rest = ours(&path, &addresses);
        assert!(rest.iter().any(|chain| chain.len() == 1 && chain[0].function == "outer" && chain[0].line > 0));
    }
}

#[test]
fn parts_common_to_several_files() {
    let folder = folder("symbols_dwz");
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let full = build_c(&folder, "full", &[version, "-O2", "-g", "-Wl,--build-id"]);
        build_c(&folder, "first", &[version, "-O2", "-g", "-Wl,--build-id"]);
        build_c(&folder, "second", &[version, "-O1", "-g", "-Wl,--build-id"]);
        run(&folder, "dwz", &["-m", "common", "-M", "/usr/lib/debug/.dwz/common", "first", "second"]);
        let addresses = addresses(&full, COUNT, 7);
        let id = shown_by(&folder, "readelf", &["-n", "common"]);
        let id =
            id.split("Build ID: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("dwz gives an id");
        // By the path that it is to have, and by its id; what is missing there takes names along that are only in it.
        let root = folder.join("root");
        let places = [
            "usr/lib/debug/.dwz/common".to_string(),
            format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]),
        ];
        let first = folder.join("first");
        let at = |roots: &[PathBuf]| {
            ours_at(&first, &addresses, &Place { path: Path::new("/opt/first"), roots, ..Place::default() })
        };
        let expected = ours(&full, &addresses);
        assert_ne!(at(&[folder.join("nothing")]), expected, "{version}: nothing was moved");
        for place in places {
            let _ = std::fs::remove_dir_all(&root);
            std::fs::create_dir_all(root.join(&place).parent().unwrap()).unwrap();
            std::fs::copy(folder.join("common"), root.join(&place)).unwrap();
            check_same(&full, &at(std::slice::from_ref(&root)), &addresses);
        }
        // Of another build it is not used.
        let place = root.join("usr/lib/debug/.dwz/common");
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&full, place).unwrap();
        std::fs::remove_dir_all(root.join("usr/lib/debug/.build-id")).unwrap();
        assert_eq!(at(std::slice::from_ref(&root)), at(&[folder.join("nothing")]));
    }
}

#[test]
fn symbols_alone() {
    let folder = folder("symbols_alone");
    let path = build_c(&folder, "plain", &["-O2"]);
    let addresses = addresses(&path, COUNT, 6);
    let found = ours(&path, &addresses);
    compare_with(&path, &addresses, false, &found).check("symbols alone");
}

#[test]
fn stubs() {
    let folder = folder("symbols_plt");
    for flags in [
        &["-O2", "-fcf-protection=full", "-Wl,-z,lazy"][..],
        &["-O2", "-fcf-protection=none", "-Wl,-z,lazy"],
        &["-O2", "-Wl,-z,now"],
    ] {
        let path = build_c(&folder, "plt", flags);
        let text = shown_by(&folder, "objdump", &["-d", "--no-show-raw-insn", "plt"]);
        let mut seen = 0;
        for line in text.lines().filter(|line| line.ends_with("@plt>:")) {
            let (address, name) = line.split_once(' ').unwrap();
            let address = u64::from_str_radix(address, 16).unwrap();
            let found = ours(&path, &[address, address + 4]);
            assert_eq!(found[0][0].function, name.trim_matches(['<', '>', ':']), "{flags:?} {line}");
            assert_eq!(found[0], found[1], "{flags:?} {line}");
            seen += 1;
        }
        assert!(seen >= 3, "{flags:?}");
    }
}

#[test]
fn another_build_is_refused() {
    let folder = folder("symbols_changed");
    let path = build_c(&folder, "program", &["-Wl,--build-id"]);
    let arena = Arena::default();
    let bytes = arena.file(&File::open(&path).unwrap()).unwrap();
    let place = Place { build_id: &[1, 2, 3], ..Place::default() };
    assert_eq!(Symbolizer::open(&arena, bytes, &place).err(), Some(Refused::Changed));
    assert_eq!(Symbolizer::open(&arena, &b"text"[..], &Place::default()).err(), Some(Refused::NotElf));
}

#[test]
fn addresses_of_mappings() {
    let folder = folder("symbols_mapped");
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie"], &["-no-pie", "-Wl,-Ttext-segment=0x10000000"]] {
        let path = build_c(&folder, "mapped", flags);
        let bytes = std::fs::read(&path).unwrap();
        let arena = Arena::default();
        let symbolizer = Symbolizer::open(&arena, &bytes[..], &Place::default()).unwrap();
        let text = shown_by(&folder, "readelf", &["-lW", "mapped"]);
        let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
        let row = text.lines().find(|line| line.contains("LOAD") && line.contains("R E")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let (offset, address) = (hex(words[1]), hex(words[2]));
        let start = 0x5555_0000_0000 + address / 4096 * 4096;
        for at in [0, 5, 100] {
            let found = symbolizer.file_address(start, offset / 4096 * 4096, start + address % 4096 + at);
            assert_eq!(found, Some(address + at), "{flags:?}");
        }
        assert_eq!(symbolizer.file_address(start, offset, start - 1), None);
        assert_eq!(symbolizer.file_address(0, u64::MAX, u64::MAX), None);
    }
}
