// Package lint finds what is known to go wrong with Core ML models on Apple's
// Neural Engine, and what is odd about packages, before anybody waits for a
// device to say so.
//
// Every rule has a name that stays, a severity, and says where it found what,
// why that matters and what to do. docs/lint.md lists them; where the facts
// behind them come from is said with each rule and in package ane.
//
// Rules look at descriptions and programs. Those that read weights run only
// when Options.Deep asks for it.
package lint
