//! Volume and mixing: samples scaled and summed in place, for an audio callback.
//!
//! 16-bit samples are scaled in fixed point with 16 fractional bits, which the compiler vectorises on every machine. A
//! gain of one leaves every sample unchanged.

/// The samples of a stream, in the machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Signed, 16 bits.
    S16,
    /// Floating point, 32 bits, full scale at 1.0.
    F32,
}

/// Scales samples by a gain that goes evenly from `start` to `end`; see [`scale_pcm16`].
pub fn scale(pcm: &mut [u8], sample: Sample, start: f64, end: f64) {
    match sample {
        Sample::S16 => scale_pcm16(pcm, start, end),
        Sample::F32 => scale_f32(pcm, start, end),
    }
}

/// Scales 32-bit floating point samples as [`scale_pcm16`] does. A gain of one leaves every bit unchanged.
pub fn scale_f32(pcm: &mut [u8], start: f64, end: f64) {
    let clamped = |gain: f64| {
        if gain.is_nan() {
            0.0
        } else {
            gain.clamp(0.0, 1.0)
        }
    };
    let (start, end) = (clamped(start), clamped(end));
    let (samples, _) = pcm.as_chunks_mut::<4>();
    if start >= 1.0 && end >= 1.0 {
        return;
    }
    let step = (end - start) / (samples.len().max(1) as f64);
    for (index, sample) in (1u32..).zip(samples) {
        let gain = start + step * f64::from(index);
        *sample = ((f64::from(f32::from_ne_bytes(*sample)) * gain) as f32).to_ne_bytes();
    }
}

/// A gain of one.
const ONE: i32 = 1 << 16;

/// Scales native-endian 16-bit samples by a gain that goes evenly from `start` to `end`, both in 0.0..=1.0
/// (others are clamped; NaN is silence). An odd byte at the end is left alone.
///
/// An abrupt change of volume is heard as a click; one that is spread over a period is not.
pub fn scale_pcm16(pcm: &mut [u8], start: f64, end: f64) {
    let (start, end) = (fixed(start), fixed(end));
    let (samples, _) = pcm.as_chunks_mut::<2>();
    if start == end {
        if start != ONE {
            for sample in samples {
                *sample = scaled(*sample, start);
            }
        }
        return;
    }
    let count = i64::try_from(samples.len()).unwrap_or(i64::MAX);
    for (index, sample) in (1i64..).zip(samples) {
        // The last sample has the gain `end`: the next call continues from there.
        let step = i64::from(end - start) * index / count;
        *sample = scaled(*sample, start + i32::try_from(step).unwrap_or(0));
    }
}

fn fixed(gain: f64) -> i32 {
    (gain.clamp(0.0, 1.0) * f64::from(ONE)).round() as i32
}

/// Rounded to nearest. No overflow: 32768 · 65536 is 2³¹, and only the negative end reaches it.
fn scaled(sample: [u8; 2], gain: i32) -> [u8; 2] {
    let product = i32::from(i16::from_ne_bytes(sample)) * gain;
    (((product + (ONE / 2)) >> 16) as i16).to_ne_bytes()
}

