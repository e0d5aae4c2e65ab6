//! The handwritten digits of the UCI repository (CC BY 4.0; see `data/README.md`), carried inside the binary so that no rank depends on a path.

use anyhow::{Context, Result, ensure};

/// Pixels of an image, 8 rows of 8.
pub(crate) const PIXELS: usize = 64;
/// Kinds of digits.
pub(crate) const CLASSES: usize = 10;
/// The darkest pixel of the file; images are scaled to 0..=1.
const DARKEST: u8 = 16;
/// Every how many images one is held out.
const HOLD_OUT: usize = 5;

const CSV: &str = include_str!("../data/digits.csv");

/// An image and its digit.
#[derive(Clone, Debug)]
pub(crate) struct Digit {
    pub(crate) pixels: [f64; PIXELS],
    pub(crate) label: usize,
}

/// The images to learn from and those to be judged by.
pub(crate) struct Digits {
    pub(crate) training: Vec<Digit>,
    pub(crate) held_out: Vec<Digit>,
}

/// Reads the bundled images; which of them are held out depends on neither the seed nor the ranks.
pub(crate) fn load() -> Result<Digits> {
    let mut digits = Digits { training: Vec::new(), held_out: Vec::new() };
    for (index, line) in CSV.lines().enumerate() {
        let digit =
            parse(line).with_context(|| format!("reading line {} of the bundled data/digits.csv", index + 1))?;
        if index % HOLD_OUT == 0 { digits.held_out.push(digit) } else { digits.training.push(digit) }
    }
    Ok(digits)
}

fn parse(line: &str) -> Result<Digit> {
    let numbers: Vec<u8> =
        line.split(',').map(|n| n.parse().with_context(|| format!("{n:?} is not a number"))).collect::<Result<_>>()?;
    ensure!(numbers.len() == PIXELS + 1, "expected {PIXELS} pixels and a digit, found {} numbers", numbers.len());
    let mut pixels = [0.0; PIXELS];
    for (pixel, &number) in pixels.iter_mut().zip(&numbers) {
        ensure!(number <= DARKEST, "pixel {number} is darker than {DARKEST}");
        *pixel = f64::from(number) / f64::from(DARKEST);
    }
    let label = usize::from(numbers[PIXELS]);
    ensure!(label < CLASSES, "{label} is not a digit");
    Ok(Digit { pixels, label })
}

#[cfg(test)]
mod tests {
    use super::{CLASSES, load, parse};

    #[test]
    fn all_images_are_there_and_no_digit_is_rare() {
        let digits = load().unwrap();
        assert_eq!((digits.training.len(), digits.held_out.len()), (1437, 360));
        for (part, least, most) in [(&digits.training, 130, 155), (&digits.held_out, 25, 50)] {
            let mut counts = [0; CLASSES];
            part.iter().for_each(|digit| counts[digit.label] += 1);
            assert!(counts.iter().all(|n| (least..=most).contains(n)), "{counts:?}");
        }
    }

    #[test]
    fn pixels_are_scaled_to_one() {
        let digits = load().unwrap();
        let pixels: Vec<f64> = digits.training.iter().flat_map(|digit| digit.pixels).collect();
        assert!(pixels.iter().all(|p| (0.0..=1.0).contains(p)));
        assert!(pixels.contains(&1.0));
    }

    #[test]
    fn a_damaged_line_is_named() {
        let line = ["0"; 65].join(",");
        assert!(parse(&line).is_ok());
        assert!(parse("1,2,3").unwrap_err().to_string().contains("found 3 numbers"));
        assert!(parse(&line.replacen('0', "x", 1)).unwrap_err().to_string().contains("\"x\" is not a number"));
        assert!(parse(&line.replacen('0', "17", 1)).unwrap_err().to_string().contains("darker"));
    }
}
