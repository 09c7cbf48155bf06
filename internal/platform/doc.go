// Package platform holds the few things that differ between operating
// systems: memory maps, flushing a folder to disk, and asking about the
// terminal. One file per system; a system without a facility gets
// [errors.ErrUnsupported] or, where that is harmless, a no-op.
package platform
