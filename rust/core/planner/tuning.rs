//! Every constant of the planner, with its source.

// --- the end -----------------------------------------------------------------------------------------------

/// A stream breaks at an offset that was claimed to be the end this often, each time falsely. One false claim may be a
/// hiccup, two a cache.
pub(super) const FALSE_CLAIMS: u32 = 3;
/// An offset may be the end once it was answered with the same error this often, and the byte before it is served.
pub(super) const ERROR_CLAIMS: u32 = 3;
/// A claim below the announced size is checked by reading at most this many of the last bytes before that size. It is
/// the page size of most file systems.
pub(super) const TAIL_BYTES: u64 = 4096;
/// A claim below the announced size must be corroborated in this many rounds.
pub(super) const ROUNDS_BELOW_SIZE: u32 = 2;
/// The pause between two rounds of corroboration. It is longer than a cache's hiccup, and shorter than a pause that a
/// listener takes for the end.
pub(super) const CLAIM_ROUND_SECONDS: f64 = 0.5;
/// The least time to wait for reads in flight past a corroborated claim, whose bytes would refute it.
pub(super) const WAIT_PAST_CLAIM_SECONDS: f64 = 0.5;
/// Limits the remembered offsets of short pages, and those of false claims. It is far more than the pages in flight.
pub(super) const SHORT_ENDS_KEPT: usize = 512;
/// The stream breaks after more than this many successful answers in a row without a new byte, unless the settings say
/// otherwise.
pub(super) const STAGNANT_ANSWERS: u32 = 8;

// --- patience ----------------------------------------------------------------------------------------------

/// The wait before the second retry, at most; each later retry may wait twice as long. The first does not wait.
pub(super) const BACKOFF_SECONDS: f64 = 0.1;
/// Limits the wait before a retry, so that a server that is back is noticed within five seconds.
pub(super) const BACKOFF_MAX_SECONDS: f64 = 5.0;
/// Limits the exponent of a doubled wait, so that the power of two fits its integer. The wait has long reached its
/// maximum by then.
pub(super) const MOST_DOUBLINGS: u32 = 16;
/// This many failures without progress start an outage, in which only the head page is read again.
pub(super) const FAILURES_TO_OUTAGE: u32 = 2;
/// Limits the retries within a second, until there is progress.
pub(super) const RETRIES_PER_SECOND: usize = 2;
/// The pause between two retries while the listener has paused.
pub(super) const PAUSED_RETRY_SECONDS: f64 = 60.0;
/// The pauses before the retries of a refused head page. A refusal of the last retry is final.
pub(super) const REFUSAL_DELAYS_SECONDS: [f64; 3] = [1.0, 5.0, 15.0];
/// A wait of this length is reported to the listener. The driver has the same constant.
pub(super) const STATUS_SECONDS: f64 = 3.0;
/// Delays a timer that the driver compares with its own clock, so that rounding cannot make it early.
pub(super) const TIMER_SLACK_SECONDS: f64 = 0.001;

// --- hedging -----------------------------------------------------------------------------------------------

/// A late page is read a second time once this many later pages have arrived. TCP waits for one more (duplicate
/// acknowledgements).
pub(super) const OVERTAKEN_TO_HEDGE: u32 = 2;
/// The hedges that a new stream may send.
pub(super) const HEDGES_AT_START: u64 = 2;
/// A stream may send one more hedge per this many requests. This covers losses of a few per cent, without reading
/// everything twice from a server that is generally slow.
pub(super) const REQUESTS_PER_HEDGE: u64 = 20;
/// No page counts as late before this, because a garbage collection of the server looks like a loss.
pub(super) const LATE_MIN_SECONDS: f64 = 0.5;
/// Every page counts as late after this.
pub(super) const LATE_MAX_SECONDS: f64 = 30.0;

// --- requests in flight -------------------------------------------------------------------------------------

