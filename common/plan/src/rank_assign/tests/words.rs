//! Policies as words, right and wrong.

use super::*;
use rlaunch_base::error::Hint as _;

#[test]
fn words_are_shown_as_they_are_written() {
    for (given, shown) in [
        ("max=64,divisible=8,shift", "max=64,divisible=8,shift"),
        (" max = 64 , shift ", "max=64,shift"),
        ("shift", "all,shift"),
        ("fill,group(host)==8", "all,fill,group(host)==8"),
        ("max,fill,group( rack ) >= 2,group(env:A(b))%3", "max,fill,group(rack)>=2,group(env:A(b))%3"),
        ("all,shift,group(const:a,b)<=2,group(rank/8)==8", "all,shift,group(const:a,b)<=2,group(rank/8)==8"),
        ("all,shift,group(rank%2)==8,group(initial/8)==8,group(initial%4)==1", ""),
        ("regrow,max=1,shift", "max=1,shift,regrow"),
        ("all,shift,group(script/0) in(2,4-8)", ""),
        ("all,shift,group(env:A(b))in( 2 , 4 - 8 )", "all,shift,group(env:A(b)) in(2,4-8)"),
        ("all,shift,group(const:in(b))==2", ""),
        (
            "all,shift,group(switch)==2,group(slice)==2,group(numa)==1",
            "all,shift,group(rack)==2,group(slice)==2,group(numa)==1",
        ),
    ] {
        let policy = parse::policy(given).unwrap();
        assert_eq!(policy.to_string(), if shown.is_empty() { given } else { shown });
        assert_eq!(parse::policy(&policy.to_string()), Ok(policy));
    }
}

#[test]
fn words_that_are_wrong_say_what_is_right() {
    for (given, error, hint) in [
        ("", "'' is no policy", "all, max=N, divisible=N, shift, fill, group(KEY)==N or regrow"),
        ("max=8,", "'' is no policy", "all, max=N, divisible=N, shift, fill, group(KEY)==N or regrow"),
        ("divisble=8,shift", "'divisble=8' is no policy", "divisible=8"),
        ("MaxActiveWorldSize=32", "'MaxActiveWorldSize=32' is no policy", "max=32"),
        ("FillGaps", "'FillGaps' is no policy", "fill"),
        ("FilterCountGroupedByKey", "'FilterCountGroupedByKey' is no policy", "group(host)==8"),
        ("shfit", "'shfit' is no policy", "shift"),
        ("regrw", "'regrw' is no policy", "regrow"),
        ("tree", "'tree' is no policy", "a file with [[assign.tree.layer]]: --assign @FILE"),
        ("max=-1", "max takes a whole number, got '-1'", "max=64"),
        ("max=", "max takes a whole number above 0, got ''", "max=64"),
        ("max=0", "max takes a whole number above 0, got '0'", "max=64"),
        ("max=99999999999", "max takes at most 4294967295, got '99999999999'", "max=64"),
        ("divisible=0", "divisible takes a whole number above 0, got '0'", "divisible=8"),
        ("divisible", "divisible takes a whole number above 0, got ''", "divisible=8"),
        ("shift=1", "shift takes no value, got '1'", "shift"),
        ("group(hst)==8", "'hst' is no key of ranks", "host"),
        ("group(env:)==8", "'env:' is no key of ranks", "env:NAME"),
        ("group(rank/0)==8", "rank/ takes a whole number above 0, got '0'", "rank/8"),
        ("group(host)=8", "'group(host)=8' is no policy", "group(host)==8   or   group(host)>=6   or   group(host)%2"),
        ("group(host", "'group(host' is no policy", "group(host)==8   or   group(host)>=6   or   group(host)%2"),
        ("group(host)%0", "group(...)% takes a whole number above 0, got '0'", "group(host)%2"),
        ("group(host) in(2,x)", "group(...) in takes a whole number, got 'x'", "group(host) in(2,4-8)"),
        (
            "group(host) in(8-4)",
            "group(...) in takes ranges that begin with the smaller number, got '8-4'",
            "group(host) in(2,4-8)",
        ),
        ("group()==8", "'group()==8' is no policy", "group(host)==8   or   group(host)>=6   or   group(host)%2"),
        ("regrow", "all is there, but neither shift nor fill: nothing takes out ranks that are lost", "all,shift"),
        ("group(script/x)==2", "script/ takes a whole number, got 'x'", "script/0"),
        ("group(host)==x", "group(...)== takes a whole number, got 'x'", "group(host)==8"),
        ("\u{1b}[2J", "'\\u{1b}[2J' is no policy", "all, max=N, divisible=N, shift, fill, group(KEY)==N or regrow"),
    ] {
        let refused = parse::policy(given).unwrap_err();
        assert_eq!((refused.to_string().as_str(), refused.hint().as_deref()), (error, Some(hint)), "{given:?}");
    }
    let long = parse::policy(&"all,".repeat(2000)).unwrap_err();
    assert_eq!(long.to_string(), "a policy has at most 4096 characters, and this one has 8000");
    let shown = parse::policy(&"é".repeat(100)).unwrap_err().to_string();
    assert_eq!(shown, alloc::format!("'{}...' is no policy", "é".repeat(60)));
    assert!(parse::key("env:\u{7}").is_err() && parse::key("const:\n").is_err());
}

