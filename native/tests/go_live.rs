//! What is derived from the code of Go programs, beside what their debug information says.

mod go_support;

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;

use _native::memory::{Memory, Snapshot};
use _native::runtime::go::Go;
use _native::runtime::go::derive::{Offsets, Tls};
use _native::runtime::go::live;
use _native::runtime::go::threads::{ThreadList, Threads};
use _native::target::linux::Process;
use _native::unwind::guest::{Look, Seen};
use gimli::{AttributeValue, DwAt, EndianSlice, LittleEndian};
use go_support::golang::Saved;
use go_support::{Running, STRIPPED, build, saved};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};

/// Versions of which every test run tries one each; with REMOTEPROF_LONG all that follow too.
const VERSIONS: [&str; 4] = ["1.18.10", "1.21.13", "1.23.12", "local"];
const MORE: [&str; 10] =
    ["1.18", "1.20", "1.20.14", "1.21.0", "1.22.0", "1.22.12", "1.23.0", "1.24.0", "1.24.13", "1.25.0"];

/// Leaves debug information as it is read.
const WHOLE: &str = "-ldflags=-compressdwarf=false";

type Fields = HashMap<(String, String), u64>;

/// The offsets of the fields of the runtime's structures, from DWARF.
fn fields(file: &object::File<'_>) -> Fields {
    let empty = |_| -> Result<_, gimli::Error> { Ok(EndianSlice::new(&[], LittleEndian)) };
    let load = |id: gimli::SectionId| {
        file.section_by_name(id.name())
            .map_or_else(|| empty(id), |section| Ok(EndianSlice::new(section.data().unwrap(), LittleEndian)))
    };
    let dwarf = gimli::Dwarf::load(load).unwrap();
    let mut found = Fields::new();
    let mut units = dwarf.units();
    while let Some(header) = units.next().unwrap() {
        let unit = dwarf.unit(header).unwrap();
        let text = |entry: &gimli::DebuggingInformationEntry<EndianSlice<'_, LittleEndian>>, at: DwAt| {
            let value = entry.attr_value(at)?;
            Some(dwarf.attr_string(&unit, value).ok()?.to_string_lossy().into_owned())
        };
        let mut entries = unit.entries();
        let mut structure = String::new();
        while let Some(entry) = entries.next_dfs().unwrap() {
            match entry.tag() {
                gimli::DW_TAG_structure_type => structure = text(entry, gimli::DW_AT_name).unwrap_or_default(),
                gimli::DW_TAG_member if ["runtime.g", "runtime.m", "runtime.gobuf"].contains(&structure.as_str()) => {
                    let offset = match entry.attr_value(gimli::DW_AT_data_member_location) {
                        Some(AttributeValue::Udata(offset)) => offset,
                        Some(AttributeValue::Exprloc(expression)) => {
                            // Go 1.18 to 1.24: DW_OP_plus_uconst.
                            let mut bytes = expression.0;
                            assert_eq!(gimli::Reader::read_u8(&mut bytes).unwrap(), gimli::DW_OP_plus_uconst.0);
                            gimli::Reader::read_uleb128(&mut bytes).unwrap()
                        }
                        other => other.and_then(|value| value.udata_value()).unwrap(),
                    };
                    found.insert((structure.clone(), text(entry, gimli::DW_AT_name).unwrap()), offset);
                }
                _ => {}
            }
        }
    }
    found
}

/// Opens the Go of a running program: its offsets, and where g.gopc is.
fn derived(binary: &Path) -> (Offsets, u64, String, u64, Option<ThreadList>) {
    let running = Running::start(binary);
    let process = Process::open(running.pid()).unwrap();
    let mappings = process.mappings().unwrap();
    let go = Go::open(&process, &mappings).unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
    let base = mappings.iter().find(|mapping| mapping.path == binary.to_string_lossy()).unwrap().start;
    (go.shape.offsets, go.shape.gopc, go.version().to_string(), base, go.threads)
}

