// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Values without a communicator: layouts, the planner, types, and the traits of all types.

use vescomm::planner::{plan, Mode, Options, Plan, Unit};
use vescomm::{planner, Element, Error, Handle, Layout, RegisteredArray, SubBox, Tensor, Type};

fn tensor(name: &str, shape: &[i64], offset: i64, block: i64) -> Tensor {
    Tensor { name: name.into(), shape: shape.into(), offset, block, ..Tensor::default() }
}

#[test]
fn a_layout_is_what_was_given() {
    let tensors = [tensor("w", &[4, 8], 0, 8), tensor("b", &[3], 33, 1), tensor("s", &[], 36, 1)];
    let layout = Layout::new(&tensors, 40, &[0, 16, 16, 40]).unwrap();
    let info = layout.info().unwrap();
    assert_eq!((info.ranks, info.elements, info.padding), (3, 40, 4));
    assert_eq!((info.largest, info.tensors), (24, 3));
    for (index, given) in tensors.iter().enumerate() {
        assert_eq!(layout.tensor(index).unwrap(), *given);
        assert_eq!(layout.find(&given.name).unwrap(), index);
    }
    assert_eq!(tensors.iter().map(Tensor::elements).collect::<Vec<_>>(), [32, 3, 1]);
    let huge = tensor("empty", &[i64::MAX, i64::MAX, 0], 0, 1);
    assert_eq!(
        Layout::new(std::slice::from_ref(&huge), 0, &[0, 0]).unwrap().tensor(0).unwrap(),
        huge
    );
    assert_eq!(huge.elements(), 0);
    assert_eq!(tensor("large", &[i64::MAX, 2], 0, 1).elements(), i64::MAX);
    assert_eq!(layout.shard(0).unwrap(), 0..16);
    assert_eq!(layout.shard(1).unwrap(), 16..16);
    assert!(layout.pieces(1).unwrap().is_empty());
    let pieces = layout.pieces(2).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.tensor).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((pieces[0].first, pieces[0].elements, pieces[0].offset), (16, 16, 0));
    assert_eq!((pieces[1].first, pieces[1].elements, pieces[1].offset), (0, 3, 17));
    assert_eq!(layout.piece(1, 2).unwrap(), pieces[1]);
    assert_eq!(layout.piece(1, 0).unwrap().elements, 0);
    let one_box = SubBox { start: vec![2, 0], extent: vec![2, 8] };
    assert_eq!(layout.boxes(0, 16, 16).unwrap(), [one_box]);
    assert_eq!(layout.boxes(0, 3, 20).unwrap().len(), 3);
    assert_eq!(layout.boxes(2, 0, 1).unwrap().len(), 1);
    assert!(layout.boxes(2, 0, 0).unwrap().is_empty());
}

#[test]
fn a_layout_survives_its_bytes() {
    let layout = Layout::from_counts(&[3, 0, 5]).unwrap();
    let again = Layout::parse(&layout.serialise().unwrap()).unwrap();
    assert_eq!(layout, again);
    let copy = layout.clone();
    drop(again);
    assert_eq!((&copy, copy.info().unwrap()), (&layout, layout.info().unwrap()));
    assert_eq!(layout.info().unwrap().hash, copy.info().unwrap().hash);
    assert_ne!(layout, Layout::from_counts(&[3, 1, 4]).unwrap());
    assert!(matches!(Layout::parse(b"no layout"), Err(Error::InvalidArgument(_))));
}

#[test]
fn wrong_layouts_are_refused_with_a_sentence() {
    let wrong = |result: vescomm::Result<Layout>, word: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        assert!(error.sentence().contains(word), "{error}");
    };
    wrong(Layout::from_counts(&[]), "ranks");
    wrong(Layout::from_counts(&[1, -1]), "-1");
    wrong(Layout::new(&[], 0, &[]), "ranks");
    wrong(Layout::new(&[tensor("a\0b", &[1], 0, 1)], 1, &[0, 1]), "NUL");
    wrong(Layout::new(&[tensor("cut", &[4, 8], 0, 8)], 32, &[0, 4, 32]), "cut");
    let layout = Layout::from_counts(&[1]).unwrap();
    for rank in [1, usize::MAX] {
        let errors = [
            layout.shard(rank).unwrap_err(),
            layout.pieces(rank).unwrap_err(),
            layout.piece(0, rank).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
            assert!(error.sentence().contains(&format!("rank {rank}")), "{error}");
        }
    }
    assert!(layout.find("gone").unwrap_err().sentence().contains("gone"));
    assert!(layout.tensor(1).is_err() && layout.pieces(1).is_err() && layout.piece(1, 0).is_err());
}

