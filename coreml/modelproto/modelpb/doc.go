// Package modelpb holds the messages of a model's description, generated from
// model.proto: our own text with the public field numbers of Core ML's
// specification. Package modelproto converts them from and to a coreml.Model.
package modelpb
