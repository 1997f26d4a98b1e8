//! Writes into a view of a larger tensor: values element by element, and every byte of the larger tensor that is not the view's.
//!
//! A device may refuse a layout. What it takes must be right, and nothing around the view may change: not in the tensor that
//! the view is cut out of, nor behind it. Each module says which layouts a device must take.

mod copies;
mod cut;
mod in_place;
mod masks;
mod operands;
mod parent;
mod refusals;
mod windows;
