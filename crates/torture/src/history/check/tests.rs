use std::time::Duration;

use super::super::{Answer, Call, Effect, History, Outcome, RecordRow, Request, Tables, Wait};
use super::{Kind, check};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A round in which all is well, to be spoilt.
struct Round {
    history: History,
    tables: Tables,
}

fn answer(status: u16, problem: Option<&str>) -> Answer {
    Answer {
        status,
        replayed: false,
        headers: Vec::new(),
        body: Vec::new(),
        problem: problem.map(str::to_owned),
        names: None,
    }
}

fn made(id: &str, replayed: bool) -> Answer {
    Answer {
        replayed,
        headers: vec![("location".to_owned(), id.as_bytes().to_vec())],
        body: id.as_bytes().to_vec(),
        names: Some(id.to_owned()),
        ..answer(201, None)
    }
}

fn removed(id: &str, replayed: bool) -> Answer {
    Answer {
        replayed,
        names: Some(id.to_owned()),
        ..answer(204, None)
    }
}

fn record(key: &str, state: &str, made: Option<&str>) -> RecordRow {
    RecordRow {
        key: key.to_owned(),
        state: state.to_owned(),
        resource_ref: made.map(str::to_owned),
    }
}

fn effect(id: &str, key: &str) -> Effect {
    Effect {
        id: id.to_owned(),
        key: key.to_owned(),
        body: "text".to_owned(),
        buried_by: None,
    }
}

impl Round {
    /// Key `a` has made `1`, was sent twice, and was sent with another body.
    fn made() -> Self {
        let mut round = Self {
            history: History {
                faults_ended: ms(100),
                bound: ms(1_000),
                ..History::default()
            },
            tables: Tables {
                effects: vec![effect("1", "a")],
                records: vec![record("a", "completed", Some("1"))],
                tally: 1,
                idle: 0,
            },
        };
        round.call("text", 0, Outcome::HungUp);
        round.call("text", 10, Outcome::Answer(made("1", false)));
        round.call("text", 20, Outcome::Answer(made("1", true)));
        let reused = answer(409, Some("key-reused"));
        round.call("other", 30, Outcome::Answer(reused));
        round.wait(Some(150));
        round
    }

    /// Then `b` has removed it, and `a` was sent again.
    fn removed() -> Self {
        let mut round = Self::made();
        let (id, of) = ("1".to_owned(), "a".to_owned());
        round.history.calls.push(Call {
            key: "b".to_owned(),
            request: Request::Remove { id, of },
            server: 0,
            started: ms(40),
            ended: ms(45),
            outcome: Outcome::Answer(removed("1", false)),
        });
        round.tables.effects[0].buried_by = Some("b".to_owned());
        round.tables.records[0].state = "tombstone".to_owned();
        round.tables.records.push(record("b", "completed", None));
        round.call("text", 50, Outcome::Answer(answer(410, Some("gone"))));
        round
    }

    /// A call of key `a` that takes 5 ms.
    fn call(&mut self, body: &str, at: u64, outcome: Outcome) {
        self.history.calls.push(Call {
            key: "a".to_owned(),
            request: Request::Make {
                body: body.to_owned(),
            },
            server: 0,
            started: ms(at),
            ended: ms(at + 5),
            outcome,
        });
    }

    fn answered(&mut self, body: &str, at: u64, answer: Answer) {
        self.call(body, at, Outcome::Answer(answer));
    }

    fn wait(&mut self, ended: Option<u64>) {
        self.history.waits.push(Wait {
            key: "a".to_owned(),
            began: ms(0),
            ended: ended.map(ms),
        });
    }

    fn found(&self) -> Vec<Kind> {
        let found = check(&self.history, &self.tables);
        found.iter().map(|violation| violation.kind).collect()
    }
}

/// What may happen is no violation: hang-ups, replays, refusals, removals, failures of the store.
#[test]
fn a_good_round_passes() {
    assert_eq!(Round::made().found(), []);
    assert_eq!(Round::removed().found(), []);
    let mut round = Round::made();
    round.call("text", 40, Outcome::Broken);
    round.answered("text", 50, answer(503, Some("store-unavailable")));
    // Begun before anything was known.
    round.answered("text", 8, answer(409, Some("in-progress")));
    round.answered("text", 5, answer(500, None));
    assert_eq!(round.found(), []);
}