/// Limits the requests in flight. It is a third more than the connections that a browser opens to one host.
pub(super) const IN_FLIGHT: usize = 8;
/// Limits the requests in flight if nothing queues at the server, so that latency limits the rate. 32 MiB at 100 ms per
/// page took 4.8 s with 8 in flight, 2.8 s with 16 (measured).
pub(super) const IN_FLIGHT_AT_LATENCY: usize = 16;
/// Limits the requests in flight if the server's pages are small: many small requests replace a few large ones.
pub(super) const IN_FLIGHT_OF_SMALL: usize = 64;
/// The page size that `IN_FLIGHT` and `IN_FLIGHT_AT_LATENCY` assume, which is what existing servers expect.
pub(super) const FULL_PAGE_BYTES: u64 = 100 << 10;
/// An error multiplies the window by this, while each page adds one: TCP's additive increase, multiplicative decrease.
pub(super) const WINDOW_LOSS: f64 = 0.7;
/// Pages count as queued if their mean latency is more than this many times the least latency. Jitter and a page's own
/// transfer stay below.
pub(super) const QUEUED_LATENCIES: f64 = 1.75;
/// Requests are not spaced if the gap would be shorter than this, because a driver's timer cannot keep it.
pub(super) const PACING_MIN_SECONDS: f64 = 0.002;

// A serial server answers one read at a time (see serial.rs). A page that waited there arrives one service time after
// the page before it, whatever its size. If the link is the limit, that time grows with the page.

/// Limits the requests in flight at a serial server to one that is served and one that waits. A seek waits for both.
pub(super) const IN_FLIGHT_SERIAL: usize = 2;
/// This many answers in a row that took the same time show a serial server. A first burst and two more pages suffice.
pub(super) const SERIAL_ANSWERS: u32 = 4;
/// The largest of those answers must be this many times the smallest. Pages that share a link may take equally long,
/// too, but not so many of so different sizes.
pub(super) const SERIAL_SIZES: u64 = 4;
/// A page waited for its predecessor if it had been in flight for this share of the predecessor's time when the
/// predecessor arrived.
pub(super) const SERIAL_WAIT: f64 = 0.5;
/// Two pages took the same time if their times differ by at most this factor. The first two pages of a burst that
/// shares a link differ by a factor of one and a half.
pub(super) const SAME_GAP: f64 = 1.1;
/// The link is not the limit if nothing arrives for this share of the first page's time after that page. On a full
/// link, bytes of the second page arrive well before.
pub(super) const SERIAL_SILENCE: f64 = 0.5;
/// Bytes that arrive this soon after the first page do not end that silence, because they were read together with the
/// page.
pub(super) const SERIAL_HEARD_SECONDS: f64 = 0.02;
/// A page counts as larger than another if it is at least this many times as large. On a full link it would take as
/// much longer.
pub(super) const OTHER_SIZE: f64 = 1.4;
/// The start gate allows the next page of a serial server this many times the time of the newest.
pub(super) const SERIAL_MARGIN: f64 = 1.25;
/// The seconds of audio in the first page after a seek at a serial server. The next page usually takes less time than
/// this to arrive.
pub(super) const SERIAL_PAGE_SECONDS: f64 = 1.0;
/// Enlarges that page by what the decoder buffers. An MP3 decoder takes 16 KiB, and two reads more, before it keeps
/// pace.
pub(super) const SERIAL_PAGE_BYTES: u64 = 20 << 10;

// --- the link -----------------------------------------------------------------------------------------------

