// Package milpb holds the messages of an ML Program, generated from mil.proto:
// our own text with the public field numbers of Core ML's specification.
// Package milproto converts them from and to a mil.Program.
package milpb
