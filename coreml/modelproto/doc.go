// Package modelproto converts between the description of a model in memory
// ([coreml.Model]) and its protobuf form (package modelpb), and checks a
// description against the program it describes. Both stored kinds of models,
// packages and compiled bundles, carry this description.
package modelproto

//go:generate go -C ../../tools run ./genproto
