// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

use std::ffi::CString;
use std::fmt;
use std::ops::Range;
use std::ptr::{null_mut, NonNull};

use vescomm_sys as sys;

use crate::comm::{number_of_ranks, rank_number};
use crate::error::{c_string, call, invalid, text};
use crate::Result;

/// The number of dimensions. The library refuses one that does not fit in its type.
pub(crate) fn dimensions(shape: &[i64]) -> i32 {
    i32::try_from(shape.len()).unwrap_or(i32::MAX)
}

/// One tensor of a layout. Offsets and sizes are in elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// Unique within the layout.
    pub name: String,
    /// Row-major extents. Empty: a scalar.
    pub shape: Vec<i64>,
    /// First element in the buffer.
    pub offset: i64,
    /// Number of consecutive elements that must stay on one rank. Cuts lie on multiples of it
    /// within each sub-matrix. 0 means 1.
    pub block: i64,
    /// Number of leading dimensions that index sub-matrices, such as 1 for the experts of
    /// [experts, rows, columns]. The grid of blocks restarts at each sub-matrix.
    pub batch_dimensions: i32,
}

impl Tensor {
    /// Number of elements. `i64::MAX` if it is larger; no layout has such a tensor.
    pub fn elements(&self) -> i64 {
        if self.shape.contains(&0) {
            return 0;
        }
        self.shape.iter().fold(1, |product: i64, extent| product.saturating_mul(*extent))
    }
}

/// The sizes of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutInfo {
    /// Number of shards.
    pub ranks: usize,
    /// Size of the whole buffer, including padding.
    pub elements: usize,
    /// Number of elements that belong to no tensor.
    pub padding: usize,
    /// Size of the largest shard.
    pub largest: usize,
    /// Number of tensors.
    pub tensors: usize,
    /// XXH3-64 of the serialised layout, for comparing layouts; the same on every platform, but a
    /// new version of the format changes it.
    pub hash: u64,
}

/// The part of one tensor that lies in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the tensor in the layout.
    pub tensor: usize,
    /// First element, counted within the tensor.
    pub first: i64,
    /// Number of elements.
    pub elements: i64,
    /// Position of the first element within the shard.
    pub offset: i64,
}

/// Consecutive elements of a tensor that form a rectangle: start and extent in every dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubBox {
    /// Start in every dimension.
    pub start: Vec<i64>,
    /// Extent in every dimension.
    pub extent: Vec<i64>,
}

/// The places of tensors and shards in a fused buffer: an immutable value, the same on every rank.
///
/// ```
/// # fn main() -> vescomm::Result<()> {
/// use vescomm::{Layout, Tensor};
/// let tensor = |name: &str, shape: &[i64], offset, block| Tensor {
///     name: name.to_string(),
///     shape: shape.to_vec(),
///     offset,
///     block,
///     ..Tensor::default()
/// };
/// // Rows of 8 stay on one rank; rank 0 owns 2 rows, rank 1 the rest.
/// let tensors = [tensor("w", &[4, 8], 0, 8), tensor("b", &[3], 32, 1)];
/// let layout = Layout::new(&tensors, 35, &[0, 16, 35])?;
/// assert_eq!(layout.shard(1)?, 16..35);
/// assert_eq!(layout.pieces(1)?.len(), 2);
/// # Ok(())
/// # }
/// ```
pub struct Layout {
    raw: NonNull<sys::vescomm_layout_t>,
}

// SAFETY: a layout never changes, and vescomm.h calls its functions safe.
unsafe impl Send for Layout {}
unsafe impl Sync for Layout {}

/// A copy of all its tensors and cuts.
///
/// # Panics
///
/// Without memory for the copy.
impl Clone for Layout {
    fn clone(&self) -> Layout {
        match self.serialise().and_then(|bytes| Layout::parse(&bytes)) {
            Ok(layout) => layout,
            Err(error) => panic!("vescomm: a layout cannot be copied: {error}"),
        }
    }
}

impl Layout {
    /// Takes over the pointer; NULL becomes `None`.
    pub(crate) fn owning(raw: *mut sys::vescomm_layout_t) -> Option<Layout> {
        NonNull::new(raw).map(|raw| Layout { raw })
    }

    fn create(
        make: impl FnOnce(*mut *mut sys::vescomm_layout_t) -> sys::vescomm_status_t,
    ) -> Result<Layout> {
        let mut raw = null_mut();
        call(|| make(&mut raw))?;
        Layout::owning(raw).ok_or_else(|| invalid("there is no layout"))
    }

