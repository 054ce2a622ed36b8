//! Every constant of the planner, with its source.

// --- the end -----------------------------------------------------------------------------------------------

/// This many false claims of an end at one offset are a contradiction: one may be a hiccup, two a cache.
pub(super) const FALSE_CLAIMS: u32 = 3;
/// This many equal error answers at one offset are an end, if the byte before is served between them.
pub(super) const ERROR_CLAIMS: u32 = 3;
/// Up to this many of the last bytes before the announced size are read to check a claim below it: the page size of
/// most file systems.
pub(super) const TAIL_BYTES: u64 = 4096;
/// A claim below an announced size is corroborated in this many rounds.
pub(super) const ROUNDS_BELOW_SIZE: u32 = 2;
/// The pause between two rounds of corroboration: longer than a cache's hiccup, shorter than a pause that a listener
/// takes for the end.
pub(super) const CLAIM_ROUND_SECONDS: f64 = 0.5;
/// The least time to wait for reads in flight past a corroborated claim.
pub(super) const WAIT_PAST_CLAIM_SECONDS: f64 = 0.5;
/// Limits the remembered offsets of short pages, and those of false claims: far more than are in flight.
pub(super) const SHORT_ENDS_KEPT: usize = 512;
/// Limits the successful answers in a row without a new byte (`Limits.stagnant_pages`).
pub(super) const STAGNANT_ANSWERS: u32 = 8;

// --- patience ----------------------------------------------------------------------------------------------

/// The second retry waits about this long, each later one twice as long as the one before; the first does not wait.
pub(super) const BACKOFF_SECONDS: f64 = 0.1;
/// Limits the wait before a retry: a server that is back is noticed within five seconds.
pub(super) const BACKOFF_MAX_SECONDS: f64 = 5.0;
/// Limits the doublings of a wait, which is far past its maximum by then; keeps the power finite.
pub(super) const MOST_DOUBLINGS: u32 = 16;
/// This many failures without progress are an outage, in which only the head page is read again.
pub(super) const FAILURES_TO_OUTAGE: u32 = 2;
/// Limits the retries within a second, without progress.
pub(super) const RETRIES_PER_SECOND: usize = 2;
/// The pause between two retries while the listener has paused.
pub(super) const PAUSED_RETRY_SECONDS: f64 = 60.0;
/// The pauses before the retries of a refused head page; if it is refused after the last of them too, it has failed.
pub(super) const REFUSAL_DELAYS_SECONDS: [f64; 3] = [1.0, 5.0, 15.0];
/// A wait this long is reported to the listener. The driver has the same constant.
pub(super) const STATUS_SECONDS: f64 = 3.0;
/// Added to a timer that the driver compares with its own clock, because seconds are rounded.
pub(super) const TIMER_SLACK_SECONDS: f64 = 0.001;

// --- hedging -----------------------------------------------------------------------------------------------

/// A late page is read a second time once this many later pages have arrived (TCP's duplicate acknowledgements, less
/// one).
pub(super) const OVERTAKEN_TO_HEDGE: u32 = 2;
/// The hedges that a new stream may send.
pub(super) const HEDGES_AT_START: u64 = 2;
/// A stream may send one more hedge for this many requests: that covers losses of a few per cent, without asking a
/// generally slow server twice for everything.
pub(super) const REQUESTS_PER_HEDGE: u64 = 20;
/// No page is late before this: a garbage collection looks like a loss.
pub(super) const LATE_MIN_SECONDS: f64 = 0.5;
/// Every page is late after this.
pub(super) const LATE_MAX_SECONDS: f64 = 30.0;

// --- requests in flight -------------------------------------------------------------------------------------

/// Limits the requests in flight: a third more than the connections that a browser opens to one host.
pub(super) const IN_FLIGHT: usize = 8;
/// Limits the requests in flight if nothing queues at the server, so that latency is the limit. 32 MiB at 100 ms per
/// page took 4.8 s with 8 in flight, 2.8 s with 16 (measured).
pub(super) const IN_FLIGHT_AT_LATENCY: usize = 16;
/// Limits the requests in flight if the server's pages are small: more of them instead of a slower stream.
pub(super) const IN_FLIGHT_OF_SMALL: usize = 64;
/// The page size for which `IN_FLIGHT` and `IN_FLIGHT_AT_LATENCY` are meant: what existing servers expect.
pub(super) const FULL_PAGE_BYTES: u64 = 100 << 10;
/// An error multiplies the window by this; each page adds one: multiplicative decrease, additive increase (TCP).
pub(super) const WINDOW_LOSS: f64 = 0.7;
/// Pages whose latency is this many times the least have waited for each other. Jitter and a page's own transfer stay
/// below.
pub(super) const QUEUED_LATENCIES: f64 = 1.75;
/// The shortest gap between requests that is kept: a driver's timer cannot keep a shorter one.
pub(super) const PACING_MIN_SECONDS: f64 = 0.002;

