//! A page on a terminal that is drawn again and again: keys are read as they are pressed, and the terminal is as before when it ends,
//! be it by a signal or a panic.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use flowgauge_kit::terminal;
use flowgauge_sys::ways::{Way, is_forced};
use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use signal_hook::consts::SIGINT;

/// To a screen of its own, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";

/// Back to where it was.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal that shows a page, and how it was before.
static CHANGED: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// The page. Where it is dropped the terminal is as before.
pub(crate) struct Page {
    keys: Receiver<u8>,
}

impl Page {
    /// Begins one, where standard output is a terminal.
    ///
    /// # Errors
    /// The terminal cannot be used.
    pub(crate) fn open() -> io::Result<Option<Page>> {
        if terminal::size().is_none() {
            return Ok(None);
        }
        // Standard input may have the packets.
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
        let before = tcgetattr(&tty)?;
        let mut modes = before.clone();
        // No key ends or stops the program while the terminal is changed.
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        let own = OwnedFd::from(tty.try_clone()?);
        tcsetattr(&tty, OptionalActions::Now, &modes)?;
        *changed() = Some((own, before));
        restore_at_panics();
        let (pressed, keys) = mpsc::channel();
        let page = Page { keys };
        thread::Builder::new().spawn(move || read(tty, &pressed))?;
        write(ENTER)?;
        Ok(Some(page))
    }

    /// Shows these lines, as far as there is room. No control characters are in them.
    ///
    /// # Errors
    /// The terminal went away.
    pub(crate) fn show<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> io::Result<()> {
        assert!(!is_forced(Way::PagePanics), "a test wants it");
        let (width, height) = terminal::size().unwrap_or_default();
        let height = if height == 0 { 24 } else { height };
        let fitting = |line: &'a str| match line.char_indices().nth(width) {
            Some((end, _)) if width > 0 => line.get(..end).unwrap_or(line),
            _ => line,
        };
        let shown: Vec<&str> = lines.take(height).map(fitting).collect();
        // Line by line, so that nothing flickers.
        write(&format!("\x1b[H{}\x1b[K\x1b[J", shown.join("\x1b[K\r\n")))
    }

    /// A key that was pressed, or is within this time.
    pub(crate) fn key(&self, wait: Duration) -> Option<u8> {
        match self.keys.recv_timeout(wait) {
            Ok(key) => Some(key),
            Err(RecvTimeoutError::Timeout) => None,
            // The terminal is gone: nobody will press any.
            Err(RecvTimeoutError::Disconnected) => Some(b'q'),
        }
    }
}

/// Reads keys. Ctrl-C interrupts all programs that the terminal waits for; the second one ends this one at once.
fn read(mut tty: File, pressed: &Sender<u8>) {
    const CTRL_C: u8 = 3;

    let (mut some, mut was_interrupted) = ([0; 16], false);
    while let Ok(count @ 1..) = tty.read(&mut some) {
        for key in some.iter().take(count) {
            if *key != CTRL_C {
                // The page may be over: Ctrl-C still counts.
                let _ = pressed.send(*key);
                continue;
            }
            if was_interrupted {
                restore();
            }
            let _ = kill_current_process_group(Signal::INT);
            if was_interrupted {
                signal_hook::low_level::exit(128 + SIGINT);
            }
            was_interrupted = true;
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        restore();
    }
}

fn changed() -> std::sync::MutexGuard<'static, Option<(OwnedFd, Termios)>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// The terminal is as before. What cannot be done about that is not told: to whom?
fn restore() {
    if let Some((tty, before)) = changed().take() {
        // Not by standard output's handle, which may be in use where a panic came.
        let _ = rustix::io::write(&tty, LEAVE.as_bytes());
        let _ = tcsetattr(&tty, OptionalActions::Now, &before);
    }
}

/// What a panic says is to be read.
fn restore_at_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