    pub(crate) fn raw(&self) -> *mut sys::vescomm_layout_t {
        self.raw.as_ptr()
    }

    /// Creates a layout from tensors at given offsets and given cuts, and checks it. The planner
    /// computes both.
    ///
    /// `tensors` are in order of offset and do not overlap. `elements` is the size of the whole
    /// buffer. `cuts` has ranks + 1 offsets, not decreasing, from 0 to `elements`: rank k owns
    /// `cuts[k]..cuts[k + 1]`.
    pub fn new(tensors: &[Tensor], elements: i64, cuts: &[i64]) -> Result<Layout> {
        let names: Vec<CString> = tensors
            .iter()
            .map(|tensor| c_string("the name of a tensor", &tensor.name))
            .collect::<Result<_>>()?;
        let raw: Vec<_> = tensors
            .iter()
            .zip(&names)
            .map(|(tensor, name)| sys::vescomm_tensor_t {
                dimensions: dimensions(&tensor.shape),
                name: name.as_ptr(),
                shape: tensor.shape.as_ptr(),
                offset: tensor.offset,
                block: tensor.block,
                batch_dimensions: tensor.batch_dimensions,
                ..sys::vescomm_tensor_init()
            })
            .collect();
        let ranks = number_of_ranks(cuts.len().saturating_sub(1))?;
        // SAFETY: all arrays live until the call returns, and have the sizes that are given.
        Layout::create(|made| unsafe {
            let (tensors, cuts) = (raw.as_ptr(), cuts.as_ptr());
            sys::vescomm_layout_create(tensors, raw.len(), elements, cuts, ranks, made)
        })
    }

    /// Creates a layout of one vector, "data", of which rank k owns `counts[k]` elements.
    pub fn from_counts(counts: &[i64]) -> Result<Layout> {
        let ranks = number_of_ranks(counts.len())?;
        // SAFETY: the array lives until the call returns.
        Layout::create(|made| unsafe {
            sys::vescomm_layout_create_from_counts(counts.as_ptr(), ranks, made)
        })
    }

    /// Creates a layout from the bytes that [`serialise()`](Layout::serialise) returned. They may
    /// come from an untrusted source.
    pub fn parse(bytes: &[u8]) -> Result<Layout> {
        // SAFETY: the bytes live until the call returns.
        Layout::create(|made| unsafe {
            sys::vescomm_layout_parse(bytes.as_ptr().cast(), bytes.len(), made)
        })
    }

    /// Serialises the layout, to store it with a checkpoint or to send it. Equal layouts have equal
    /// bytes on every platform.
    pub fn serialise(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: with a capacity of 0 nothing is written.
        call(|| unsafe { sys::vescomm_layout_serialise(self.raw(), null_mut(), 0, &mut size) })?;
        let mut bytes = vec![0; size];
        // SAFETY: the capacity is that of the vector.
        call(|| unsafe {
            let data = bytes.as_mut_ptr().cast();
            sys::vescomm_layout_serialise(self.raw(), data, bytes.len(), &mut size)
        })?;
        Ok(bytes)
    }

    /// Returns the sizes and the hash.
    pub fn info(&self) -> Result<LayoutInfo> {
        let mut info = sys::vescomm_layout_info_init();
        // SAFETY: struct_size is set.
        call(|| unsafe { sys::vescomm_layout_get_info(self.raw(), &mut info) })?;
        Ok(LayoutInfo {
            ranks: info.ranks as usize,
            elements: info.elements as usize,
            padding: info.padding as usize,
            largest: info.largest as usize,
            tensors: info.tensors as usize,
            hash: info.hash,
        })
    }

    /// Returns the shard of a rank, as a range of the elements of the buffer.
    pub fn shard(&self, rank: usize) -> Result<Range<usize>> {
        let rank = rank_number(rank)?;
        let (mut begin, mut end) = (0, 0);
        // SAFETY: both outputs live until the call returns.
        call(|| unsafe { sys::vescomm_layout_get_shard(self.raw(), rank, &mut begin, &mut end) })?;
        Ok(begin as usize..end as usize)
    }

