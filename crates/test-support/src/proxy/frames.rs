//! The framing of what a PostgreSQL server sends.

/// Reads one connection's messages from the server, as they come, and counts `ReadyForQuery`.
#[derive(Debug, Default)]
pub(super) struct Frames {
    state: State,
    started: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// Nothing but refusals of encryption so far, a lone `N` each.
    #[default]
    Start,
    /// Between messages.
    Tag,
    /// In the length of a message: how many bytes of it there were, and their value.
    Length { seen: u8, value: u32 },
    /// In a message: how many bytes are left.
    Payload { left: u32 },
    /// Encryption was agreed on: nothing more can be read.
    Encrypted,
}

impl Frames {
    /// Reads on. Returns how often the server became ready, its start-up left out.
    pub(super) fn round_trips(&mut self, bytes: &[u8]) -> u64 {
        let mut count = 0;
        let mut rest = bytes;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            self.state = match self.state {
                State::Start if byte == b'N' => State::Start,
                State::Start if byte == b'S' || byte == b'G' => State::Encrypted,
                State::Start | State::Tag => {
                    if byte == b'Z' {
                        count += u64::from(self.started);
                        self.started = true;
                    }
                    State::Length { seen: 0, value: 0 }
                }
                State::Length { seen, value } => {
                    let value = value << 8 | u32::from(byte);
                    match seen {
                        // The length counts itself.
                        3 => payload(value.saturating_sub(4)),
                        _ => State::Length {
                            seen: seen + 1,
                            value,
                        },
                    }
                }
                State::Payload { left } => {
                    let more = left - 1;
                    let skip = usize::try_from(more).unwrap_or(usize::MAX).min(rest.len());
                    rest = &rest[skip..];
                    payload(more - u32::try_from(skip).unwrap_or(more))
                }
                State::Encrypted => return count,
            };
        }
        count
    }
}

fn payload(left: u32) -> State {
    match left {
        0 => State::Tag,
        left => State::Payload { left },
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    const AUTHENTICATED: &[u8] = b"R\0\0\0\x08\0\0\0\0";
    const READY: &[u8] = b"Z\0\0\0\x05I";
    /// A row whose value looks like a `ReadyForQuery`.
    const ROW: &[u8] = b"D\0\0\0\x0cZ\0\0\0\x05IZI";
    const NO_DATA: &[u8] = b"n\0\0\0\x04";

    /// The count is the same however the bytes are split over reads.
    #[test]
    fn readiness_is_counted_whatever_the_reads() {
        let stream = [b"N", AUTHENTICATED, READY, ROW, NO_DATA, READY, ROW, READY].concat();
        for size in 1..=stream.len() {
            let mut frames = Frames::default();
            let count: u64 = stream
                .chunks(size)
                .map(|bytes| frames.round_trips(bytes))
                .sum();
            assert_eq!(count, 2, "reads of {size} bytes");
        }
    }

    /// What is encrypted is never taken for messages.
    #[test]
    fn encrypted_bytes_are_not_counted() {
        let stream = [b"S", AUTHENTICATED, READY, READY].concat();
        assert_eq!(Frames::default().round_trips(&stream), 0);
    }
}