// Serial servers answer one read at a time (see serial.rs). A page that waited there arrives one service time after the
// page before it, whatever its size; on a full link that time grows with the page.

/// Limits the requests in flight at a serial server: one that it serves, and one that waits. A seek waits for both.
pub(super) const IN_FLIGHT_SERIAL: usize = 2;
/// This many answers in a row that took the same time show a serial server: a first burst and two more pages are
/// enough.
pub(super) const SERIAL_ANSWERS: u32 = 4;
/// The sizes of those answers must differ by this factor. Pages that share a link may take equally long, too, but not
/// so many of so different sizes.
pub(super) const SERIAL_SIZES: u64 = 4;
/// A page waited for the page before it if, when that one arrived, it had been in flight for this share of the time
/// that that one took.
pub(super) const SERIAL_WAIT: f64 = 0.5;
/// Two pages took the same time if their times differ by no more than this factor. Those of the first two pages of a
/// burst that shares a link differ by one and a half.
pub(super) const SAME_GAP: f64 = 1.1;
/// If nothing arrives for this share of the first page's time after the first page, the link is not the limit: on a
/// full link, bytes of the second page arrive well before.
pub(super) const SERIAL_SILENCE: f64 = 0.5;
/// Bytes that arrive this soon after the first page do not break that silence: they were read together with the page.
pub(super) const SERIAL_HEARD_SECONDS: f64 = 0.02;
/// A page counts as one of another size if it is this many times as large: on a full link it would take as much longer.
pub(super) const OTHER_SIZE: f64 = 1.4;
/// The start gate expects the next page of a serial server to take up to this many times as long as the newest.
pub(super) const SERIAL_MARGIN: f64 = 1.25;
/// The audio in the first page after a seek at a serial server: more than the next page takes, as a rule.
pub(super) const SERIAL_PAGE_SECONDS: f64 = 1.0;
/// Added to that page for the decoder: one for MP3 buffers 16 KiB, and reads two steps more, before it keeps pace.
pub(super) const SERIAL_PAGE_BYTES: u64 = 20 << 10;

// --- the link -----------------------------------------------------------------------------------------------

/// The window of a delivery rate: BBR's ten rounds, at a second each.
pub(super) const BANDWIDTH_WINDOW_SECONDS: f64 = 10.0;
/// The window of the least latency: long enough to need few lone pages, short enough for a changed route (BBR: 10 s).
pub(super) const FLOOR_WINDOW_SECONDS: f64 = 30.0;
/// This many rounds without growth of the rate show a full link (BBR's "full pipe").
pub(super) const FLAT_ROUNDS: u32 = 3;
/// The rate has grown if it is more than this many times the best so far (BBR).
pub(super) const GROWTH: f64 = 1.25;
/// The bytes to have in flight at the start, in bandwidth-delay products: the rate that a window can show at most
/// doubles from round to round.
pub(super) const GAIN_STARTUP: f64 = 2.0;
/// The bytes to have in flight once the link is full, in bandwidth-delay products: half a product more than fills it,
/// against jitter (won in simulated time over 1.25 and 2).
pub(super) const GAIN_STEADY: f64 = 1.5;
/// At the start, requests leave this many times faster than answers arrive: as much as the rate may grow in a round.
pub(super) const PACING_STARTUP: f64 = 2.0;
/// The same once the link is full, where the rate hardly grows.
pub(super) const PACING_STEADY: f64 = 1.25;
/// The rate at which pages follow the first of a round is divided by this: answers that share a link overlap, so it may
/// read up to twice too high.
pub(super) const TRAIN_EXCESS: f64 = 2.0;
/// This many rounds whose rate grew with their pages show that a cost per page is the limit. One may be chance, because
/// the first pages are small and share the link.
pub(super) const ROUNDS_IN_PROPORTION: u32 = 2;
/// The pages of such a round are at least this many times as large as those of the round before.
pub(super) const LARGER_PAGES: f64 = 1.25;
/// The rate of such a round grew by at least this share of the factor by which its pages grew.
pub(super) const IN_PROPORTION: f64 = 0.8;
/// The least time to divide by, below the resolution of a driver's clock; keeps rates finite.
pub(super) const TICK_SECONDS: f64 = 1e-6;

// --- the size of a page -------------------------------------------------------------------------------------