/// A second effect of a key is seen, whatever clients were told, and also where one was removed.
#[test]
fn a_second_effect_is_seen() {
    for mut round in [Round::made(), Round::removed()] {
        round.tables.effects.push(effect("2", "a"));
        round.tables.tally = 2;
        assert_eq!(round.found(), [Kind::Duplicate, Kind::Apart]);
    }
}

/// Two answers of a first run mean that there were two.
#[test]
fn a_second_run_is_seen() {
    let mut round = Round::made();
    round.answered("text", 40, made("1", false));
    assert_eq!(round.found(), [Kind::Duplicate]);
}

/// A 2xx whose effect is not there is seen, and one that names another.
#[test]
fn a_lost_effect_is_seen() {
    let mut round = Round::made();
    round.tables.effects.clear();
    round.tables.records.clear();
    round.tables.tally = 0;
    assert_eq!(round.found(), [Kind::Loss, Kind::Loss]);

    let mut round = Round::made();
    round.answered("text", 40, made("2", true));
    assert_eq!(round.found(), [Kind::Loss, Kind::Differing]);
}

/// A removal that was answered 2xx and is not there is seen.
#[test]
fn a_lost_removal_is_seen() {
    let mut round = Round::removed();
    round.tables.effects[0].buried_by = None;
    round.tables.records[0].state = "completed".to_owned();
    round.tables.records.pop();
    assert_eq!(round.found(), [Kind::Loss]);
}

/// Replays that differ in status, a kept header or a byte are seen.
#[test]
fn differing_answers_are_seen() {
    let spoils: [fn(&mut Answer); 3] = [
        |answer| answer.status = 200,
        |answer| answer.headers[0].1.push(b'/'),
        |answer| answer.body.push(b' '),
    ];
    for spoil in spoils {
        let mut round = Round::made();
        let mut replay = made("1", true);
        spoil(&mut replay);
        round.answered("text", 40, replay);
        assert_eq!(round.found(), [Kind::Differing]);
    }
}

/// A 2xx for a request that was not the one that ran is seen.
#[test]
fn a_result_for_another_body_is_seen() {
    let mut round = Round::made();
    round.answered("other", 40, made("1", true));
    assert_eq!(round.found(), [Kind::OtherBody]);
}

/// A handler that was taken over may find nothing to remove any more; but a removal is not denied
/// where there was none, nor where it is known.
#[test]
fn a_denied_removal_is_seen() {
    let denied = |at| Call {
        key: "b".to_owned(),
        request: Request::Remove {
            id: "1".to_owned(),
            of: "a".to_owned(),
        },
        server: 0,
        started: ms(at),
        ended: ms(at + 5),
        outcome: Outcome::Answer(answer(404, None)),
    };
    let mut round = Round::removed();
    round.history.calls.push(denied(42));
    assert_eq!(round.found(), []);
    round.history.calls.push(denied(46));
    assert_eq!(round.found(), [Kind::Untrue]);

    let mut round = Round::made();
    round.history.calls.push(denied(42));
    assert_eq!(round.found(), [Kind::Untrue]);
}

/// Once a 2xx was read, nobody is told that the request runs, failed or was another.
#[test]
fn answers_that_deny_a_result_are_seen() {
    for denial in [
        answer(409, Some("in-progress")),
        answer(409, Some("key-reused")),
        answer(500, None),
        answer(500, Some("transaction-lost")),
        answer(422, None),
        answer(410, Some("gone")),
        answer(404, None),
    ] {
        let mut round = Round::made();
        round.answered("text", 40, denial);
        assert_eq!(round.found(), [Kind::Untrue]);
    }
}

/// A key is not said to be reused where only one request was ever sent with it.
#[test]
fn a_reuse_that_never_was_is_seen() {
    let mut round = Round::made();
    round.history.calls.pop();
    round.answered("text", 2, answer(409, Some("key-reused")));
    assert_eq!(round.found(), [Kind::Untrue]);
}

