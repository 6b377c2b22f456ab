// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

//! Wrong arguments, calls that differ between ranks, and deadlines.

use std::time::Duration;

use vescomm::call::{self, Call};
use vescomm::{Bool, Buffer, CommOptions, Error, Layout, Op, Sharing, C64};

use crate::support::{names_rank, open_ranks, options, ranks, ranks_with};

#[test]
fn wrong_arguments_are_refused_and_have_no_effect() {
    ranks(3, |comm| {
        let refused = |call: Call<'_>, words: &str| {
            let error = comm.run(call).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
            assert!(error.sentence().contains(words), "{error} lacks {words:?}");
        };
        let (source, mut output) = ([1.0f32; 6], [0.0f32; 6]);
        let (s, o) = (&source, &mut output);
        let counts = [2i64, 2, 2];
        refused(call::all_gather_v(s, o, &[2, 2]), "2 counts for 3 ranks");
        refused(call::all_gather_v(s, o, &[2, -1, 2]), "counts[1] is -1");
        refused(call::all_gather_v(s, o, &[2, 2, i64::MAX]), "it must be from 0 to 1099511627776");
        refused(call::all_gather_v(s, o, &[2, 2, 3]), "output has 6 elements, and 7 are needed");
        refused(call::all_gather_v(&s[..1], o, &counts), "source has 1 elements, and 2 are needed");
        refused(call::all_gather_v_in_place(&mut o[..5], &counts), "and 6 are needed");
        let offsets = [0, 2, 5];
        refused(call::all_gather_v(s, o, &counts).output_offsets(&offsets), "and 7 are needed");
        refused(call::all_gather_v(s, o, &counts).output_offsets(&[0, 2]), "2 output_offsets");
        refused(call::all_gather_v(s, o, &counts).source_offsets(&offsets), "source_offsets");
        refused(call::all_gather_v(s, o, &counts).output_offsets(&[0, 0, 0]), "overlap");
        let far = [i64::MAX, 0, 2];
        let empty_far = call::all_gather_v_in_place(o, &[0, 2, 2]).output_offsets(&far);
        refused(empty_far, "output_offsets[0] is 9223372036854775807");
        refused(call::all_gather(s, o), "output has 6 elements, and 18 are needed");
        refused(call::reduce_scatter_v(s, &mut o[..1], &counts, Op::Sum), "output has 1");
        refused(call::reduce_scatter_v_in_place(&mut o[..5], &counts, Op::Sum), "source has 5");
        refused(call::reduce_scatter(s, o, Op::Sum), "source has 6 elements, and 18 are needed");
        refused(call::all_reduce(s, &mut o[..5], Op::Sum), "output has 5");
        refused(call::reduce(s, o, Op::Sum, 3), "root is 3, and there are ranks 0 to 2");
        refused(call::reduce(s, &mut o[..1], Op::Sum, comm.rank()), "output has 1");
        refused(call::broadcast(o, usize::MAX), "root is");
        refused(call::gather_v(&s[..1], o, &counts, 0), "source has 1");
        refused(call::gather_v(s, &mut o[..5], &counts, comm.rank()), "output has 5");
        refused(call::gather_v_in_place(o, &counts, (comm.rank() + 1) % 3), "only the root");
        refused(call::scatter_v(s, &mut o[..1], &counts, 0), "output has 1");
        refused(call::scatter_v(&s[..5], o, &counts, comm.rank()), "source has 5");
        refused(call::scatter_v_in_place(o, &counts, (comm.rank() + 1) % 3), "only the root");
        refused(call::all_to_all_v(s, &counts, o, &[2, 2, 3]), "output has 6");
        refused(call::all_to_all_v(s, &counts, o, &[2, 2]), "2 output_counts");
        refused(call::all_to_all_v(s, &[2, 2, 3], o, &counts), "source has 6");
        refused(call::all_to_all(&s[..5], o), "no multiple of 3 ranks");
        refused(call::all_to_all(s, &mut o[..5]), "output has 5");
        refused(call::send(s, 3), "peer is 3");
        refused(call::receive(o, 17), "peer is 17");
        refused(call::send(s, 0).tag(-1), "tag is -1");
        refused(call::receive_any(o).tag(-7), "tag is -7");
        refused(call::all_reduce_in_place(o, Op::Sum).tag(1), "takes no tag");
        refused(call::all_reduce_in_place(o, Op::BitwiseAnd), "no operator BitwiseAnd");
        refused(call::all_reduce_in_place(o, Op::PremultipliedSum(0.0)), "factor is 0");
        refused(call::all_reduce_in_place(&mut [Bool::default()], Op::Average), "Average");
        refused(call::all_reduce_in_place(&mut [C64::default()], Op::Max), "Max");
        refused(call::all_reduce_in_place(o, Op::Sum).algorithm("a\0b"), "NUL");
        let mut integers = [1i32; 6];
        let i = &mut integers;
        for factor in [0.5, 9.3e18, f64::NAN, f64::INFINITY] {
            let scaled = call::all_reduce_in_place(i, Op::PremultipliedSum(factor));
            refused(scaled, "must be a whole number");
        }
        // A wrong call keeps its whole group from being made, and the communicator intact.
        let mut data = [1.0f32; 2];
        let mut alone = |call: Call<'_>, words: &str| {
            let sum = call::all_reduce_in_place(&mut data, Op::Sum);
            refused(call::group([sum, call]), words);
        };
        alone(call::send(s, 3), "peer is 3");
        alone(call::all_reduce_in_place(i, Op::PremultipliedSum(0.5)), "whole number");
        alone(call::all_gather_v(s, o, &counts).output_offsets(&[0, 0, 2]), "overlap");
        let far = [1i64 << 41, 0, 2];
        alone(call::all_gather_v_in_place(o, &[0, 2, 2]).output_offsets(&far), "offsets[0]");
        let many = [2, 2, 1i64 << 41];
        if comm.rank() == 0 {
            alone(call::gather_v(s, o, &many, 2), "counts[2] is 2199023255552");
            let halves = [2, 1i64 << 40, 0];
            alone(call::gather_v(s, o, &halves, 1), "the sum of counts is 1099511627778");
        }
        let over = [0i64, 1, 1];
        alone(call::scatter_v_in_place(o, &counts, comm.rank()).source_offsets(&over), "overlaps");
        alone(call::all_to_all_v(s, &counts, o, &counts).output_offsets(&over), "overlaps");
        let others = [1i64, 1, 1];
        alone(call::all_to_all_v(s, &counts, o, &others), "sends itself 2 elements and expects 1");
        alone(call::all_reduce_in_place(o, Op::Sum).algorithm("none such"), "none such");
        assert_eq!(data, [1.0; 2]);
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        assert_eq!(data, [3.0; 2]);
    });
}

