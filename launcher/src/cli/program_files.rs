//! Files of programs: mpiexec's `-configfile` and mpirun's `--app` have the words of a program on each line, srun's `--multi-prog` has ranks
//! and their program. Each becomes the words of a command line.

use super::errors::CliError;
use super::scan::{Given, Words};
use super::site::why;
use super::table::Id;
use super::{run, values};
use rlaunch_base::cpu_set;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::hostlist::words;
use rlaunch_plan::place::MOST_RANKS;
use std::io;

/// The content of a file.
pub(crate) type Read<'a> = &'a dyn Fn(&OsBytes) -> io::Result<Vec<u8>>;

/// No file.
#[cfg(test)]
pub(crate) const NO_FILES: Read<'static> = &|_| Err(io::ErrorKind::NotFound.into());

/// The words of each program of a file, which replace the program of a command line so far. The option that names the file is left out.
///
/// # Errors
/// The file cannot be read, or has no programs.
pub(super) fn programs_of(part: &mut Words, read: Read<'_>) -> Result<Option<Vec<Vec<OsBytes>>>, CliError> {
    let is = |given: &Given, opt| given.row.id == Id::Run(opt);
    let Some(at) = part.given.iter().position(|given| is(given, run::Opt::Programs) || is(given, run::Opt::MultiProg))
    else {
        return Ok(None);
    };
    let option = part.given.remove(at);
    let is_multi = is(&option, run::Opt::MultiProg);
    let path = if is_multi { part.argv.first().cloned().unwrap_or_default() } else { option.value.clone() };
    let refuse = |takes: String| CliError::Value {
        option: option.spelled.clone(),
        takes: takes.into(),
        got: path.clone(),
        hint: Some("-n 1 A : -n 3 B   starts several programs".into()),
    };
    let bytes = read(&path).map_err(|error| refuse(format!("a file of programs ({})", why(&error))))?;
    let text = String::from_utf8_lossy(&bytes).replace("\\\n", " ");
    let lines = text.lines().zip(1u32..).filter(|(line, _)| !line.trim().is_empty() && !line.trim().starts_with('#'));
    let lines = lines.map(|(line, at)| words(line).map_err(|error| refuse(format!("programs (line {at}: {error})"))));
    let lines = lines.collect::<Result<Vec<_>, _>>()?;
    let programs = if is_multi {
        part.argv.drain(..part.argv.len().min(1));
        let n = part.given.iter().rposition(|given| is(given, run::Opt::Ranks)).map(|at| part.given.remove(at));
        let n = n.map(|n| values::count(&n.spelled, &n.value, MOST_RANKS)).transpose()?;
        of_ranks(&lines, n).map_err(refuse)?
    } else {
        lines
    };
    let beside = part.argv.first();
    if programs.is_empty() || beside.is_some() {
        return Err(refuse("a file that names a program, and no other program".into()));
    }
    Ok(Some(programs.into_iter().map(|words| words.into_iter().map(OsBytes::from).collect()).collect()))
}

/// `-n` and the program of ranks that follow each other. In a word `%t` is the rank, and `%o` its number among those of its line.
fn of_ranks(lines: &[Vec<String>], n: Option<u32>) -> Result<Vec<Vec<String>>, String> {
    let mut named = Vec::new();
    let mut rest = None;
    for line in lines {
        let (ranks, program) = line.split_first().filter(|(_, program)| !program.is_empty()).ok_or("RANKS PROGRAM")?;
        match ranks.as_str() {
            "*" => rest = Some(program),
            list => named.push((cpu_set::numbers(list).map_err(|error| format!("ranks ({error})"))?, program)),
        }
    }
    let most = named.iter().flat_map(|(ranks, _)| ranks).max().map_or(0, |most| most.saturating_add(1));
    let mut owners = vec![None; n.unwrap_or(most) as usize];
    for (ranks, program) in &named {
        for (offset, rank) in (0u32..).zip(ranks) {
            owners.get_mut(*rank as usize).into_iter().for_each(|owner| {
                owner.get_or_insert((offset, *program));
            });
        }
    }
    let mut of_rest = 0..;
    let mut all: Vec<(u32, Vec<String>)> = Vec::new();
    for (rank, own) in owners.into_iter().enumerate() {
        let own = own.or_else(|| Some((of_rest.next()?, rest?)));
        let (offset, program) = own.ok_or_else(|| format!("a program for each rank, and rank {rank} has none"))?;
        let fill = |word: &String| word.replace("%t", &rank.to_string()).replace("%o", &offset.to_string());
        let program: Vec<String> = program.iter().map(fill).collect();
        match all.last_mut() {
            Some((count, last)) if *last == program => *count += 1,
            Some(_) | None => all.push((1, program)),
        }
    }
    Ok(all.into_iter().map(|(count, program)| [vec!["-n".into(), count.to_string()], program].concat()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_multi_prog_get_the_program_of_the_line() {
        let lines = |text: &str| text.lines().map(|line| words(line).unwrap()).collect::<Vec<_>>();
        let of = |text: &str, n| {
            of_ranks(&lines(text), n).map(|all| all.iter().map(|line| line.join(" ")).collect::<Vec<_>>())
        };
        let all = of("0-1,3 echo one %o of %t\n2 echo two", Some(4)).unwrap();
        assert_eq!(all, ["-n 1 echo one 0 of 0", "-n 1 echo one 1 of 1", "-n 1 echo two", "-n 1 echo one 2 of 3"]);
        assert_eq!(of("0 a\n* b %o", Some(3)).unwrap(), ["-n 1 a", "-n 1 b 0", "-n 1 b 1"]);
        assert_eq!(of("0-2 a\n3 'b c'", None).unwrap(), ["-n 3 a", "-n 1 b c"]);
        assert_eq!(of("0 a", Some(2)).unwrap_err(), "a program for each rank, and rank 1 has none");
        assert_eq!(of("0-x a", Some(2)).unwrap_err().split(' ').next(), Some("ranks"));
        assert_eq!(of("7", None).unwrap_err(), "RANKS PROGRAM");
    }
}
