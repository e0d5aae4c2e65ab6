//! Which programs Python runs, as torchrun does: `rlaunch train.py` is `python3 -u train.py`.
//!
//! A file that can be executed names its interpreter in its first line, so it runs as it is. With torchrun's options, this line does not
//! count, as in torchrun.

use super::errors::CliError;
use super::site::{Runs, Site};
use super::{Program, Run, values};
use rlaunch_base::os_bytes::OsBytes;

/// The options that declare a program's kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Said {
    /// `-m`: a module of Python.
    pub(crate) module: bool,
    /// `--no-python`: no Python, whatever it is called.
    pub(crate) no_python: bool,
    /// Whether torchrun's variables declared it.
    pub(crate) by_variables: bool,
}

impl Run {
    /// Puts Python before the programs that it runs.
    ///
    /// # Errors
    /// Two declarations contradict each other.
    pub(crate) fn interpret(&mut self, site: &Site<'_>) -> Result<(), CliError> {
        for program in &mut self.programs {
            if program.python.module && program.python.no_python {
                return Err(CliError::ModuleWithoutPython { by_variables: program.python.by_variables });
            }
            let Some(word) = program.argv.first().cloned() else { continue };
            if !(program.python.module || is_script(program, &word, self.torchrun, site)) {
                continue;
            }
            let (python, at) = interpreter(program, site);
            let mut own: Vec<OsBytes> = vec![python.clone(), "-u".into()];
            own.extend(program.python.module.then(|| "-m".into()));
            program.argv.splice(0..0, own);
            let at = at.map_or_else(String::new, |at| format!(" ({at})"));
            self.presentation.interpreted.push(format!("{word} is run by {python} -u{at}").into());
        }
        Ok(())
    }
}

fn is_script(program: &Program, word: &OsBytes, torchrun: bool, site: &Site<'_>) -> bool {
    if program.python.no_python || !word.ends_with(b".py") {
        return false;
    }
    let here = (site.runs)(&from(program.wdir.as_ref(), word));
    torchrun
        || match here {
            Some(Runs::Never) => true,
            // Without a slash it would be looked for in PATH.
            Some(Runs::Itself) => !word.contains(&b'/') && in_path(word, site).is_none(),
            None => false,
        }
}

/// A path from the directory that the ranks work in.
fn from(wdir: Option<&OsBytes>, path: &OsBytes) -> OsBytes {
    match wdir {
        Some(dir) if !path.starts_with(b"/") => OsBytes::new([dir.as_slice(), b"/", path.as_slice()].concat()),
        Some(_) | None => path.clone(),
    }
}

/// Python, and where it is found here. Other hosts look for it in their own PATH.
fn interpreter(program: &Program, site: &Site<'_>) -> (OsBytes, Option<OsBytes>) {
    if let Some(own) = values::variable(site.env, "PYTHON_EXEC") {
        return (own, None);
    }
    let usual = OsBytes::from("python3");
    if program.place.names_hosts() {
        return (usual, None);
    }
    let found = |name: &str| in_path(&name.into(), site).map(|at| (OsBytes::from(name), Some(at)));
    found("python3").or_else(|| found("python")).unwrap_or((usual, None))
}

fn in_path(name: &OsBytes, site: &Site<'_>) -> Option<OsBytes> {
    let path = values::variable(site.env, "PATH")?;
    let mut places = path.split(|b| *b == b':').map(|dir| match dir {
        b"" => name.clone(),
        dir => OsBytes::new([dir, b"/", name.as_slice()].concat()),
    });
    places.find(|place| (site.runs)(place) == Some(Runs::Itself))
}
