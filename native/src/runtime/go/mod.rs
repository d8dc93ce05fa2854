//! Go 1.18 and later, from outside: stripped programs too.
//!
//! [`Go::open`] finds the table of functions (`module`, `pclntab`), derives from the program's own code what the runtime
//! keeps where (`derive`), and checks that against its goroutines (`live`). What does not fit is refused: no profile is
//! better than a wrong one.

pub mod buckets;
pub mod buildinfo;
pub mod candidates;
pub mod derive;
mod frames;
pub mod goroutines;
pub mod image;
pub mod labels;
pub mod live;
pub mod module;
pub mod pclntab;
pub mod profiling;
mod running;
mod switches;
pub mod threads;
pub mod unwind;

use std::rc::Rc;

use crate::error::{Error, ErrorKind, ReadError};
use crate::memory::Memory;
use crate::target::Mapping;
use crate::target::linux::Process;
use buildinfo::BuildInfo;
use derive::Code;
use image::Image;
use live::Shape;
use module::NotGo;
use pclntab::Pclntab;
use switches::Switches;
use threads::ThreadList;

/// Functions that are treated specially, by FuncID or address.
#[derive(Clone, Debug, Default)]
pub struct Special {
    /// FuncID of the wrappers that the compiler makes.
    pub wrapper: u8,
    /// FuncIDs of those that show a wrapper which they were called by.
    pub panics: Vec<u8>,
    /// FuncIDs of those that a signal handler calls as if the interrupted code had.
    pub injected: Vec<u8>,
    /// FuncID of what C calls Go through.
    pub callback: Option<u8>,
    /// Address of goexit.
    pub goexit: Option<u64>,
}

/// The Go of one process.
pub struct Go<'a> {
    /// Its module.
    pub image: Image<'a>,
    /// Its functions.
    pub table: Pclntab,
    /// How its goroutines look.
    pub shape: Shape,
    /// Functions that are treated specially.
    pub ids: Special,
    /// Where it keeps its threads, if that is known.
    pub threads: Option<ThreadList>,
    switches: Switches,
    build: Option<BuildInfo>,
}

impl<'a> Go<'a> {
    /// Finds Go in a process. An error of kind Unsupported where there is none, or none that is understood.
    pub fn open(process: &'a Process, mappings: &[Mapping]) -> Result<Go<'a>, Error> {
        let unsupported = |message: String, hint: &str| Error::new(ErrorKind::Unsupported, message, hint);
        let memory: Rc<dyn Memory + 'a> = Rc::new(process);
        let found = match Go::find(process, Image::modules(process, &memory, mappings, mappings)) {
            Ok(go) => return Ok(go),
            Err(found) => found,
        };
        let (pid, name) = (process.pid, &process.name);
        Err(match found {
            None => unsupported(
                format!(
                    "process {pid} ({name}) is not a Go program, or one that was packed or changed after it was built"
                ),
                "programs of Go 1.18 and later can be read; others with remoteprof attach and dump",
            ),
            Some((reason, build)) => {
                let version = build.map_or(String::new(), |build| format!(" ({})", build.version));
                unsupported(
                    format!("this Go version is not understood: {reason}{version}"),
                    "report it with the output of go version -m; remoteprof attach does not need it",
                )
            }
        })
    }

    /// Finds Go in the first of these modules that has it; else why the first that looked like it is not understood.
    pub fn find(
        memory: &dyn Memory,
        images: Vec<Image<'a>>,
    ) -> Result<Go<'a>, Option<(&'static str, Option<BuildInfo>)>> {
        let mut found = None;
        for image in images {
            match Go::in_image(memory, image) {
                Ok(go) => return Ok(go),
                Err((NotGo::NoTable, _)) => {}
                Err((NotGo::Unknown(reason), build)) => found = found.or(Some((reason, build))),
            }
        }
        Err(found)
    }

    /// Finds Go in one module.
    pub fn in_image(memory: &dyn Memory, image: Image<'a>) -> Result<Go<'a>, (NotGo, Option<BuildInfo>)> {
        let table = module::functions(&image).map_err(|reason| (reason, None))?;
        let build = image.find(buildinfo::MAGIC, false).into_iter().find_map(|address| BuildInfo::at(&image, address));
        let understood = (|| {
            let code = Code::new(&image, &table);
            let offsets = derive::derive(&code).map_err(NotGo::Unknown)?;
            let shape = live::shape(memory, &image, &table, offsets).map_err(NotGo::Unknown)?;
            let ids = special(&code, &table).ok_or(NotGo::Unknown("runtime.main"))?;
            let threads = threads::derive(&code, offsets.m);
            Ok((shape, ids, threads, Switches::find(&code, &table)))
        })();
        match understood {
            Ok((shape, ids, threads, switches)) => Ok(Go { image, table, shape, ids, threads, switches, build }),
            Err(reason) => Err((reason, build)),
        }
    }

    /// Such as `go1.26.8`; "" = unknown.
    pub fn version(&self) -> &str {
        self.build.as_ref().map_or("", |build| &build.version)
    }

    /// The minor version of Go 1.
    pub fn minor(&self) -> Option<u32> {
        self.build.as_ref()?.minor()
    }

    /// The error for a process whose memory cannot be read any more.
    pub fn unreadable(&self, process: &Process, error: ReadError) -> Error {
        let (pid, name) = (process.pid, &process.name);
        Error::new(
            if error == ReadError::Gone { ErrorKind::NotFound } else { ErrorKind::Failed },
            format!("cannot read process {pid} ({name}): {error}"),
            "it may have ended, or have started another program, while it was read",
        )
    }
}

/// FuncIDs are numbers that change from version to version (internal/abi/symtab.go); that of wrappers is always the last.
fn special(code: &Code<'_>, table: &Pclntab) -> Option<Special> {
    let wrapper = (0..table.len()).filter_map(|index| table.function(index)).map(|(function, _)| function.id).max()?;
    let ids = |names: &[&str]| -> Vec<u8> {
        let found = names.iter().filter_map(|name| code.function(name));
        found.map(|function| function.id).filter(|&id| id != 0).collect()
    };
    (code.function("runtime.main")?.id != wrapper).then(|| Special {
        wrapper,
        panics: ids(&["runtime.gopanic", "runtime.sigpanic", "runtime.panicwrap"]),
        injected: ids(&["runtime.sigpanic", "runtime.asyncPreempt", "runtime.debugCallV2"]),
        callback: code.function("runtime.cgocallback").map(|function| function.id).filter(|&id| id != 0),
        goexit: code.function("runtime.goexit").map(|function| function.entry),
    })
}
