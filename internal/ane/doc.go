// Package ane holds what is known of Apple's Neural Engine: its limits, the
// operations it has no code for or computes coarsely, what it keeps in memory.
// Apple publishes none of it. The facts are those of the contract's notes on
// the Neural Engine, of published compute plans and of public bug reports; each
// says where it was seen.
//
// The prediction of a device (internal/check) and the rules of the linter
// (internal/lint) both read them here.
package ane