#[test]
fn filters_and_flags() {
    for (text, of) in [("multiple=8", [0, 8, 16]), ("cap=9", [7, 9, 9]), ("pow2", [4, 8, 16]), ("spare=8", [0, 1, 9])] {
        let filter = parse::filter(text).unwrap();
        assert_eq!((filter.to_string().as_str(), [7, 9, 17].map(|n| filter.of(n))), (text, of));
    }
    assert_eq!(["multiple=1", "cap=0", "pow2", "spare=1"].map(|text| parse::filter(text).unwrap().of(0)), [0; 4]);
    for (text, error) in [
        ("mutiple=2", "'mutiple=2' is no filter"),
        ("pow2=3", "'pow2=3' is no filter"),
        ("multiple", "multiple takes a whole number above 0, got ''"),
        ("cap=x", "cap takes a whole number, got 'x'"),
        ("", "'' is no filter"),
    ] {
        assert_eq!(parse::filter(text).unwrap_err().to_string(), error);
    }
    let grows = Filter::table(alloc::vec![0, 1, 3]).unwrap_err();
    assert_eq!(grows.to_string(), "world_size_filter answers 3 for 2 ranks: it may ask for fewer, and not for more");
    let table = Filter::table(alloc::vec![0, 1, 1, 2]).unwrap();
    assert_eq!([0, 2, 3, 9].map(|n| table.of(n)), [0, 1, 2, 2]);
    let mut flags = Flags::default();
    parse::flag("reserve", &mut flags).unwrap();
    assert_eq!(flags, Flags { reserve: true, backfill: false });
    let error = parse::flag("backfil", &mut flags).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.hint().as_deref()),
        ("'backfil' is no flag of a layer", Some("backfill"))
    );
}

#[test]
fn functions_of_a_script_are_tables() {
    let filter = parse::filter("table(0,0,2, 2,4)").unwrap();
    assert_eq!([0, 1, 3, 4, 9].map(|could| filter.of(could)), [0, 0, 2, 4, 4]);
    for (given, error) in [
        ("table(0,2)", "table takes for each number of ranks no more than that, got 'table(0,2)'"),
        ("table(0,x)", "table takes a whole number, got 'x'"),
        ("table(", "table takes whole numbers in parentheses, got 'table('"),
        ("table()", "table takes a whole number, got ''"),
    ] {
        assert_eq!(parse::filter(given).unwrap_err().to_string(), error);
    }
    let policy = parse::policy("all,shift,group(host) in(2,4-5)").unwrap();
    let Some(Stage::Group(Group { condition, .. })) = policy.stages.last() else { panic!() };
    assert_eq!((0..7).filter(|count| condition.holds(*count)).collect::<Vec<_>>(), [2, 4, 5]);
}
