//! The token that wakes a writer: a file descriptor, so that trio and `poll` can wait for it.
//!
//! An eventfd on Linux, a socketpair elsewhere. Leaving a token is one `write` that never blocks and takes
//! no lock of the pipe, so an audio callback may do it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use playhead_core::pipe::Wake;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Readable while it holds a token.
pub struct FdWake {
    waits: OwnedFd,
    /// The other end of the socketpair; an eventfd has only one.
    #[cfg(not(target_os = "linux"))]
    wakes: OwnedFd,
}

impl FdWake {
    #[cfg(target_os = "linux")]
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let waits = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { waits })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn new() -> io::Result<Self> {
        let (waits, wakes) = std::os::unix::net::UnixStream::pair()?;
        waits.set_nonblocking(true)?;
        wakes.set_nonblocking(true)?;
        Ok(Self {
            waits: waits.into(),
            wakes: wakes.into(),
        })
    }

    pub fn raw(&self) -> RawFd {
        self.waits.as_raw_fd()
    }

    /// Takes all tokens.
    pub fn clear(&self) {
        let mut tokens = [0; 64];
        // An eventfd is empty after one read, a socket after as many as it takes.
        while rustix::io::read(&self.waits, &mut tokens).is_ok_and(|n| n == tokens.len()) {}
    }

    #[cfg(target_os = "linux")]
    fn wakes(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }

    #[cfg(not(target_os = "linux"))]
    fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }
}

impl Wake for FdWake {
    fn wake(&self) {
        // The only possible failure is "full": then there is a token, which is enough.
        let _ = rustix::io::write(self.wakes(), &1_u64.to_ne_bytes());
    }

    fn wait_while(&self, timeout: Option<Duration>, waiting: &mut dyn FnMut() -> bool) -> bool {
        // A time that is too far away for the clock means no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while waiting() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(
                &mut [PollFd::new(&self.waits, PollFlags::IN)],
                left.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => self.clear(),
                // The descriptor is open and valid, so the kernel is out of memory: return "not yet".
                Err(_) => return false,
            }
        }
        true
    }
}