/// Errors that the crate finds, and one of the library.
#[test]
fn creations_that_all_ranks_refuse_leave_the_communicator_intact() {
    ranks(2, |comm| {
        let layout = Layout::from_counts(&[3, 3]).unwrap();
        let refused = |result: Result<(), Error>, words: &str| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
            assert!(error.sentence().contains(words), "{error} lacks {words:?}");
            comm.barrier().unwrap_or_else(|error| panic!("after {words:?}: {error}"));
        };
        let plain = CommOptions::default();
        let mut tagged = CommOptions::default();
        tagged.tag = Some("a\0".to_string());
        let mut own = Buffer::<f32>::new(comm, &layout, "own").unwrap();
        let mut shared =
            Buffer::<f32>::with_sharing(comm, &layout, "shared", Sharing::PerNode).unwrap();

        refused(comm.split(Some(-1), 0, &plain).map(drop), "the color is -1");
        refused(comm.split(Some(0), 0, &tagged).map(drop), "NUL");
        refused(comm.dup(&tagged).map(drop), "NUL");
        refused(Buffer::<f32>::new(comm, &layout, "a\0").map(drop), "NUL");
        refused(own.request().algorithm("a\0").all_reduce(Op::Sum).map(drop), "NUL");
        let gather = own.request().all_gather_v_from(vec![0.0f32; 2]);
        refused(gather.map(drop).map_err(Error::from), "has 2 elements");
        let reduce = own.request().reduce_scatter_v_into(vec![0.0f32; 4], Op::Sum);
        refused(reduce.map(drop).map_err(Error::from), "has 4 elements");
        shared.acquire().unwrap();
        refused(shared.request().broadcast(0).map(drop), "acquired");
        refused(own.request().broadcast(99).map(drop), "root is 99");
        let far = usize::MAX - 1;
        refused(own.request().broadcast(far).map(drop), &format!("no rank {far}"));
        refused(own.request().reduce(Op::Sum, far).map(drop), &format!("no rank {far}"));
        refused(comm.shrink(&[far]).map(drop), &format!("no rank {far}"));

        let mut sum = own.request().all_reduce(Op::Sum).unwrap();
        own.data_mut().unwrap().fill(1.0);
        sum.run(&mut own).unwrap();
        assert_eq!(own.data().unwrap(), [2.0; 6]);
    });
}

#[test]
fn a_creation_that_one_rank_refuses_fails_on_all_ranks() {
    let errors = open_ranks(3, |comm| {
        let name = if comm.rank() == 1 { "a\0" } else { "a" };
        let layout = Layout::from_counts(&[3, 3, 3]).unwrap();
        let error = Buffer::<f32>::new(&comm, &layout, name).map(drop).unwrap_err();
        assert!(comm.barrier().is_err());
        error
    });
    assert!(matches!(errors[1], Error::InvalidArgument(_)), "{:?}", errors[1]);
    for error in [&errors[0], &errors[2]] {
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        assert!(names_rank(error.sentence(), 1), "{error}");
        assert!(error.sentence().contains("NUL"), "{error}");
    }
}

