//! Files that `-o` and `-e` name for what ranks write, with srun's patterns.

use super::errors::CliError;
use super::scan::Given;
use super::site::Site;
use super::{Run, torch, values};
use rlaunch_base::file_pattern::FilePattern;
use rlaunch_base::id::JobId;
use rlaunch_base::os_bytes::OsBytes;

/// Value of `-o` or `-e`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    option: OsBytes,
    value: OsBytes,
    /// `None`: `all`, as without the option.
    pub(super) pattern: Option<FilePattern>,
}

/// Files of stdout and of stderr.
pub(super) type Both = [Option<Named>; 2];

/// Reads the value of `-o` or `-e`.
pub(super) fn named(given: Given) -> Result<Named, CliError> {
    const TAKES: &str = "a file name, with %t rank, %N host, %n its index, %j job, %x name, %A_%a array, %u user";
    let Given { spelled: option, value, .. } = given;
    let refuse = |takes: &'static str, hint: String| {
        Err(CliError::Value {
            option: option.clone(),
            takes: takes.into(),
            got: value.clone(),
            hint: Some(hint.into()),
        })
    };
    if let Some(hint) = of_mpirun(&option, &value) {
        return refuse(TAKES, hint);
    }
    let pattern = match value.as_slice() {
        b"all" => None,
        b"none" => FilePattern::parse(b"/dev/null"),
        text if !text.is_empty() && text.iter().all(u8::is_ascii_digit) => {
            let hint = format!("{}   for a file of that name", values::spell(&option, &format!("./{value}")));
            return refuse(TAKES, hint);
        }
        text => match FilePattern::parse(text) {
            Some(pattern) => Some(pattern),
            None => return refuse(TAKES, format!("{}   (%% is a percent sign)", values::spell(&option, "out.%t"))),
        },
    };
    Ok(Named { option, value, pattern })
}

/// Open MPI's `--output` takes words, with which it means something else.
fn of_mpirun(option: &OsBytes, value: &OsBytes) -> Option<String> {
    const WORDS: [&[u8]; 9] = [
        b"tag",
        b"tag-detailed",
        b"tag-fullname",
        b"rank",
        b"timestamp",
        b"xml",
        b"merge",
        b"merge-stderr-to-stdout",
        b"raw",
    ];
    if !matches!(option.as_slice(), b"--output" | b"-output") {
        return None;
    }
    value.split(|b| *b == b',').find_map(|word| {
        let of =
            |name: &[u8]| word.strip_prefix(name).map(|rest| rest.split(|b| *b == b':').next().unwrap_or_default());
        let own = |path: &[u8]| OsBytes::from(path);
        if let Some(path) = of(b"dir=").or_else(|| of(b"directory=")) {
            return Some(format!("-o {}/%t.out -e {}/%t.err", own(path), own(path)));
        }
        if let Some(path) = of(b"file=").or_else(|| of(b"filename=")) {
            return Some(format!("-o {}.%t", own(path)));
        }
        let word = word.split(|b| *b == b':').next().unwrap_or_default();
        WORDS
            .contains(&word)
            .then(|| format!("-l   or   --prefix FMT   for a label; -o ./{} for a file of that name", own(word)))
    })
}

/// The directory of files that agents write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    /// The pattern of the files, as it was typed.
    pub(crate) files: OsBytes,
    /// From the directory in which rlaunch was started.
    pub(crate) path: OsBytes,
}

/// Files of a job, by where they are written.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// By the launcher: one for all ranks.
    pub(super) here: [Option<OsBytes>; 2],
    /// By the agents of the hosts: patterns of absolute paths.
    pub(super) there: [Option<OsBytes>; 2],
    /// Directories of the latter, which have to be there.
    pub(super) directories: Vec<Directory>,
}

impl Run {
    /// Files of this job.
    ///
    /// # Errors
    /// A relative name where the current directory has none, or two places for one stream.
    pub(super) fn files(&self, job: JobId, site: &Site<'_>) -> Result<Files, CliError> {
        let mut files = Files::default();
        let of_job = |letter: u8| self.text_of_job(letter, job, site);
        let Files { here, there, directories } = &mut files;
        for ((named, here), there) in self.files.iter().zip(here).zip(there) {
            let Some(Named { option, value, pattern: Some(pattern) }) = named else { continue };
            let path = pattern.directory();
            let pattern = pattern.clone().of_job(of_job);
            if !pattern.has_several() {
                // The name has no pattern left, and nothing of this writer is in it.
                *here = Some(pattern.name(&LAUNCHER));
                continue;
            }
            if self.torch.has_files() {
                return Err(CliError::TwoFiles { option: option.clone() });
            }
            let pattern = match (site.directory)() {
                Some(directory) => pattern.in_directory(&directory),
                None if pattern.is_absolute() => pattern,
                None => return Err(torch::no_directory(option.clone(), value.clone())),
            };
            *there = Some(pattern.text());
            let directory = Directory { files: value.clone(), path };
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        Ok(files)
    }
}

impl Run {
    /// The text for a letter about the whole job, as srun has it. A step's number is the beginning of rlaunch's own name of the job.
    fn text_of_job(&self, letter: u8, job: JobId, site: &Site<'_>) -> OsBytes {
        let variable = |name: &str| values::variable(site.env, name);
        let id = || variable("SLURM_JOB_ID").unwrap_or_else(|| job.to_string().into());
        let step = || OsBytes::from(job.to_string().get(..8).unwrap_or_default());
        let program = || {
            let words = self.programs.first().and_then(|program| program.argv.first());
            words.and_then(|word| word.rsplit(|b| *b == b'/').next()).unwrap_or_default().into()
        };
        match letter {
            b'A' => variable("SLURM_ARRAY_JOB_ID").unwrap_or_else(id),
            // Slurm's own word for a job that is in no array.
            b'a' => variable("SLURM_ARRAY_TASK_ID").unwrap_or_else(|| "4294967294".into()),
            b'x' => variable("SLURM_JOB_NAME").unwrap_or_else(program),
            b'u' => variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_default(),
            b's' => step(),
            b'J' => OsBytes::new([id().as_slice(), b".", &step()].concat()),
            _ => id(),
        }
    }
}

const LAUNCHER: rlaunch_base::file_pattern::Writer<'_> =
    rlaunch_base::file_pattern::Writer { group: b"", rank: rlaunch_base::id::Rank::new(0), node: 0, host: b"" };