/// The bandwidth is the highest delivery rate of this many seconds: BBR's ten rounds, at a second each.
pub(super) const BANDWIDTH_WINDOW_SECONDS: f64 = 10.0;
/// The least latency is measured again after this time. This needs few lone pages, and still notices a changed route
/// (BBR: 10 s).
pub(super) const FLOOR_WINDOW_SECONDS: f64 = 30.0;
/// This many rounds without growth of the rate show a full link (BBR's "full pipe").
pub(super) const FLAT_ROUNDS: u32 = 3;
/// The rate has grown if it is more than this many times the best so far (BBR).
pub(super) const GROWTH: f64 = 1.25;
/// At the start, this many bandwidth-delay products are kept in flight. A window limits the rate that can be measured,
/// which so at most doubles from round to round.
pub(super) const GAIN_STARTUP: f64 = 2.0;
/// Once the link is full, this many bandwidth-delay products are kept in flight: half a product more than fills it,
/// against jitter (won in simulated time over 1.25 and 2).
pub(super) const GAIN_STEADY: f64 = 1.5;
/// At the start, requests leave this many times faster than answers arrive, because the rate may grow as much in a
/// round.
pub(super) const PACING_STARTUP: f64 = 2.0;
/// Once the link is full, requests leave this many times faster than answers arrive, because the rate hardly grows.
pub(super) const PACING_STEADY: f64 = 1.25;
/// Divides the rate at which pages follow the first of a round. Answers that share a link overlap, so that rate may be
/// up to twice too high.
pub(super) const TRAIN_EXCESS: f64 = 2.0;
/// This many rounds whose rate grew with their pages show that a cost per page is the limit. One may be chance, because
/// the first pages are small and share the link.
pub(super) const ROUNDS_IN_PROPORTION: u32 = 2;
/// The pages of such a round are at least this many times as large as those of the round before.
pub(super) const LARGER_PAGES: f64 = 1.25;
/// The rate of such a round grew by at least this share of the factor by which its pages grew.
pub(super) const IN_PROPORTION: f64 = 0.8;
/// The least time to divide by, which keeps rates finite. It is below the resolution of a driver's clock.
pub(super) const TICK_SECONDS: f64 = 1e-6;

// --- the size of a page -------------------------------------------------------------------------------------

/// A page is sized to take about this long to transfer, so that a retry or a seek wastes no more.
pub(super) const PAGE_SECONDS: f64 = 0.5;
/// A page may take this many latencies, if that is longer than `PAGE_SECONDS`.
pub(super) const PAGE_LATENCIES: f64 = 1.5;
/// A page takes at most one part in this many of the room, so that pages can overlap.
pub(super) const PAGES_IN_ROOM: u64 = 4;
/// Each page may be this many times as large as the page before, as in TCP's slow start.
pub(super) const PAGE_GROWTH: u64 = 2;
/// Pages grow by this factor if a cost per page is the limit, because a small page then costs as much as a large one.
pub(super) const PAGE_GROWTH_BY_COST: u64 = 4;
/// At the start a page may grow to this many smallest pages, whatever the rate: the size of the page after a first
/// burst of three. A lower limit costs a slow server three more reads; this one costs a slow link half a second after
/// the first audio.
pub(super) const ALWAYS_AFFORDED: u64 = 8;
/// This many short pages, without a larger whole page between them, show that the server caps its pages. A single
/// one may be the end of the file.
pub(super) const SHORTS_TO_LEARN: u32 = 3;
/// A larger page tests the cap after this many whole pages. The number doubles with every test.
pub(super) const WHOLES_TO_TEST_CAP: u32 = 16;
/// Limits the whole pages between two tests of the cap.
pub(super) const WHOLES_TO_TEST_CAP_MAX: u32 = 4096;
/// A round measures the largest allowed page if its mean page is at least this share of that page.
pub(super) const PAGES_OF_SIZE: f64 = 0.9;
/// Doubled pages stay if they multiply the rate by at least this. They gain nothing on a full link, and 10 to 40 %
/// where the client's cost per page is the limit (7.0 ms of CPU per MiB at 100 KiB, 4.5 at 256, 3.8 at 512; measured).
pub(super) const LARGER_PAYS: f64 = 1.1;
/// Doubled pages are tried once the affordable page is this many times the present one. Two is not needed: if a cost
/// per page is the limit, the rate grows with the pages, and so does the affordable size.
pub(super) const ROOM_TO_TRY: f64 = 1.25;
/// Larger pages have this many rounds to raise the rate. A single round may be slow by chance on a busy machine.
pub(super) const ROUNDS_ON_TRIAL: u32 = 3;
/// Larger pages that gained nothing are tried again this many rounds later. The number doubles with every such try.
pub(super) const ROUNDS_TO_RETRY: u32 = 8;
/// Limits the rounds between two tries of larger pages.
pub(super) const ROUNDS_TO_RETRY_MAX: u32 = 1024;