#[test]
fn the_planner_answers_and_explains() {
    let tensors = [
        planner::Tensor { block_rows: 4, ..planner::Tensor::new("w", &[64, 16]) },
        planner::Tensor::new("b", &[64]),
    ];
    for ranks in [1, 2, 3, 5] {
        let planned = plan(&tensors, ranks, &Options::default()).unwrap();
        let layout = planned.layout.expect("a layout");
        let info = layout.info().unwrap();
        assert_eq!((info.ranks, info.tensors), (ranks, 2));
        assert_eq!(info.largest as i64, planned.figures.largest_shard);
        assert!(planned.figures.lower_bound <= planned.figures.largest_shard);
        assert!(!planned.explanation.is_empty() && !planned.figures.order.is_empty());
        for rank in 0..ranks {
            let piece = layout.piece(layout.find("w").unwrap(), rank).unwrap();
            assert_eq!(piece.elements % 64, 0, "a block of 4 rows is cut");
        }
    }

    let mut options = Options::default();
    options.shard_limit = 10;
    let planned = plan(&tensors, 2, &options).unwrap();
    assert!(planned.layout.is_none() && planned.explanation.contains("10"), "{planned:?}");

    let mut options = Options::default();
    options.weights = vec![3, 1];
    let planned = plan(&tensors, 2, &options).unwrap().layout.unwrap();
    assert!(planned.shard(0).unwrap().len() > 2 * planned.shard(1).unwrap().len());
    options.weights = vec![3];
    assert!(plan(&tensors, 2, &options).unwrap_err().sentence().contains("1 weights for 2 ranks"));

    // The number is refused before memory for the cuts of all these ranks is allocated.
    for ranks in [usize::MAX, 1 << 31] {
        let named =
            |error: Error| assert!(error.sentence().contains(&ranks.to_string()), "{error}");
        named(plan(&tensors, ranks, &Options::default()).unwrap_err());
        named(Plan::new(&[], ranks, &Options::default()).unwrap_err());
    }

    let twice = [planner::Tensor::new("x", &[1]), planner::Tensor::new("x", &[1])];
    let error = plan(&twice, 2, &Options::default()).unwrap_err();
    assert!(
        matches!(error, Error::InvalidArgument(_)) && error.sentence().contains('x'),
        "{error}"
    );
}

#[test]
fn the_planner_answers_while_its_thread_ends() {
    use std::cell::RefCell;
    use std::sync::mpsc::{channel, Sender};
    fn explanation() -> String {
        let tensors = [planner::Tensor::new("w", &[64, 16])];
        plan(&tensors, 3, &Options::default()).unwrap().explanation
    }
    struct Plans(Sender<[String; 2]>);
    impl Drop for Plans {
        fn drop(&mut self) {
            self.0.send([explanation(), explanation()]).unwrap();
        }
    }
    thread_local! {
        static LAST: RefCell<Option<Plans>> = const { RefCell::new(None) };
    }
    let (sender, receiver) = channel();
    let expected = std::thread::spawn(move || {
        // The first value that a thread uses is dropped last.
        LAST.with(|last| last.replace(Some(Plans(sender))));
        explanation()
    });
    let expected = expected.join().unwrap();
    assert_eq!(receiver.recv().unwrap(), [expected.clone(), expected]);
}

#[test]
fn a_model_is_planned_as_a_whole() {
    let unit = |name: &str, rows| Unit {
        element: Type::Bf16,
        name: name.to_string(),
        tensors: vec![
            planner::Tensor { block_rows: -1, ..planner::Tensor::new("w", &[rows, 8]) },
            planner::Tensor::new("b", &[rows]),
        ],
    };
    let mut options = Options::default();
    options.mode = Mode::Balanced;
    options.search_steps = 100_000;
    let units = [unit("first", 80), unit("second", 80), unit("third", 40)];
    let plan = Plan::new(&units, 3, &options).unwrap();
    let totals = plan.totals().unwrap();
    assert!(totals.feasible && totals.mode == Mode::Balanced);
    assert_eq!(plan.units().unwrap(), 3);
    let mut bytes = 0;
    for index in 0..3 {
        let layout = plan.layout(index).unwrap().expect("a layout");
        bytes += 2 * layout.info().unwrap().elements as i64;
        assert_eq!(plan.figures(index).unwrap().elements, layout.info().unwrap().elements as i64);
    }
    assert_eq!(totals.bytes, bytes);
    assert!(!plan.explanation().is_empty());
    assert!(matches!(plan.layout(3), Err(Error::InvalidArgument(_))));

    options.shard_limit = 1;
    let plan = Plan::new(&units, 3, &options).unwrap();
    assert!(!plan.totals().unwrap().feasible && plan.layout(0).unwrap().is_none());
}

#[test]
fn types_have_the_sizes_of_their_elements() {
    fn check<T: Element>() {
        assert_eq!(T::TYPE.bytes(), std::mem::size_of::<T>());
    }
    crate::for_every_number!(check());
    check::<vescomm::Bool>();
}

#[test]
fn threads_can_have_what_the_header_permits() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<vescomm::Communicator>();
    send::<Handle>();
    sync::<Handle>();
    send::<Layout>();
    sync::<Layout>();
    send::<Plan>();
    sync::<Plan>();
    send::<RegisteredArray<f32>>();
    sync::<RegisteredArray<f32>>();
    send::<Error>();
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(vescomm::version(), env!("CARGO_PKG_VERSION"));
    assert!(vescomm::trace_seconds() <= vescomm::trace_seconds());
}
