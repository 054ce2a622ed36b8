//! Dither: 32-bit float samples to 16 bits, with noise in place of distortion.
//!
//! Rounding alone leaves an error that follows the music and is heard as distortion in quiet passages. Triangular
//! noise of two steps, the sum of two independent uniform values, makes the error's mean and power constant
//! (Lipshitz, Wannamaker, Vanderkooy: "Quantization and Dither: A Theoretical Survey", JAES 40/5, 1992).
//!
//! The noise is a function of the sample's index: equal input gives equal output, in any pieces. miniaudio's own
//! dither takes its noise from one generator for the whole process, so two streams would change each other.

/// Full scale of a 16-bit sample.
const SCALE: f32 = 32768.0;

/// Adding and subtracting this rounds a value in the range of 16 bits to an integer, ties to even. `round_ties_even` is
/// a call per sample where SSE 4.1 may be missing: a third of the time that a conversion took.
const TO_INTEGER: f32 = 12_582_912.0;

/// Multiplier and increment of Knuth's generator (MMIX); its upper 32 bits are used.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

/// The noise of one stream.
#[derive(Clone, Debug, Default)]
pub struct Dither {
    state: u64,
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
            self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
            let noise = (self.state >> 32) as u32;
            let wide = i32::from(noise as u16) - i32::from((noise >> 16) as u16);
            let exact = f32::from_ne_bytes(*float) * SCALE;
            // A cast saturates, and makes 0 of NaN.
            let plain = exact as i16;
            *sample = if f32::from(plain) == exact {
                plain
            } else {
                (exact + wide as f32 / 65536.0 + TO_INTEGER - TO_INTEGER) as i16
            }
            .to_ne_bytes();
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
