//! Options of which one undoes the other. Only typed options contradict each other: a typed option goes before a variable.

use super::errors::CliError;
use super::output_options::Opt as Output;
use super::place::Opt as Place;
use super::scan::{Given, Words};
use super::table::Id;

/// Pairs of options, and why a job cannot have both.
const PAIRS: [(Id, Id, &str); 3] = [
    (Id::Output(Output::Quiet), Id::Output(Output::Verbose), "the first prints less, and the second more"),
    (Id::Output(Output::Raw), Id::Output(Output::Label), RAW),
    (Id::Output(Output::Raw), Id::Output(Output::Prefix), RAW),
];

const RAW: &str = "a label needs whole lines, and raw output has none";

/// Refuses such a pair.
///
/// # Errors
/// There is one.
pub(super) fn check(parts: &[Words]) -> Result<(), CliError> {
    let all = || parts.iter().flat_map(|part| &part.given);
    let find = |id: Id| all().find(|given| given.row.id == id);
    let pairs = PAIRS.iter().filter_map(|(first, second, why)| Some((find(*first)?, find(*second)?, *why)));
    let counted = find(Id::Place(Place::PerNode)).zip(per_resource(parts));
    let counted = counted.map(|(ppn, map)| (ppn, map, "both give the number of ranks on each host"));
    match pairs.chain(counted).next() {
        Some((first, second, why)) => Err(CliError::Assign {
            at: format!("{} and {}", first.spelled, second.spelled),
            what: why.into(),
            hint: Some("one of the two".into()),
        }),
        None => Ok(()),
    }
}

/// `--map-by ppr:N:UNIT`, which gives the number of ranks on each host.
pub(super) fn per_resource(parts: &[Words]) -> Option<&Given> {
    let is_one = |given: &&Given| {
        given.row.id == Id::Place(Place::MapBy)
            && given.value.get(..4).is_some_and(|word| word.eq_ignore_ascii_case(b"ppr:"))
    };
    parts.iter().flat_map(|part| &part.given).rfind(is_one)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{refused, run_with};

    #[test]
    fn options_that_undo_each_other_are_refused() {
        let said = |line: &str| refused(line, &[]).unwrap_or_default();
        for (line, options) in [
            ("-q -v a", "-q and -v"),
            ("-vq a", "-q and -v"),
            ("-l --raw a", "--raw and -l"),
            ("--raw --prefix %r a", "--raw and --prefix"),
            ("--ppn 2 --map-by ppr:1:node a", "--ppn and --map-by"),
            ("a : --ppn 2 b", ""),
            ("--map-by PPR:1:numa a : --ppn 2 b", "--ppn and --map-by"),
        ] {
            let expected = if options.is_empty() { String::new() } else { format!("error: {options}: ") };
            assert!(said(line).starts_with(&expected), "{line}: {}", said(line));
            assert_eq!(said(line).contains("try     one of the two\n"), !options.is_empty(), "{line}");
        }
    }

    #[test]
    fn an_option_goes_before_a_variable_that_it_contradicts() {
        let run = run_with("--map-by ppr:1:node a", &[("RLAUNCH_PPN", "2")]);
        assert_eq!(run.programs[0].place.ppn, None);
        assert_eq!(refused("--ppn 2 -H h,i a", &[("RLAUNCH_MAP_BY", "ppr:1:node")]), None);
        assert_eq!(refused("--raw a", &[("RLAUNCH_LABEL", "1")]), None);
    }
}
