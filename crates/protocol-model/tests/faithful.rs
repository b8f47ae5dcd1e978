//! The protocol as it is, every state of it.

use protocol_model::{ByHand, Limits, Model, Promise};

fn explore(limits: Limits) {
    let exploration = Model::faithful(limits).explore();
    println!("{exploration}");
    assert!(exploration.broken.is_empty(), "{:?}", exploration.broken);
    assert!(exploration.missed.is_empty(), "{:?}", exploration.missed);
}

/// R50, R60, R62: three processes, both keys, one connection that breaks at any step, one erasure.
#[test]
fn three_processes_keep_every_promise() {
    explore(Limits::THREE_AT_ONCE);
}

/// R50, R62: two processes, both keys, of whose connections two break.
#[test]
fn two_broken_connections_break_no_promise() {
    explore(Limits {
        arrivals: 2,
        running: 2,
        cuts: 2,
        ..Limits::THREE_AT_ONCE
    });
}

/// A handler that commits by hand doubles its effect where the connection breaks before the layer has
/// learned of it: the layer then frees, because else every broken connection would pin its key. The
/// documents name this exception, and the other runs excuse it.
#[test]
fn commit_by_hand_doubles_where_the_layer_cannot_learn_of_it() {
    let counterexample = |cuts| {
        let model = Model::faithful(Limits {
            arrivals: 2,
            running: 2,
            cuts,
            by_hand: ByHand::ExcusedUnlessCut,
            removals: false,
            ..Limits::THREE_AT_ONCE
        });
        model.counterexample(Promise::OneEffect)
    };
    assert!(
        counterexample(0).is_none(),
        "the layer learns of it, and marks the record"
    );
    let trace = counterexample(1).expect("the layer cannot know of the commit");
    println!("committed by hand, then the connection breaks:\n{trace}");
}
