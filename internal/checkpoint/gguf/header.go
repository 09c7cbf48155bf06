package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	magic = "GGUF"

	// alignmentKey names the one entry that says how the file itself is laid
	// out; defaultAlignment holds without it, in bytes.
	alignmentKey     = "general.alignment"
	defaultAlignment = 32

	// maxName is the format's limit for the length of a key, in bytes. We
	// hold names of tensors to it as well: ggml's own limit for those, 63, is
	// one of its structures and not of the format.
	maxName = 65535

	// maxDims is ggml's limit.
	maxDims = 4

	// maxHeader bounds the header, in bytes, and maxElements an array in it.
	// Those of models have some ten million bytes and half a million elements,
	// or, with a whole tokenizer.json beside, several times as much. Without
	// bounds a file that is a hole of 40 GB, which takes no room on a disk,
	// could be one string, or an array with as many elements to look at.
	maxHeader   = 1 << 28
	maxElements = 1 << 24

	// Entries and tensors take at least so many bytes: the length of a name,
	// a type and one byte of value; the length of a name, the number of
	// dimensions, a type and an offset.
	minEntry  = 8 + 4 + 1
	minTensor = 8 + 4 + 4 + 8
)

// header is the checked header of a file. What it holds besides names is
// where things are: values are decoded when asked for.
type header struct {
	version int
	keys    []string // in the order of the file
	values  map[string]value
	tensors []Info
	index   map[string]int // of tensors, by name
}

// reader takes a header apart. Nothing is taken that the file does not have.
type reader struct {
	b  []byte
	at int
}

func (r *reader) left() int { return len(r.b) - r.at }

// take returns the next n bytes, which are said to be a what.
func (r *reader) take(n uint64, what string) ([]byte, error) {
	if n > uint64(r.left()) {
		return nil, fmt.Errorf("%s of %d bytes at byte %d reaches past the end of the file, which has %d: it is cut off or damaged", what, n, r.at, len(r.b))
	}
	if n > uint64(max(maxHeader-r.at, 0)) {
		return nil, fmt.Errorf("%s of %d bytes at byte %d: headers of more than %d bytes are not supported", what, n, r.at, maxHeader)
	}
	b := r.b[r.at : r.at+int(n)]
	r.at += int(n)
	return b, nil
}

