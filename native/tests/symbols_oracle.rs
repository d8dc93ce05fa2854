//! What addresses are called, compared with binutils' addr2line.

mod symbols_support;

use std::path::Path;

use symbols_support::{addresses, build_c, compare, folder, run, runs, source};

const COUNT: usize = 1000;

fn check(name: &str, path: &Path, lines: bool) {
    compare(path, &addresses(path, COUNT, 0x5eed), lines).check(name);
}

#[test]
fn c_with_inlining() {
    let folder = folder("symbols_c");
    for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        for level in ["-O0", "-O2", "-O3"] {
            let path = build_c(&folder, "inline", &[version, level, "-g"]);
            check(&format!("C {version} {level}"), &path, true);
        }
    }
    let path = build_c(&folder, "gone", &["-g", "-O2", "-ffunction-sections", "-Wl,--gc-sections", "-static"]);
    check("C static, sections collected", &path, true);
    let path = build_c(&folder, "lto", &["-g", "-O2", "-flto"]);
    check("C -flto", &path, true);
}

#[test]
fn cpp_with_templates() {
    let folder = folder("symbols_cpp");
    let source = source("symbols_templates.cpp");
    for level in ["-O0", "-O2"] {
        run(&folder, "g++", &["-g", level, "-std=c++17", "-o", "templates", source.to_str().unwrap()]);
        check(&format!("C++ {level}"), &folder.join("templates"), true);
    }
}

const RUST: &str = r#"
use std::collections::BTreeMap;
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut map = BTreeMap::new();
    for word in text.split_whitespace() { *map.entry(word.to_uppercase()).or_insert(0) += 1; }
    map
}
fn main() {
    let text: Vec<String> = std::env::args().chain(std::iter::repeat(String::from("a b c"))).take(100).collect();
    let map = words(&text.join(" "));
    let mut sorted: Vec<_> = map.iter().collect();
    sorted.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), word.len()));
    println!("{:?}", sorted.iter().map(|(word, count)| format!("{word}{count}")).collect::<Vec<_>>());
}
"#;

#[test]
fn rust_release() {
    let folder = folder("symbols_rust");
    std::fs::write(folder.join("words.rs"), RUST).unwrap();
    let mut compared = 0;
    for mangling in ["legacy", "v0"] {
        let option = format!("symbol-mangling-version={mangling}");
        if !runs(&folder, "rustc", &["-O", "-g", "-C", &option, "words.rs"])
            && !runs(&folder, "rustc", &["-O", "-g", "-Z", "unstable-options", "-C", &option, "words.rs"])
        {
            continue;
        }
        check(&format!("Rust {mangling}"), &folder.join("words"), true);
        compared += 1;
    }
    assert!(compared > 0, "no Rust program was compared");
}

/// What is on every machine that the tests run on. As Debian ships them git and sqlite3 are stripped and their debug
/// information is not to be had: their names are those of `.dynsym`, and of most addresses neither side knows one.
#[test]
fn real_binaries() {
    let listing = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/pythons/list");
    let text = std::fs::read_to_string(&listing).expect("no interpreters: run scripts/setup-pythons");
    let mut pythons = 0;
    for (version, path) in text.lines().filter_map(|line| line.split_once(' ')) {
        let library = Path::new(path).parent().unwrap().join(format!("../lib/libpython{version}.so.1.0"));
        if library.exists() {
            let found = compare(&library, &addresses(&library, COUNT, 0x5eed), true);
            found.check(&format!("libpython{version}"));
            assert!(found.chains > 50, "{version}: {} inline chains", found.chains);
            pythons += 1;
        }
    }
    assert!(pythons > 0, "no libpython to compare");
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/git", "/usr/bin/sqlite3"] {
        let path = Path::new(path);
        assert!(path.exists(), "{} is missing: scripts/test installs it", path.display());
        check(&path.display().to_string(), path, true);
    }
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let known = compare(libc, &addresses(libc, COUNT, 7), true);
    assert!(known.chains > 50, "libc has no debug information: scripts/test installs libc6-dbg");
}