/// Once a removal was answered, the removed result is not replayed.
#[test]
fn a_replay_from_the_grave_is_seen() {
    let mut round = Round::removed();
    round.answered("text", 60, made("1", true));
    assert_eq!(round.found(), [Kind::Untrue]);
}

/// A client without a final answer is seen, one that got it late, and one that will never have it.
#[test]
fn stuck_keys_are_seen() {
    let mut round = Round::made();
    round.wait(None);
    assert_eq!(round.found(), [Kind::Stuck]);

    let mut round = Round::made();
    round.wait(Some(1_101));
    assert_eq!(round.found(), [Kind::Stuck]);

    let mut round = Round::made();
    round.answered("text", 1, answer(410, Some("outcome-unknown")));
    assert_eq!(round.found(), [Kind::Stuck]);
}

/// An effect without its record is seen, and a record without its effect, of any state.
#[test]
fn an_effect_without_its_record_is_seen() {
    let spoils: [fn(&mut Round); 5] = [
        |round| round.tables.records.clear(),
        |round| round.tables.records[0].state = "tombstone".to_owned(),
        |round| round.tables.records[0].resource_ref = Some("2".to_owned()),
        |round| {
            round
                .tables
                .records
                .push(record("c", "completed", Some("3")))
        },
        |round| round.tables.tally = 2,
    ];
    for spoil in spoils {
        let mut round = Round::made();
        spoil(&mut round);
        assert_eq!(round.found(), [Kind::Apart]);
    }
}

/// What is left over is seen: a claimed record, and a connection in a transaction.
#[test]
fn leftovers_are_seen() {
    let mut round = Round::made();
    round.tables.records.push(record("c", "claimed", None));
    assert_eq!(round.found(), [Kind::LeftClaimed]);

    let mut round = Round::made();
    round.tables.idle = 1;
    assert_eq!(round.found(), [Kind::IdleInTransaction]);
}

/// Where the database has lost what it acknowledged, effect and record together, clients make it
/// anew; an effect that is lost after that is a loss, and half of one is not forgiven.
#[test]
fn what_a_database_forgot_is_made_anew() {
    let anew = |until| {
        let mut round = Round::removed();
        round.tables.effects = vec![effect("2", "a")];
        round.tables.records = vec![record("a", "completed", Some("2"))];
        round.answered("text", 60, made("2", false));
        let lost = round.history.forget(ms(until), &round.tables);
        (round, lost)
    };
    let (mut round, lost) = anew(55);
    assert_eq!((round.found(), lost), (vec![], 1));
    // There is nothing to remove any more.
    round.history.calls.push(Call {
        started: ms(70),
        outcome: Outcome::Answer(answer(404, None)),
        ..round.history.calls[4].clone()
    });
    assert_eq!(round.found(), []);
    round.tables.records.clear();
    assert_eq!(round.found(), [Kind::Apart]);

    let (round, lost) = anew(15);
    assert!(lost == 1 && round.found().contains(&Kind::Loss));
}

/// Where it has the claim and lost the completion, a key that nobody asks for again stays claimed; one
/// that was asked for does not, nor one that has an effect.
#[test]
fn a_claim_whose_completion_is_forgotten_may_stay() {
    let claimed = |until| {
        let mut round = Round::made();
        round.tables.effects.clear();
        round.tables.tally = 0;
        round.tables.records = vec![record("a", "claimed", None)];
        round.history.forget(ms(until), &round.tables);
        round
    };
    let mut round = claimed(u64::MAX);
    assert_eq!(round.found(), []);
    round.tables.effects = vec![effect("1", "a")];
    assert!(round.found().contains(&Kind::LeftClaimed));
    assert!(claimed(0).found().contains(&Kind::LeftClaimed));
}

/// The longest time without a 2xx is measured while there are faults.
#[test]
fn pauses_are_measured() {
    let mut round = Round::made();
    round.answered("text", 60, made("1", true));
    round.answered("text", 500, made("1", true));
    assert_eq!(round.history.longest_pause(), ms(40));
}