// --- the start gate -----------------------------------------------------------------------------------------
// Seconds are seconds of audio. Values without a source were chosen in simulated time (tests/planner_gate.rs).

/// Playing starts with at least this many seconds in hand. A start within half a second feels immediate, and in that
/// time a fast enough link delivers the pages in flight.
pub const START_SECONDS: f64 = 0.5;
/// Playing that ran dry resumes with this many seconds in hand. One longer pause disturbs less than many short ones (28
/// pauses in 6.8 s were measured when each page was played as it arrived).
pub const REFILL_SECONDS: f64 = 1.0;
/// A link this many times faster than the audio counts as fast: `START_SECONDS` suffice, unless the next page is due
/// later. A link that is three times faster measures as this after two pages.
pub(super) const FAST_LINK: f64 = 2.4;
/// Playing from a link that is neither fast nor steady starts with at least this many seconds in hand. Its pages may
/// grow to a second of audio, and its surplus makes up for a late page only slowly.
pub(super) const SLOW_START_SECONDS: f64 = 1.0;
/// The audio in hand must cover the link's deficit over this many seconds, or over the rest of the stream if that is
/// shorter. It is longer than the window of the rate (10 s).
pub(super) const HORIZON_SECONDS: f64 = 30.0;
/// The gate relies on this share of the measured rate, because pages that share a link measure up to a tenth too fast.
pub(super) const RATE_SHARE: f64 = 0.9;
/// The gate allows the next page this many times its estimated time to arrive.
pub(super) const ARRIVAL_MARGIN: f64 = 1.25;
/// Replaces `ARRIVAL_MARGIN` on a fast link, whose pages rarely share it and so arrive earlier than estimated.
pub(super) const ARRIVAL_MARGIN_FAST: f64 = 0.75;
/// This share of the room in hand always suffices to start, because the last page may not fit.
pub(super) const ROOM_SHARE: f64 = 0.9;
/// The measurements of the first burst are trusted for this long. Then the delivery-rate samples fill their window and
/// are better.
pub(super) const OPENING_SECONDS: f64 = 10.0;
/// The number of pages in the first burst, which show whether the link is steady.
pub(super) const STEADY_BURST: usize = 3;
/// This share of the bytes wanted in flight suffices while the first burst arrives. With all of them, the fourth page
/// shared a link of 40 ms with the third.
pub(super) const BURST_SHARE: f64 = 0.9;
/// The rate of a steady link varies by at most this share.
pub(super) const STEADY_SPREAD: f64 = 0.1;
/// Playing from a steady link that is just as fast as the audio starts with this many seconds in hand. They last while
/// a lost page is read again, which the link's surplus makes up for only slowly.
pub(super) const STEADY_START_SECONDS: f64 = 2.85;
/// A faster steady link needs `STEADY_START_SECONDS` divided by this power of its speed: one twice as fast needs a
/// fifth.
pub(super) const STEADY_START_POWER: f64 = 2.25;
/// Playing from a steady link that is not fast starts with at least this many seconds in hand.
pub(super) const STEADY_LEAST_SECONDS: f64 = 0.8;
/// Limits `STEADY_START_SECONDS` from below, in bytes, because pages are not smaller for slower audio.
pub(super) const STEADY_START_BYTES: f64 = 130_000.0;
/// A page on a steady link is late after two latencies and this many times the transfer of what is queued.
pub(super) const STEADY_LATE: f64 = 1.25;
