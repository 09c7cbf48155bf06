// Package milproto converts between ML Programs in memory ([mil.Program]) and
// their protobuf form (package milpb), the one that models carry.
//
// The two forms differ in three ways. In protobuf, values refer to each other
// by name; in memory they are pointers, so [Decode] resolves every name and
// refuses one that is unknown, defined twice or used too early. Protobuf
// keeps functions, arguments and attributes in maps without order; in memory
// functions come in the order of the model's description and the rest by
// name. And an operation's name and a constant's value are attributes there,
// fields here.
//
// Constants in a file of weights are references (file and offset). Decode
// asks its caller for the weight behind one, [Encode] for the reference of a
// weight.
//
// What the in-memory form has no place for is dropped (documentation strings
// of values) or refused (tensors of unknown rank, 8-bit floats), never
// misread.
package milproto

//go:generate go -C ../../tools run ./genproto
