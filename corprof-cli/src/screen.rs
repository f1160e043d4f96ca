//! The screen of a live table.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};

/// The rows that a page key scrolls.
const PAGE: usize = 10;

/// What a key has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressed {
    Quit,
    /// Draw again.
    Change,
    Nothing,
}

/// Which rows of a table are shown, and whether they change.
#[derive(Debug, Default)]
pub(crate) struct Scroll {
    /// The first row that is shown.
    pub(crate) first: usize,
    pub(crate) is_paused: bool,
}

impl Scroll {
    /// Reacts to a key. `last` is the last row.
    pub(crate) fn press(&mut self, key: KeyEvent, last: usize) -> Pressed {
        match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return Pressed::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Pressed::Quit,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Up => self.first = self.first.saturating_sub(1),
            KeyCode::Down => self.first = (self.first + 1).min(last),
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            KeyCode::PageDown => self.first = (self.first + PAGE).min(last),
            KeyCode::Home => self.first = 0,
            KeyCode::End => self.first = last,
            _ => return Pressed::Nothing,
        }
        Pressed::Change
    }
}

/// Whether there is a terminal on which a table can be drawn, and keys can be read.
pub(crate) fn is_there() -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    !is_dumb && io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// What the next key within this time does, by `press`. None without one.
pub(crate) fn next_key(limit: Duration, press: impl FnOnce(KeyEvent) -> Pressed) -> Result<Option<Pressed>> {
    if !event::poll(limit).context("cannot read keys")? {
        return Ok(None);
    }
    Ok(Some(match event::read()? {
        Event::Key(key) if key.kind != KeyEventKind::Release => press(key),
        Event::Resize(..) => Pressed::Change,
        _ => Pressed::Nothing,
    }))
}

/// The terminal in its own screen and without echo. Dropping this value restores it; so does a panic.
pub(crate) struct Screen(DefaultTerminal);

impl Screen {
    /// Opens it.
    ///
    /// # Errors
    /// If this terminal cannot be drawn into.
    pub(crate) fn open() -> Result<Self> {
        let opened = ratatui::try_init().map(Self);
        if opened.is_err() {
            // It may have been changed in part.
            let _ = ratatui::try_restore();
        }
        opened.context("cannot draw into the terminal")
    }

    /// Draws a frame.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.0.draw(draw)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = ratatui::try_restore();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_panic_restores_the_terminal() {
        const MARK: &str = "CORPROF_TEST_IN_TERMINAL";
        if std::env::var_os(MARK).is_some() {
            // In the terminal that the test below makes.
            let mut screen = Screen::open().unwrap();
            screen.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
            panic!("as a mistake in the table would");
        }
        if !Command::new("script").arg("--version").output().is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: there is no `script`, which makes a terminal");
            return;
        }
        let test = std::env::current_exe().unwrap();
        let module = module_path!().split_once("::").unwrap().1;
        let run = format!("'{}' --exact {module}::a_panic_restores_the_terminal --nocapture", test.display());
        let mut terminal = Command::new("script");
        terminal.args(["-qec", &format!("stty rows 24 cols 100; {run}; echo code $?; stty -a"), "/dev/null"]);
        let output = terminal.env(MARK, "1").env("TERM", "xterm").stdin(std::process::Stdio::null()).output().unwrap();
        let output = String::from_utf8_lossy(&output.stdout);
        let (screen, settings) = output.split_once("code 101").unwrap_or_else(|| panic!("it did not panic: {output}"));
        assert!(screen.contains("as a mistake in the table would"), "{output}");
        let place = |text| screen.rfind(text).unwrap_or_else(|| panic!("no {text:?}: {output:?}"));
        assert!(place("\x1b[?1049h") < place("drawn") && place("drawn") < place("\x1b[?1049l"), "{output:?}");
        let words: Vec<&str> = settings.split_whitespace().map(|word| word.trim_end_matches(';')).collect();
        assert!(["icanon", "echo", "isig"].iter().all(|word| words.contains(word)), "{output:?}");
    }
}