    /// Describes one tensor. Tensors are in order of offset.
    pub fn tensor(&self, index: usize) -> Result<Tensor> {
        let mut raw = sys::vescomm_tensor_init();
        // SAFETY: struct_size is set.
        call(|| unsafe { sys::vescomm_layout_get_tensor(self.raw(), index, &mut raw) })?;
        let shape = match raw.dimensions {
            0 => Vec::new(),
            // SAFETY: the layout owns the shape, which has this number of entries.
            more => unsafe { std::slice::from_raw_parts(raw.shape, more as usize) }.to_vec(),
        };
        Ok(Tensor {
            name: text(raw.name),
            shape,
            offset: raw.offset,
            block: raw.block,
            batch_dimensions: raw.batch_dimensions,
        })
    }

    /// Returns the index of the tensor with this name.
    pub fn find(&self, name: &str) -> Result<usize> {
        let name = c_string("the name of a tensor", name)?;
        let mut index = 0;
        // SAFETY: the string lives until the call returns.
        call(|| unsafe { sys::vescomm_layout_find_tensor(self.raw(), name.as_ptr(), &mut index) })?;
        Ok(index)
    }

    /// Lists the pieces of tensors that a rank owns, in order of offset.
    pub fn pieces(&self, rank: usize) -> Result<Vec<Piece>> {
        let rank = rank_number(rank)?;
        let empty = sys::vescomm_piece_t { tensor: 0, first: 0, elements: 0, offset: 0 };
        let mut pieces = Vec::new();
        let mut total = 0;
        loop {
            // SAFETY: the capacity is that of the vector.
            call(|| unsafe {
                sys::vescomm_layout_get_pieces(
                    self.raw(),
                    rank,
                    pieces.as_mut_ptr(),
                    pieces.len(),
                    &mut total,
                )
            })?;
            if total <= pieces.len() {
                return Ok(pieces.into_iter().map(Piece::from).collect());
            }
            pieces.resize(total, empty);
        }
    }

    /// Returns the part of one tensor that a rank owns. It may have no elements.
    pub fn piece(&self, tensor: usize, rank: usize) -> Result<Piece> {
        let rank = rank_number(rank)?;
        let mut raw = sys::vescomm_piece_t { tensor: 0, first: 0, elements: 0, offset: 0 };
        // SAFETY: the output lives until the call returns.
        call(|| unsafe { sys::vescomm_layout_get_piece(self.raw(), tensor, rank, &mut raw) })?;
        Ok(raw.into())
    }

    /// Describes consecutive elements of a tensor, such as a piece, as boxes, the form that slicing
    /// calls and checkpoint formats use.
    pub fn boxes(&self, tensor: usize, first: i64, elements: i64) -> Result<Vec<SubBox>> {
        let dimensions = self.tensor(tensor)?.shape.len();
        let mut boxes = Vec::new();
        let mut total = 0;
        loop {
            let capacity = boxes.len() / (2 * dimensions).max(1);
            // SAFETY: the capacity is that of the vector; a box has 2 * dimensions numbers.
            call(|| unsafe {
                sys::vescomm_layout_get_boxes(
                    self.raw(),
                    tensor,
                    first,
                    elements,
                    boxes.as_mut_ptr(),
                    capacity,
                    &mut total,
                )
            })?;
            if dimensions == 0 {
                let scalar = SubBox { start: Vec::new(), extent: Vec::new() };
                return Ok(vec![scalar; total]);
            }
            if total <= capacity {
                let numbers = boxes.chunks_exact(2 * dimensions);
                return Ok(numbers
                    .map(|one| SubBox {
                        start: one[..dimensions].to_vec(),
                        extent: one[dimensions..].to_vec(),
                    })
                    .collect());
            }
            boxes.resize(total * 2 * dimensions, 0);
        }
    }
}

impl From<sys::vescomm_piece_t> for Piece {
    fn from(raw: sys::vescomm_piece_t) -> Piece {
        Piece {
            tensor: raw.tensor as usize,
            first: raw.first,
            elements: raw.elements,
            offset: raw.offset,
        }
    }
}

impl PartialEq for Layout {
    fn eq(&self, other: &Layout) -> bool {
        matches!((self.serialise(), other.serialise()), (Ok(mine), Ok(its)) if mine == its)
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: nothing else has the pointer. The call takes no lock and logs nothing.
        unsafe { sys::vescomm_layout_free(self.raw()) };
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Ok(info) => info.fmt(formatter),
            Err(error) => write!(formatter, "Layout({error})"),
        }
    }
}
