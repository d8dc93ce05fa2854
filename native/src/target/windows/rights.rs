//! What a process may do: the privilege to open those of others, integrity, protection.

use std::os::windows::io::{AsRawHandle, OwnedHandle};

use windows_sys::Win32::Foundation::{ERROR_NOT_ALL_ASSIGNED, GetLastError, LUID};
use windows_sys::Win32::Security::{
    AdjustTokenPrivileges, GetSidSubAuthority, GetSidSubAuthorityCount, GetTokenInformation, LUID_AND_ATTRIBUTES,
    LookupPrivilegeValueW, SE_DEBUG_NAME, SE_PRIVILEGE_ENABLED, TOKEN_ADJUST_PRIVILEGES, TOKEN_MANDATORY_LABEL,
    TOKEN_PRIVILEGES, TOKEN_QUERY, TokenIntegrityLevel,
};
use windows_sys::Win32::System::Threading::{
    GetProcessInformation, OpenProcessToken, PROCESS_PROTECTION_LEVEL_INFORMATION, PROCESS_QUERY_LIMITED_INFORMATION,
    PROTECTION_LEVEL_NONE, ProcessProtectionLevelInfo,
};

use super::own;

/// Words of a TOKEN_MANDATORY_LABEL and its SID.
const LABEL_WORDS: usize = 16;

fn token(process: &OwnedHandle, rights: u32) -> Option<OwnedHandle> {
    let mut token = std::ptr::null_mut();
    // SAFETY: the handle is open, and `token` is a place for the new one.
    let done = unsafe { OpenProcessToken(process.as_raw_handle(), rights, &mut token) };
    (done != 0).then(|| own(token).ok()).flatten()
}

/// Enables SeDebugPrivilege, by which processes of all users can be opened, in this process. False where its user does
/// not have it.
pub fn enable_debug() -> bool {
    let enable = || {
        let own = super::open(std::process::id(), PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
        let token = token(&own, TOKEN_ADJUST_PRIVILEGES | TOKEN_QUERY)?;
        let mut luid = LUID { LowPart: 0, HighPart: 0 };
        // SAFETY: the name ends with a NUL, and `luid` is a place for the answer.
        if unsafe { LookupPrivilegeValueW(std::ptr::null(), SE_DEBUG_NAME, &mut luid) } == 0 {
            return None;
        }
        let wanted = TOKEN_PRIVILEGES {
            PrivilegeCount: 1,
            Privileges: [LUID_AND_ATTRIBUTES { Luid: luid, Attributes: SE_PRIVILEGE_ENABLED }],
        };
        // SAFETY: the handle is open; the earlier state is not asked for.
        let done = unsafe {
            let (none, nowhere) = (std::ptr::null_mut(), std::ptr::null_mut());
            AdjustTokenPrivileges(token.as_raw_handle(), 0, &wanted, 0, none, nowhere)
        };
        // SAFETY: a call without arguments. It also succeeds where there is no such privilege, and only says so.
        Some(done != 0 && unsafe { GetLastError() } != ERROR_NOT_ALL_ASSIGNED)
    };
    enable().unwrap_or(false)
}

/// The integrity level of a process, the last number of its label's SID: 0x2000 is medium. None where it is not told.
pub fn integrity(pid: u32) -> Option<u32> {
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    let token = token(&process, TOKEN_QUERY)?;
    let mut label = [0_u64; LABEL_WORDS];
    let mut size = 0;
    let room = size_of_val(&label) as u32;
    // SAFETY: `label` has the size that is said.
    let done = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenIntegrityLevel, label.as_mut_ptr().cast(), room, &mut size)
    };
    if done == 0 || (size as usize) < size_of::<TOKEN_MANDATORY_LABEL>() {
        return None;
    }
    // SAFETY: Windows has written the structure, and the SID that it points to behind it; `label` is aligned for both.
    unsafe {
        let sid = (*label.as_ptr().cast::<TOKEN_MANDATORY_LABEL>()).Label.Sid;
        let count = *GetSidSubAuthorityCount(sid);
        (count > 0).then(|| *GetSidSubAuthority(sid, u32::from(count) - 1))
    }
}

/// The protection level of a process that even administrators cannot read; None where it has none, or it is not told.
pub fn protection(pid: u32) -> Option<u32> {
    if super::threads::on_wine() {
        return None; // which has no such thing, and ends whoever asks
    }
    let process = super::open(pid, PROCESS_QUERY_LIMITED_INFORMATION).ok()?;
    let mut told = PROCESS_PROTECTION_LEVEL_INFORMATION { ProtectionLevel: PROTECTION_LEVEL_NONE };
    let size = size_of_val(&told) as u32;
    // SAFETY: `told` has the size that is said.
    let done = unsafe {
        GetProcessInformation(
            process.as_raw_handle(),
            ProcessProtectionLevelInfo,
            std::ptr::from_mut(&mut told).cast(),
            size,
        )
    };
    (done != 0 && told.ProtectionLevel != PROTECTION_LEVEL_NONE).then_some(told.ProtectionLevel)
}
