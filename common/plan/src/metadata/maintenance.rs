//! The value of `instance/upcoming-maintenance`: an object of JSON with strings, such as
//! `{"type":"SCHEDULED","maintenanceStatus":"PENDING","windowStartTime":"2026-01-02T04:00:00Z"}`.

use alloc::string::String;
use rlaunch_base::time::WallNs;
use serde::Deserialize;

/// A planned service of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Planned {
    /// The service begins then at the earliest.
    At(WallNs),
    /// The service has begun.
    Ongoing,
}

/// The fields that count.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upcoming {
    #[serde(default)]
    maintenance_status: String,
    #[serde(default)]
    window_start_time: String,
}

/// The planned service. `None`: the text does not name one.
pub(super) fn parse(text: &str) -> Option<Planned> {
    let upcoming: Upcoming = serde_json::from_str(text).ok()?;
    if upcoming.maintenance_status == "ONGOING" {
        return Some(Planned::Ongoing);
    }
    parse_time(&upcoming.window_start_time).map(Planned::At)
}

/// A time of RFC 3339 in UTC, such as `2026-01-02T04:00:00Z`. A fraction of a second is dropped.
fn parse_time(text: &str) -> Option<WallNs> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let time = time.split_once('.').map_or(time, |(whole, _)| whole);
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_valid = (1970..=2262).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    let days = is_valid.then(|| days_since_1970(year, month, day))?;
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(WallNs(seconds.checked_mul(1_000_000_000)?))
}

/// Days of the Gregorian calendar since 1 January 1970. Years begin in March here, so that the leap day is the last of its year.
const fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // `date -u -d TEXT +%s`.
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-01-02T04:00:00Z", Some(1_767_326_400)),
            ("2024-02-29T23:59:59Z", Some(1_709_251_199)),
            ("2000-03-01T00:00:00.5Z", Some(951_868_800)),
            ("2026-01-02T04:00:00", None),
            ("2026-13-02T04:00:00Z", None),
            ("99999999999999999999-01-02T04:00:00Z", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse_time(text), seconds.map(|s: u64| WallNs(s * 1_000_000_000)), "{text}");
        }
    }

    #[test]
    fn planned_service_is_found_among_other_fields_only() {
        let at = Some(Planned::At(WallNs(0)));
        let cases = [
            (r#"{"windowStartTime":"1970-01-01T00:00:00Z"}"#, at),
            (r#"{"a":{"windowStartTime":"x"},"b":[1,2],"windowStartTime":"1970-01-01T00:00:00Z"}"#, at),
            (r#"{"maintenanceStatus":"ONGOING","windowStartTime":"1970-01-01T00:00:00Z"}"#, Some(Planned::Ongoing)),
            (r#"{"a":"windowStartTime"}"#, None),
            (r#"{"a":{"maintenanceStatus":"ONGOING"}}"#, None),
            ("{", None),
            ("TRUE", None),
            ("<html>TRUE</html>", None),
            ("", None),
        ];
        for (text, planned) in cases {
            assert_eq!(parse(text), planned, "{text}");
        }
    }
}