func (r *reader) u32(what string) (uint32, error) {
	b, err := r.take(4, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (r *reader) u64(what string) (uint64, error) {
	b, err := r.take(8, what)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// name reads a key or the name of a tensor.
func (r *reader) name(what string) (string, error) {
	start := r.at
	n, err := r.u64("length of the " + what)
	if err != nil {
		return "", err
	}
	if n > maxName {
		return "", fmt.Errorf("%s of %d bytes at byte %d exceeds the limit of %d: the file is damaged", what, n, start, maxName)
	}
	b, err := r.take(n, what)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%s %.100q at byte %d is not UTF-8", what, b, start)
	}
	return string(b), nil
}

// parse reads and checks the header of a file, of which data is the whole.
func parse(data []byte) (*header, error) {
	switch begin := string(data[:min(len(data), 32)]); {
	case strings.HasPrefix(begin, "version https://git-lfs"):
		return nil, errors.New("this is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
	case !strings.HasPrefix(begin, magic):
		return nil, fmt.Errorf("begins with %q, want %q: this is no GGUF file", begin[:min(len(begin), len(magic))], magic)
	}
	r := &reader{b: data, at: len(magic)}
	version, err := r.u32("version")
	if err != nil {
		return nil, err
	}
	switch {
	case version == 2 || version == 3:
	case version == 1:
		return nil, errors.New("found version 1 of the format, which was in use for some days of August 2023 only; want 2 or 3: convert the model again")
	case version&0xffff == 0 && version != 0:
		return nil, fmt.Errorf("the file is big-endian (version %#x, the bytes reversed); want little-endian: gguf's own gguf_convert_endian.py turns one into the other", version)
	default:
		return nil, fmt.Errorf("found version %d of the format, want 2 or 3", version)
	}
	tensors, err := r.u64("number of tensors")
	if err != nil {
		return nil, err
	}
	entries, err := r.u64("number of metadata entries")
	if err != nil {
		return nil, err
	}
	// The counts size nothing, but a wrong one is better told as such.
	if most := uint64(r.left() / minEntry); entries > most {
		return nil, fmt.Errorf("%d metadata entries announced, but the file of %d bytes has room for at most %d: it is cut off or damaged", entries, len(data), most)
	}
	h := &header{version: int(version), values: make(map[string]value), index: make(map[string]int)}
	for i := range entries {
		if err := h.entry(r); err != nil {
			return nil, fmt.Errorf("metadata entry %d of %d: %w", i+1, entries, err)
		}
	}
	alignment, err := h.alignment(data)
	if err != nil {
		return nil, err
	}
	if most := uint64(r.left() / minTensor); tensors > most {
		return nil, fmt.Errorf("%d tensors announced, but the file of %d bytes has room for at most %d: it is cut off or damaged", tensors, len(data), most)
	}
	for i := range tensors {
		if err := h.tensor(r); err != nil {
			return nil, fmt.Errorf("tensor %d of %d: %w", i+1, tensors, err)
		}
	}
	return h, h.place(int64(r.at), int64(alignment), int64(len(data)))
}

// entry reads one pair of key and value.
func (h *header) entry(r *reader) error {
	start := r.at
	key, err := r.name("key")
	if err != nil {
		return err
	}
	if _, dup := h.values[key]; dup {
		return fmt.Errorf("key %.100q at byte %d occurs twice", key, start)
	}
	v, err := r.value()
	if err != nil {
		return fmt.Errorf("key %.100q: %w", key, err)
	}
	h.keys = append(h.keys, key)
	h.values[key] = v
	return nil
}

// alignment returns what the data of tensors is aligned to, in bytes.
func (h *header) alignment(data []byte) (uint32, error) {
	v, ok := h.values[alignmentKey]
	if !ok {
		return defaultAlignment, nil
	}
	if v.kind != kindUint32 {
		return 0, fmt.Errorf("key %q: found %s, want uint32", alignmentKey, v)
	}
	n := binary.LittleEndian.Uint32(data[v.at:])
	if bits.OnesCount32(n) != 1 {
		return 0, fmt.Errorf("key %q: found %d, want a power of two", alignmentKey, n)
	}
	return n, nil
}

// tensor reads what the header says of one tensor. Its offset stays relative
// to the data.
func (h *header) tensor(r *reader) error {
	start := r.at
	name, err := r.name("name")
	if err != nil {
		return err
	}
	if _, dup := h.index[name]; dup {
		return fmt.Errorf("name %.100q at byte %d occurs twice", name, start)
	}
	t, err := r.tensor()
	if err != nil {
		return fmt.Errorf("%.100q: %w", name, err)
	}
	t.Name = name
	h.index[name] = len(h.tensors)
	h.tensors = append(h.tensors, t)
	return nil
}

func (r *reader) tensor() (Info, error) {
	var t Info
	dims, err := r.u32("number of dimensions")
	if err != nil {
		return t, err
	}
	if dims > maxDims {
		return t, fmt.Errorf("found %d dimensions, want at most %d", dims, maxDims)
	}
	t.Shape = make([]int, dims)
	n := uint64(1)
	for i := range t.Shape {
		dim, err := r.u64("dimension")
		if err != nil {
			return t, err
		}
		if dim > math.MaxInt {
			return t, fmt.Errorf("dimension %d is too large", dim)
		}
		t.Shape[len(t.Shape)-1-i] = int(dim)
		hi, lo := bits.Mul64(n, dim)
		if hi != 0 {
			return t, errors.New("its number of elements overflows")
		}
		n = lo
	}
	number, err := r.u32("type")
	if err != nil {
		return t, err
	}
	t.Type = Type(number)
	l, known := layouts[t.Type]
	switch {
	case !known:
		return t, fmt.Errorf("%s is unknown: the file is damaged or newer than this program", t.Type)
	case l.bytes == 0:
		return t, fmt.Errorf("ggml reads no %s from files (any more): convert the model again", t.Type)
	}
	row := 1
	if dims > 0 {
		row = t.Shape[dims-1]
	}
	if row%l.elements != 0 {
		return t, fmt.Errorf("%s of shape %v: rows of %d are no whole number of blocks of %d", t.Type, t.Shape, row, l.elements)
	}
	hi, size := bits.Mul64(n/uint64(l.elements), uint64(l.bytes))
	if hi != 0 || size > math.MaxInt64 {
		return t, fmt.Errorf("%s of shape %v: its size overflows", t.Type, t.Shape)
	}
	t.Size = int64(size)
	offset, err := r.u64("offset")
	if err != nil {
		return t, err
	}
	if offset > math.MaxInt64 {
		return t, fmt.Errorf("offset %d is too large", offset)
	}
	t.Offset = int64(offset)
	return t, nil
}

// place turns the offsets of the header, which ends at byte end, into offsets
// in the file of the given size, and checks that the tensors lie within it and
// apart from each other.
func (h *header) place(end, alignment, size int64) error {
	data := (end + alignment - 1) &^ (alignment - 1)
	var last int64
	var lastName string
	for i := range h.tensors {
		t := &h.tensors[i]
		if t.Offset%alignment != 0 {
			return fmt.Errorf("tensor %.100q: offset %d is no multiple of the alignment, %d", t.Name, t.Offset, alignment)
		}
		if t.Offset > math.MaxInt64-data || t.Size > math.MaxInt64-data-t.Offset {
			return fmt.Errorf("tensor %.100q: offset %d and size %d overflow", t.Name, t.Offset, t.Size)
		}
		t.Offset += data
		if e := t.Offset + t.Size; e > last {
			last, lastName = e, t.Name
		}
	}
	if last > size {
		return fmt.Errorf("tensor %.100q ends at byte %d, but the file has only %d: it is cut off (%d bytes are missing)", lastName, last, size, last-size)
	}
	order := make([]*Info, 0, len(h.tensors))
	for i := range h.tensors {
		if h.tensors[i].Size > 0 {
			order = append(order, &h.tensors[i])
		}
	}
	// Stable: of two at one place, the second one listed is the intruder.
	slices.SortStableFunc(order, func(a, b *Info) int {
		switch {
		case a.Offset < b.Offset:
			return -1
		case a.Offset > b.Offset:
			return 1
		}
		return 0
	})
	for i := 1; i < len(order); i++ {
		if a, b := order[i-1], order[i]; b.Offset < a.Offset+a.Size {
			return fmt.Errorf("tensor %.100q begins at byte %d, inside tensor %.100q, which ends at %d", b.Name, b.Offset, a.Name, a.Offset+a.Size)
		}
	}
	return nil
}

// splitKey says in how many files the model is.
const splitKey = "split.count"

// checkWhole refuses a file that holds a part of a model only.
func (h *header) checkWhole(data []byte) error {
	v, ok := h.values[splitKey]
	if !ok || !v.kind.integer() {
		return nil
	}
	if n, ok := v.kind.int(data[v.at:]); ok && n > 1 {
		return fmt.Errorf("this is one of %d files that a model was split into (key %q): join them first with `llama-gguf-split --merge FIRST-FILE WHOLE.gguf`", n, splitKey)
	}
	return nil
}
