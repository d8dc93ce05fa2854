//! A large file: 1,000 addresses in bounded time and memory. 500 MB with REMOTEPROF_LONG set, else a tenth of it.

mod symbols_support;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use symbols_support::{Random, folder, ours, run};

const SOURCE: &str = "#include <algorithm>\n#include <functional>\n#include <future>\n#include <sstream>\n#include <map>\n\
    #include <regex>\n#include <string>\n#include <thread>\n#include <unordered_map>\n#include <vector>\n\
    int work(const std::string &text) {\n\
    std::regex words(\"[a-z]+\");\n\
    std::map<std::string, std::vector<std::string>> map;\n\
    std::unordered_map<std::string, std::function<int(int)>> calls;\n\
    for (std::sregex_iterator it(text.begin(), text.end(), words), end; it != end; ++it) {\n\
    map[it->str()].push_back(text);\n\
    calls[it->str()] = [&](int x) { return x + int(map.size()); };\n\
    }\n\
    auto later = std::async([&] { return map.size(); });\n\
    for (auto &pair : map) std::sort(pair.second.begin(), pair.second.end());\n\
    std::ostringstream out; out << later.get();\n\
    return int(calls.size());\n}\n";

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_thousand_addresses() {
    let size: u64 = if std::env::var_os("REMOTEPROF_LONG").is_some() { 500 << 20 } else { 50 << 20 };
    let folder = folder("symbols_large");
    std::fs::write(folder.join("unit.cpp"), SOURCE).unwrap();
    run(&folder, "g++", &["-g", "-O2", "-fPIC", "-c", "unit.cpp"]);
    let one = std::fs::metadata(folder.join("unit.o")).unwrap().len();
    // A linked copy is smaller than the object, whose relocations go.
    let copies = size / (one * 35 / 100) + 1;
    let mut objects = String::new();
    for copy in 0..copies {
        let prefix = format!("--prefix-symbols=u{copy}_");
        let name = format!("unit{copy}.o");
        run(&folder, "objcopy", &[&prefix, "unit.o", &name]);
        writeln!(objects, "{name}").unwrap();
    }
    std::fs::write(folder.join("objects"), objects).unwrap();
    run(&folder, "gcc", &["-shared", "-nostdlib", "-Wl,--unresolved-symbols=ignore-all", "-o", "large.so", "@objects"]);
    let path = folder.join("large.so");
    let real = std::fs::metadata(&path).unwrap().len();
    let text = std::process::Command::new("nm").args(["-S", "--defined-only"]).arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let functions: Vec<(u64, u64)> = text
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words.len() == 4 && "tTwW".contains(words[2]))
                .then(|| (u64::from_str_radix(words[0], 16).unwrap(), u64::from_str_radix(words[1], 16).unwrap()))
        })
        .collect();
    drop(text);
    let mut random = Random(0xb16);
    let addresses: Vec<u64> = (0..1000)
        .map(|_| {
            let (start, size) = functions[random.below(functions.len() as u64) as usize];
            start + random.below(size)
        })
        .collect();
    let before = peak_kib();
    let start = Instant::now();
    let found = ours(&path, &addresses);
    let took = start.elapsed();
    let peak = peak_kib();
    let known = found.iter().filter(|chain| chain.last().is_some_and(|symbol| symbol.line > 0)).count();
    let chains = found.iter().filter(|chain| chain.len() > 1).count();
    eprintln!(
        "{} MiB: {took:?}, peak {} MiB ({} before), {known} with lines, {chains} inline chains",
        real >> 20,
        peak >> 10,
        before >> 10
    );
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(known > 950 && chains > 300);
    assert!(peak < 1 << 20);
    // Unoptimized builds of this test are ten times slower.
    let limit = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 5 });
    assert!(took < limit, "{took:?}");
}