/// Adds the samples of `other` to the samples of `pcm`, as many as both have. A sum beyond full scale is clipped.
pub fn add(pcm: &mut [u8], other: &[u8], sample: Sample) {
    match sample {
        Sample::S16 => {
            let (samples, (others, _)) = (pcm.as_chunks_mut::<2>().0, other.as_chunks::<2>());
            for (sample, other) in samples.iter_mut().zip(others) {
                let sum = i16::from_ne_bytes(*sample).saturating_add(i16::from_ne_bytes(*other));
                *sample = sum.to_ne_bytes();
            }
        }
        Sample::F32 => {
            let (samples, (others, _)) = (pcm.as_chunks_mut::<4>().0, other.as_chunks::<4>());
            for (sample, other) in samples.iter_mut().zip(others) {
                let sum = f32::from_ne_bytes(*sample) + f32::from_ne_bytes(*other);
                *sample = sum.clamp(-1.0, 1.0).to_ne_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: &[i16], start: f64, end: f64) -> Vec<i16> {
        let mut bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_ne_bytes()).collect();
        scale_pcm16(&mut bytes, start, end);
        bytes
            .chunks(2)
            .map(|pair| i16::from_ne_bytes([pair[0], pair[1]]))
            .collect()
    }

    #[test]
    fn a_gain_of_one_changes_no_sample() {
        let all: Vec<i16> = (i16::MIN..=i16::MAX).collect();
        assert_eq!(after(&all, 1.0, 1.0), all);
        // On the way to one as well: what arrives at one is unchanged.
        assert_eq!(after(&[12345], 0.0, 1.0), [12345]);
        assert_eq!(after(&[i16::MIN], 0.5, 1.0), [i16::MIN]);
    }

    #[test]
    fn a_gain_of_zero_is_silence_and_half_is_half() {
        assert_eq!(after(&[i16::MIN, -1, 0, 1, i16::MAX], 0.0, 0.0), [0; 5]);
        assert_eq!(
            after(&[i16::MIN, -1000, 1000, i16::MAX], 0.5, 0.5),
            [-16384, -500, 500, 16384]
        );
    }

    #[test]
    fn every_gain_is_within_half_a_step_of_the_exact_product() {
        for gain in [0.001, 0.125, 0.3333, 0.729, 0.9999] {
            for sample in (i16::MIN..=i16::MAX).step_by(37) {
                let exact = f64::from(sample) * gain;
                let actual = f64::from(after(&[sample], gain, gain)[0]);
                // Half a step, and the error of 16 bits of gain over a full-scale sample.
                assert!((actual - exact).abs() <= 0.5 + 0.25, "{sample} * {gain}");
            }
        }
    }

    #[test]
    fn a_ramp_goes_evenly_and_ends_at_its_end() {
        let ramp = after(&[10_000; 100], 1.0, 0.0);
        assert!(ramp.windows(2).all(|pair| pair[0] > pair[1]));
        assert_eq!((ramp[49], ramp[99]), (5_000, 0));
    }

    #[test]
    fn floating_point_is_scaled_alike_and_kept_bit_for_bit_at_one() {
        let after = |samples: &[f32], start, end| -> Vec<f32> {
            let mut bytes: Vec<u8> = samples.iter().flat_map(|s| s.to_ne_bytes()).collect();
            scale(&mut bytes, Sample::F32, start, end);
            bytes
                .chunks(4)
                .map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]))
                .collect()
        };
        let odd = [f32::MIN_POSITIVE, 0.1, -1.5, 1.0];
        assert_eq!(after(&odd, 1.0, 1.0), odd);
        assert_eq!(after(&[0.5; 4], 1.0, 0.0), [0.375, 0.25, 0.125, 0.0]);
        assert_eq!(after(&[0.5, 0.5], 0.5, 0.5), [0.25, 0.25]);
        assert_eq!(after(&[0.5], f64::NAN, f64::NAN), [0.0]);
    }

    #[test]
    fn a_sum_is_exact_and_clipped_at_full_scale() {
        let sum = |ones: &[i16], others: &[i16]| -> Vec<i16> {
            let [mut pcm, other] = [ones, others].map(|samples| {
                let bytes = samples.iter().flat_map(|s| s.to_ne_bytes());
                bytes.collect::<Vec<u8>>()
            });
            add(&mut pcm, &other, Sample::S16);
            pcm.chunks(2)
                .map(|pair| i16::from_ne_bytes([pair[0], pair[1]]))
                .collect()
        };
        assert_eq!(
            sum(&[1, -5, i16::MAX, i16::MIN, 7], &[2, 3, 1, -1]),
            [3, -2, i16::MAX, i16::MIN, 7]
        );
        let mut float = [0.25f32, 0.75, -0.75].map(f32::to_ne_bytes).concat();
        let other = [0.5f32, 0.75, -0.75].map(f32::to_ne_bytes).concat();
        add(&mut float, &other, Sample::F32);
        assert_eq!(float, [0.75f32, 1.0, -1.0].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn what_is_no_gain_and_what_is_no_sample_do_no_harm() {
        assert_eq!(after(&[1000], 7.0, 7.0), [1000]);
        assert_eq!(after(&[1000], -1.0, f64::NEG_INFINITY), [0]);
        assert_eq!(after(&[1000], f64::NAN, f64::NAN), [0]);
        let mut odd = [1, 2, 3];
        scale_pcm16(&mut odd, 0.0, 0.0);
        assert_eq!(odd, [0, 0, 3]);
        scale_pcm16(&mut [], 0.0, 1.0);
    }
}
