//! The job that CMD of `run` and all that it starts belong to. It has no limits: when it is closed, its processes go on.

use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, IsProcessInJob, JOBOBJECT_ASSOCIATE_COMPLETION_PORT,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JobObjectAssociateCompletionPortInformation,
    JobObjectBasicAccountingInformation, JobObjectBasicProcessIdList, QueryInformationJobObject,
    SetInformationJobObject,
};
use windows_sys::Win32::System::Threading::{PROCESS_SET_QUOTA, PROCESS_TERMINATE};

use super::watched::Watched;
use super::{open, own};

/// Most processes of a job that are looked at.
const MAX_PROCESSES: usize = 1 << 16;
/// Most messages that are taken at a time.
const MAX_MESSAGES: usize = 4096;
/// JOB_OBJECT_MSG_NEW_PROCESS (winnt.h): a process was born in the job.
const NEW_PROCESS: u32 = 6;
/// Words before the first number in a JOBOBJECT_BASIC_PROCESS_ID_LIST of x64: two counts of 32 bits.
const LIST_HEAD: usize = 1;

/// A job.
#[derive(Debug)]
pub struct Job {
    handle: OwnedHandle,
    port: OwnedHandle,
}

impl Job {
    /// A job around process `pid`, which must not have run yet: what it has started before would not belong to it.
    pub fn around(pid: u32) -> io::Result<Job> {
        let process = open(pid, PROCESS_SET_QUOTA | PROCESS_TERMINATE)?;
        // SAFETY: null stands for no attributes and no name.
        let handle = own(unsafe { CreateJobObjectW(std::ptr::null(), std::ptr::null()) })?;
        // SAFETY: a call without pointers; the port belongs to no file.
        let port = own(unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, std::ptr::null_mut(), 0, 1) })?;
        let wanted = JOBOBJECT_ASSOCIATE_COMPLETION_PORT {
            CompletionKey: std::ptr::null_mut(),
            CompletionPort: port.as_raw_handle(),
        };
        // Who was born is told by the list, too: a job without messages will do.
        // SAFETY: `wanted` is of the size that is said.
        let _ = unsafe {
            SetInformationJobObject(
                handle.as_raw_handle(),
                JobObjectAssociateCompletionPortInformation,
                std::ptr::from_ref(&wanted).cast(),
                size_of_val(&wanted) as u32,
            )
        };
        // SAFETY: both handles are open.
        if unsafe { AssignProcessToJobObject(handle.as_raw_handle(), process.as_raw_handle()) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Job { handle, port })
    }

    /// Processes that may be new since the last call, each with whether it is in the job now: if not, there was a message
    /// of it, and its number may be another's by now.
    pub fn processes(&self) -> Vec<(u32, bool)> {
        let told = self.messages();
        let mut found: Vec<(u32, bool)> = self.list().into_iter().map(|pid| (pid, true)).collect();
        let gone = told.into_iter().filter(|&pid| !found.contains(&(pid, true))).map(|pid| (pid, false));
        found.extend(gone.collect::<Vec<_>>());
        found
    }

    /// The numbers in the messages of births that have come.
    fn messages(&self) -> Vec<u32> {
        let mut pids = Vec::new();
        for _ in 0..MAX_MESSAGES {
            let (mut message, mut key, mut pid) = (0, 0, std::ptr::null_mut());
            // SAFETY: the three places are valid for the answer; what is said to be a pointer is a number here.
            let told =
                unsafe { GetQueuedCompletionStatus(self.port.as_raw_handle(), &mut message, &mut key, &mut pid, 0) };
            if told == 0 {
                break;
            }
            if message == NEW_PROCESS {
                pids.push(pid as usize as u32);
            }
        }
        pids
    }

    /// Whether a process belongs, or belonged, to it; wine tells that of none.
    pub fn has(&self, process: &Watched) -> bool {
        let mut belongs = 0;
        // SAFETY: both handles are open, and `belongs` is a valid place.
        let done = unsafe { IsProcessInJob(process.as_raw_handle(), self.handle.as_raw_handle(), &mut belongs) };
        done != 0 && belongs != 0
    }

    fn list(&self) -> Vec<u32> {
        let mut words = vec![0_u64; 256];
        loop {
            let size = size_of_val(words.as_slice()) as u32;
            // SAFETY: `words` has the size that is said, and is aligned as the structure is.
            let done = unsafe {
                QueryInformationJobObject(
                    self.handle.as_raw_handle(),
                    JobObjectBasicProcessIdList,
                    words.as_mut_ptr().cast(),
                    size,
                    std::ptr::null_mut(),
                )
            };
            let (all, listed) = (words[0] as u32 as usize, (words[0] >> 32) as usize);
            // If there are more than fit, Windows says so, and how many.
            if (done == 0 || listed < all) && all > words.len() - LIST_HEAD && words.len() < MAX_PROCESSES {
                words = vec![0; (all + 64).next_power_of_two().min(MAX_PROCESSES)];
                continue;
            }
            return words[LIST_HEAD..].iter().take(listed).map(|&pid| pid as u32).collect();
        }
    }

    /// CPU time of all processes that were ever in the job, nanoseconds; 0 where it is not counted (wine).
    pub fn cpu_ns(&self) -> u64 {
        let mut told = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        // SAFETY: `told` is a valid place of that size.
        let done = unsafe {
            QueryInformationJobObject(
                self.handle.as_raw_handle(),
                JobObjectBasicAccountingInformation,
                std::ptr::from_mut(&mut told).cast(),
                size_of_val(&told) as u32,
                std::ptr::null_mut(),
            )
        };
        if done == 0 { 0 } else { (told.TotalUserTime + told.TotalKernelTime).max(0).cast_unsigned() * 100 }
    }
}