fn check(version: &str, cgo: bool, flags: &[&str]) {
    let whole = build(version, cgo, &[flags, &[WHOLE]].concat());
    let bytes = std::fs::read(&whole).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let dwarf = fields(&file);
    let field = |of: &str, name: &str| {
        *dwarf.get(&(format!("runtime.{of}"), name.to_string())).unwrap_or_else(|| panic!("no {of}.{name}"))
    };
    let (offsets, gopc, told, base, threads) = derived(&whole);
    let bias = base - file.segments().map(|segment| segment.address()).min().unwrap();
    let variable = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap().address() + bias;
    let sched = field("g", "sched");
    let expected = Offsets {
        m: field("g", "m"),
        sched_sp: sched + field("gobuf", "sp"),
        sched_pc: sched + field("gobuf", "pc"),
        syscall_sp: field("g", "syscallsp"),
        status: field("g", "atomicstatus"),
        goid: field("g", "goid"),
        wait_since: field("g", "waitsince"),
        wait_reason: field("g", "waitreason"),
        labels: Some(field("g", "labels")),
        g0: field("m", "g0"),
        curg: field("m", "curg"),
        vdso_pc: field("m", "vdsoPC"),
        vdso_sp: field("m", "vdsoSP"),
        // Of the string its length.
        preempt_off: Some(field("m", "preemptoff") + 8),
        // In no debug information; that running goroutines are found proves it.
        tls: offsets.tls,
        allgs: variable("runtime.allgs"),
        wait_reasons: variable("runtime.waitReasonStrings"),
    };
    assert_eq!(offsets, expected, "{version} {flags:?}");
    let list = ThreadList {
        all: variable("runtime.allm"),
        next: field("m", "alllink"),
        id: field("m", "procid"),
        locked: field("m", "lockedg"),
    };
    assert_eq!(threads, Some(list), "{version} {flags:?}");
    assert_eq!(field("g", "syscallpc"), offsets.syscall_sp + 8);
    assert_eq!((field("g", "gopc"), field("g", "startpc")), (gopc, gopc + 16));
    if let Some(parent) = dwarf.get(&("runtime.g".to_string(), "parentGoid".to_string())) {
        assert_eq!(*parent, gopc - 8);
    }
    if !cgo {
        assert_eq!(offsets.tls, Tls::Offset(-8));
    }
    if version != "local" {
        assert_eq!(told, format!("go{version}"));
    }
    // Without symbols and debug information everything is where it was.
    let (stripped, stripped_gopc, ..) = derived(&build(version, cgo, &[flags, &[STRIPPED]].concat()));
    let anywhere = |offsets: Offsets| Offsets { allgs: 0, wait_reasons: 0, tls: Tls::Offset(0), ..offsets };
    assert_eq!((anywhere(stripped), stripped_gopc), (anywhere(offsets), gopc));
}

#[test]
fn offsets_are_those_of_the_debug_information() {
    let more: &[&str] = if std::env::var_os("REMOTEPROF_LONG").is_some() { &MORE } else { &[] };
    for version in VERSIONS.iter().chain(more) {
        check(version, false, &[]);
    }
}

#[test]
fn also_of_programs_that_are_loaded_anywhere_or_use_c() {
    check("local", false, &["-buildmode=pie"]);
    check("local", true, &[]);
    check("local", true, &["-buildmode=pie"]);
}

/// What Go knows of a thread that sleeps.
fn seen(go: &Go<'_>, memory: &dyn Memory, tid: u32) -> Seen {
    let mut snapshot = Snapshot::default();
    snapshot.begin(None);
    let look = Look { tid, sp: 0, base: None, g: 0, most: 0 };
    Threads::default().read(go, memory, &mut snapshot, look, 1).unwrap().unwrap()
}

fn opened(saved: &Saved) -> Go<'_> {
    Go::in_image(&saved.recorded, saved.image()).map_err(|(reason, _)| reason).unwrap()
}

#[test]
fn what_the_runtime_is_doing_with_a_thread_is_seen() {
    let main = Cell::new(0);
    let mut saved = saved("local", |saving| {
        let tid = saving.pid;
        main.set(tid);
        saving.read_by(|go, memory| assert!(seen(go, memory, tid).places.known))
    });
    let tid = main.get();
    let (list, offsets, g) = {
        let go = opened(&saved);
        assert!(!seen(&go, &saved.recorded, tid).collecting);
        let (all, _) = live::all(&saved.recorded, &go.shape.offsets).unwrap();
        (go.threads.unwrap(), go.shape.offsets, all[0])
    };
    let word = |address| saved.recorded.read_u64(address).unwrap();
    let mut m = word(list.all);
    while word(m + list.id) != u64::from(tid) {
        m = word(m + list.next);
    }
    saved.put(m + offsets.preempt_off.unwrap(), "gcing".len() as u64);
    assert!(seen(&opened(&saved), &saved.recorded, tid).collecting);
    // A goroutine that is just given to the thread, or taken from it: if it is locked to it, it will come back.
    let states = [(g, 0, m), (g, 0, 0), (g, g, 0), (0, g, 0), (0, 0, 0)];
    let expected = [(false, true), (false, false), (true, true), (true, true), (false, false)];
    for ((curg, locked, of_g), expected) in states.into_iter().zip(expected) {
        saved.put(m + offsets.curg, curg);
        saved.put(m + list.locked, locked);
        saved.put(g + offsets.m, of_g);
        let places = seen(&opened(&saved), &saved.recorded, tid).places;
        assert_eq!((places.locked, places.left.is_some()), expected, "{curg:#x} {locked:#x} {of_g:#x}");
    }
}