/// A page should take about this long to transfer: a retry or a seek wastes no more.
pub(super) const PAGE_SECONDS: f64 = 0.5;
/// If this many latencies are longer than `PAGE_SECONDS`, a page may take as long.
pub(super) const PAGE_LATENCIES: f64 = 1.5;
/// The room holds at least this many pages: with fewer, none can overlap.
pub(super) const PAGES_IN_ROOM: u64 = 4;
/// The factor by which pages grow, as in TCP's slow start.
pub(super) const PAGE_GROWTH: u64 = 2;
/// The factor by which pages grow if a cost per page is the limit: a small one costs as much as a large one.
pub(super) const PAGE_GROWTH_BY_COST: u64 = 4;
/// At the start a page may grow to this many first pages, whatever the rate: to the page after a first burst of three.
/// Without this doubling a slow server needs three more reads; with it a slow link loses half a second after the first
/// audio.
pub(super) const ALWAYS_AFFORDED: u64 = 8;
/// This many short pages in a row show a cap of the server; one may be the end of the file.
pub(super) const SHORTS_TO_LEARN: u32 = 3;
/// This many whole pages at the cap precede a larger page that tests it; the number doubles with every test.
pub(super) const WHOLES_TO_TEST_CAP: u32 = 16;
/// Limits that number.
pub(super) const WHOLES_TO_TEST_CAP_MAX: u32 = 4096;
/// A round measures the largest allowed page if its mean page is at least this share of it.
pub(super) const PAGES_OF_SIZE: f64 = 0.9;
/// Doubled pages must multiply the rate by this to stay. On a full link they gain nothing; the client's own cost per
/// page gains 10 to 40 % (7.0 ms of CPU per MiB at 100 KiB, 4.5 at 256, 3.8 at 512; measured).
pub(super) const LARGER_PAYS: f64 = 1.1;
/// Doubled pages are tried once a page this many times as large would not take too long. That is less than two, because
/// if a cost per page is the limit, the rate grows with the pages, and so does the size that does not take too long.
pub(super) const ROOM_TO_TRY: f64 = 1.25;
/// Larger pages have this many rounds to raise the rate: one round may be slow by chance on a busy machine.
pub(super) const ROUNDS_ON_TRIAL: u32 = 3;
/// Larger pages that gained nothing are tried again this many rounds later; the number doubles with every such try.
pub(super) const ROUNDS_TO_RETRY: u32 = 8;
/// Limits that number.
pub(super) const ROUNDS_TO_RETRY_MAX: u32 = 1024;

// --- the start gate -----------------------------------------------------------------------------------------
// Seconds are seconds of audio. Values without a source were chosen in simulated time (tests/planner_gate.rs).

/// Audio in hand before playing starts. A start within half a second feels immediate, and in that time a fast enough
/// link delivers the pages in flight.
pub const START_SECONDS: f64 = 0.5;
/// Audio in hand before playing goes on after it ran dry: one longer pause disturbs less than many short ones (28
/// pauses in 6.8 s were measured when each page was played as it arrived).
pub const REFILL_SECONDS: f64 = 1.0;
/// A link this many times faster than the audio counts as fast: `START_SECONDS` are enough, unless the next page is due
/// later. A link that is three times faster measures as this after two pages.
pub(super) const FAST_LINK: f64 = 2.4;
/// Audio in hand before playing starts from a link that is neither fast nor steady: its pages may grow to a second of
/// audio, and its surplus makes up for a late one only slowly.
pub(super) const SLOW_START_SECONDS: f64 = 1.0;
/// The audio in hand must cover the link's deficit over this stretch, if more is left: longer than the window of the
/// rate (10 s).
pub(super) const HORIZON_SECONDS: f64 = 30.0;
/// The share of the measured rate to rely on: samples of pages that share a link read up to a tenth too high.
pub(super) const RATE_SHARE: f64 = 0.9;
/// The next page may take this many times as long to arrive as estimated.
pub(super) const ARRIVAL_MARGIN: f64 = 1.25;
/// The same on a fast link, whose pages rarely share it and so arrive earlier.
pub(super) const ARRIVAL_MARGIN_FAST: f64 = 0.75;
/// A listener waits for at most this share of the room ahead; the last page may not fit.
pub(super) const ROOM_SHARE: f64 = 0.9;
/// The first burst is trusted for this long: the window of the delivery-rate samples, which are better then.
pub(super) const OPENING_SECONDS: f64 = 10.0;
/// The pages of the first burst, which show a steady link.
pub(super) const STEADY_BURST: usize = 3;
/// While the burst arrives, this share of the bytes wanted in flight is enough. With all of them the next page shared a
/// link of 40 ms with the third one.
pub(super) const BURST_SHARE: f64 = 0.9;
/// The rate of a steady link varies by less than this.
pub(super) const STEADY_SPREAD: f64 = 0.1;
/// Audio in hand before playing starts from a steady link as fast as the audio. It lasts while a lost page is read
/// again; the link's surplus makes up for that only slowly.
pub(super) const STEADY_START_SECONDS: f64 = 2.85;
/// A faster steady link needs `STEADY_START_SECONDS` divided by this power of its speed: one twice as fast, a fifth.
pub(super) const STEADY_START_POWER: f64 = 2.25;
/// The least audio in hand before playing starts from a steady link that is not fast.
pub(super) const STEADY_LEAST_SECONDS: f64 = 0.8;
/// The least bytes in hand for `STEADY_START_SECONDS`: pages are not smaller for slower audio.
pub(super) const STEADY_START_BYTES: f64 = 130_000.0;
/// A page on a steady link is late after two latencies and this share of the transfer of what is queued.
pub(super) const STEADY_LATE: f64 = 1.25;