#[test]
fn a_wrong_path_of_a_trace_is_an_error_on_all_ranks() {
    ranks(3, |comm| {
        let wrong = |on_all: bool| {
            let path = if on_all || comm.rank() == 0 { "a\0b" } else { "unused" };
            let error = comm.trace_write(path).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
            let words = if comm.rank() == 0 { "NUL" } else { "path is NULL" };
            assert!(error.sentence().contains(words), "{error}");
            comm.barrier().unwrap();
        };
        wrong(true);
        wrong(false);
    });
}

#[test]
fn the_operators_of_a_type_are_those_of_the_library() {
    // Each operator that this crate refuses is refused by the library, and the other way round.
    use vescomm::{Bf16, Element};
    use vescomm_sys as sys;
    fn check<T: Element + Default>(comm: &vescomm::Communicator) {
        let names = [
            (Op::Sum, sys::VESCOMM_SUM),
            (Op::Average, sys::VESCOMM_AVERAGE),
            (Op::Prod, sys::VESCOMM_PROD),
            (Op::Min, sys::VESCOMM_MIN),
            (Op::Max, sys::VESCOMM_MAX),
            (Op::PremultipliedSum(2.0), sys::VESCOMM_PREMULTIPLIED_SUM),
            (Op::BitwiseAnd, sys::VESCOMM_BITWISE_AND),
            (Op::BitwiseOr, sys::VESCOMM_BITWISE_OR),
            (Op::BitwiseXor, sys::VESCOMM_BITWISE_XOR),
            (Op::LogicalAnd, sys::VESCOMM_LOGICAL_AND),
            (Op::LogicalOr, sys::VESCOMM_LOGICAL_OR),
            (Op::LogicalXor, sys::VESCOMM_LOGICAL_XOR),
        ];
        let mut raw = std::ptr::null_mut();
        // SAFETY: a communicator of one rank, which is freed below.
        let status = unsafe {
            sys::vescomm_comm_create(
                0,
                1,
                std::ptr::null(),
                std::ptr::null(),
                std::ptr::null(),
                &mut raw,
            )
        };
        assert_eq!(status, sys::VESCOMM_OK);
        for (op, number) in names {
            let mut data = [T::default(); 3];
            let mut options = sys::vescomm_call_options_init();
            if let Op::PremultipliedSum(factor) = op {
                options.factor = factor;
            }
            let array = data.as_mut_ptr().cast();
            // SAFETY: three elements, source and output at the same place.
            let status = unsafe {
                sys::vescomm_all_reduce(
                    raw,
                    array,
                    array,
                    3,
                    T::TYPE as i32,
                    number,
                    &options,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            };
            let here = comm.all_reduce_in_place(&mut data, op);
            assert_eq!(here.is_ok(), status == sys::VESCOMM_OK, "{op:?} of {:?}", T::TYPE);
        }
        // SAFETY: created above.
        unsafe { sys::vescomm_comm_free(raw) };
    }
    ranks(1, |comm| {
        check::<f32>(comm);
        check::<Bf16>(comm);
        check::<i8>(comm);
        check::<u64>(comm);
        check::<Bool>(comm);
        check::<C64>(comm);
        check::<vescomm::C128>(comm);
        check::<vescomm::F8E5M2>(comm);
    });
}

#[test]
fn calls_that_differ_between_ranks_are_reported_on_all_of_them() {
    let errors = open_ranks(3, |comm| {
        let mut data = vec![1.0f32; if comm.rank() == 2 { 11 } else { 10 }];
        let first = comm.all_reduce_in_place(&mut data, Op::Sum);
        first.and_then(|()| comm.barrier()).unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, Error::Mismatch(_)), "{error:?}");
        assert_eq!(error.name(), "mismatch");
    }
}

#[test]
fn a_wait_ends_at_the_deadline_and_names_the_rank() {
    let short = |rank: usize| {
        let mut options = options();
        if rank == 0 {
            options.timeout = Some(Duration::from_millis(300));
        }
        options
    };
    let (done, wait) = std::sync::mpsc::channel();
    let (done, wait) = (std::sync::Mutex::new(done), std::sync::Mutex::new(wait));
    ranks_with(2, short, |comm| {
        if comm.rank() == 0 {
            let error = comm.receive(&mut [0u8; 4], 1).unwrap_err();
            assert!(matches!(error, Error::Timeout(_)), "{error:?}");
            assert!(names_rank(error.sentence(), 1), "{error}");
            assert_eq!((error.status(), error.name()), (-3, "timeout"));
            done.lock().unwrap().send(()).unwrap();
        } else {
            wait.lock().unwrap().recv().unwrap();
        }
    });
}
