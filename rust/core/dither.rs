//! Dither: 32-bit float samples to 16 bits, with noise in place of distortion.
//!
//! Rounding alone leaves an error that follows the music and is heard as distortion in quiet passages. Triangular
//! noise of two steps, the sum of two independent uniform values, makes the error's mean and power constant
//! (Lipshitz, Wannamaker, Vanderkooy: "Quantization and Dither: A Theoretical Survey", JAES 40/5, 1992).
//!
//! The noise is a function of the sample's index: equal input gives equal output, in any pieces. miniaudio's own
//! dither takes its noise from one generator for the whole process, so two streams would change each other.

/// Full scale of a 16-bit sample.
pub(crate) const SCALE: f32 = 32768.0;

/// 1.5 * 2^23. Added to a value near 16 bits, it rounds that to an integer, ties to even, and leaves the integer in the
/// low bits of the sum. Unlike a cast or `round_ties_even`, a compiler makes it part of a loop over several samples at
/// once, with any processor: dither takes half the time.
const TO_INTEGER: f32 = 12_582_912.0;

/// Rounds a value, in steps of 16 bits, to a sample. Values beyond full scale are clamped; NaN becomes any sample.
#[inline]
pub(crate) fn round_to_pcm16(value: f32) -> i16 {
    let clamped = value.clamp(f32::from(i16::MIN), f32::from(i16::MAX));
    (clamped + TO_INTEGER).to_bits() as i16
}

/// 32 random bits for each index: a hash whose bits are nearly independent of each other (C. Wellons,
/// hash-prospector, "two round functions", bias 0.108). Unlike a generator's, its values do not wait for each other.
const fn noise(index: u32) -> u32 {
    let mixed = (index ^ index >> 16).wrapping_mul(0x21f0_aaad);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0xd35a_2d97);
    mixed ^ mixed >> 15
}

/// The noise of one stream.
#[derive(Clone, Debug, Default)]
pub struct Dither {
    /// The index of the next sample.
    index: u32,
}

impl Dither {
    /// Converts native-endian floats to native-endian 16-bit samples, as many as both have room for. Values beyond
    /// full scale are clamped; NaN is silence.
    ///
    /// A value that 16 bits represent exactly gets no noise: silence stays silent, and audio that was 16-bit before is
    /// unchanged.
    pub fn convert(&mut self, floats: &[u8], out: &mut [u8]) {
        let (floats, _) = floats.as_chunks::<4>();
        let (samples, _) = out.as_chunks_mut::<2>();
        for (float, sample) in floats.iter().zip(samples) {
            let random = noise(self.index);
            self.index = self.index.wrapping_add(1);
            let wide = (random & 0xFFFF) as i32 - (random >> 16) as i32;
            let float = f32::from_ne_bytes(*float);
            let exact = if float.is_nan() { 0.0 } else { float * SCALE };
            let is_integer = exact + TO_INTEGER - TO_INTEGER == exact;
            let offset = if is_integer {
                0.0
            } else {
                wide as f32 / 65536.0
            };
            *sample = round_to_pcm16(exact + offset).to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dithered(values: &[f32]) -> Vec<i16> {
        let floats: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let mut out = vec![0; values.len() * 2];
        Dither::default().convert(&floats, &mut out);
        out.chunks(2)
            .map(|pair| i16::from_ne_bytes([pair[0], pair[1]]))
            .collect()
    }

    #[test]
    fn what_16_bits_hold_is_left_alone() {
        let all: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        let floats: Vec<f32> = all
            .iter()
            .map(|&sample| f32::from(sample) / SCALE)
            .collect();
        assert_eq!(dithered(&floats), all);
    }

    #[test]
    fn a_constant_between_two_steps_keeps_its_mean() {
        for fraction in [0.1, 0.25, 0.5, 0.9] {
            let out = dithered(&vec![(100.0 + fraction) / SCALE; 100_000]);
            let mean = out.iter().map(|&sample| f64::from(sample)).sum::<f64>() / 100_000.0;
            assert!(
                (mean - 100.0 - f64::from(fraction)).abs() < 0.01,
                "{fraction}: {mean}"
            );
            assert!(out.iter().all(|sample| (99..=102).contains(sample)));
        }
    }

    #[test]
    fn the_noise_has_the_same_power_wherever_the_value_lies() {
        // Half a square step of noise and a twelfth of rounding: a quarter in all, independent of the value.
        for fraction in [0.05, 0.3, 0.5, 0.77] {
            let value = f64::from(1000.0 + fraction);
            let out = dithered(&vec![(1000.0 + fraction) / SCALE; 100_000]);
            let power = out
                .iter()
                .map(|&sample| (f64::from(sample) - value).powi(2))
                .sum::<f64>()
                / 100_000.0;
            assert!((power - 0.25).abs() < 0.01, "{fraction}: {power}");
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        let values: Vec<f32> = (0..999)
            .map(|index| (index as f32 * 0.37).sin() * 0.3)
            .collect();
        let floats: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        for size in [1, 7, 500] {
            let mut dither = Dither::default();
            let mut out = vec![0; values.len() * 2];
            for (piece, room) in floats.chunks(4 * size).zip(out.chunks_mut(2 * size)) {
                dither.convert(piece, room);
            }
            let samples: Vec<i16> = out
                .chunks(2)
                .map(|pair| i16::from_ne_bytes([pair[0], pair[1]]))
                .collect();
            assert_eq!(samples, dithered(&values));
        }
    }

    #[test]
    fn values_beyond_full_scale_are_clamped_and_nan_is_silence() {
        assert_eq!(
            dithered(&[7.0, 1.0, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]),
            [i16::MAX, i16::MAX, i16::MIN, i16::MAX, i16::MIN, 0]
        );
    }
}
