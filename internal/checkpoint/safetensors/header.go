package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// MaxHeader is the longest header that is read or written, in bytes: the
// limit of the reference implementation.
const MaxHeader = 100_000_000

// metadataKey is the one key of the header that is no tensor.
const metadataKey = "__metadata__"

// Info describes one tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int // row-major; empty for a scalar
	// Offset is where the tensor's bytes begin, counted from the start of the
	// file, and Size is their number.
	Offset, Size int64
}

// Header is the checked header of a file.
type Header struct {
	// Tensors lie in the order of their offsets, without overlap or hole.
	Tensors []Info
	// Metadata holds what the file says about itself; nil when it says
	// nothing. Hugging Face writes "format": "pt", MLX "format": "mlx".
	Metadata map[string]string
	// Size is the number of bytes before the first tensor's.
	Size int64
}

// Parse reads and checks a header. data holds the beginning of the file, at
// least to the end of the header; size is the length of the whole file,
// which the tensors must fill exactly.
func Parse(data []byte, size int64) (*Header, error) {
	if strings.HasPrefix(string(data[:min(len(data), 32)]), "version https://git-lfs") {
		return nil, errors.New("this is a Git LFS pointer, not the file itself: fetch it with `git lfs pull`")
	}
	if size < 8 || len(data) < 8 {
		return nil, fmt.Errorf("file of %d bytes is too short for a safetensors header", size)
	}
	n := binary.LittleEndian.Uint64(data)
	if n > MaxHeader {
		return nil, fmt.Errorf("header of %d bytes exceeds the limit of %d: the file is damaged or is no safetensors file", n, MaxHeader)
	}
	end := int64(n) + 8
	if end > size || end > int64(len(data)) {
		return nil, fmt.Errorf("header ends at byte %d but the file has only %d: it is cut off or is no safetensors file", end, size)
	}
	h := &Header{Size: end}
	if err := parseJSON(data[8:end], h); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if err := h.place(size); err != nil {
		return nil, err
	}
	return h, nil
}

// place turns the header's relative ranges into file offsets and checks that
// they fit their shapes and cover the data exactly.
func (h *Header) place(size int64) error {
	// Empty tensors lie between others: at the same offset they come before
	// the one that begins there, whatever the names.
	slices.SortFunc(h.Tensors, func(a, b Info) int {
		switch {
		case a.Offset != b.Offset:
			return cmpInt(a.Offset, b.Offset)
		case a.Size != b.Size:
			return cmpInt(a.Size, b.Size)
		}
		return strings.Compare(a.Name, b.Name)
	})
	var next int64
	for i := range h.Tensors {
		t := &h.Tensors[i]
		want, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.Size != want {
			return fmt.Errorf("tensor %q: data_offsets hold %d bytes, but %s of shape %v takes %d", t.Name, t.Size, t.DType, t.Shape, want)
		}
		if t.Offset < next {
			return fmt.Errorf("tensor %q: data_offsets begin at %d, inside tensor %q, which ends at %d", t.Name, t.Offset, h.Tensors[i-1].Name, next)
		}
		if t.Offset > next {
			return fmt.Errorf("tensor %q: data_offsets begin at %d, after a hole that begins at %d", t.Name, t.Offset, next)
		}
		next = t.Offset + t.Size // no overflow: both come from one checked range
		t.Offset += h.Size
	}
	switch room := size - h.Size; {
	case next > room:
		return fmt.Errorf("the tensors take %d bytes but the file has only %d after its header: it is cut off (%d bytes are missing)", next, room, next-room)
	case next < room:
		return fmt.Errorf("%d bytes follow the last tensor", room-next)
	}
	return nil
}

func cmpInt(a, b int64) int {
	if a < b {
		return -1
	}
	return 1
}

// parseJSON fills h from the header's JSON. Offsets stay relative to the end
// of the header.
func parseJSON(b []byte, h *Header) error {
	s := scanner{b: b}
	seen := make(map[string]struct{})
	err := s.object(func(key string) error {
		if _, dup := seen[key]; dup {
			return fmt.Errorf("key %q occurs twice", key)
		}
		seen[key] = struct{}{}
		if key == metadataKey {
			return s.metadata(h)
		}
		t, err := s.tensor(key)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		h.Tensors = append(h.Tensors, t)
		return nil
	})
	if err != nil {
		return err
	}
	if s.space(); s.i < len(s.b) {
		return s.errorf("data after the header's object")
	}
	return nil
}

func (s *scanner) metadata(h *Header) error {
	if s.literal("null") { // what a writer without metadata may put
		return nil
	}
	h.Metadata = make(map[string]string)
	err := s.object(func(key string) error {
		if _, dup := h.Metadata[key]; dup {
			return fmt.Errorf("key %q occurs twice", key)
		}
		v, err := s.string()
		if err != nil {
			return fmt.Errorf("%q: %w", key, err)
		}
		h.Metadata[key] = v
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", metadataKey, err)
	}
	return nil
}

func (s *scanner) tensor(name string) (Info, error) {
	t := Info{Name: name}
	var seen struct{ dtype, shape, offsets bool }
	err := s.object(func(key string) error {
		var twice *bool
		switch key {
		case "dtype":
			twice = &seen.dtype
		case "shape":
			twice = &seen.shape
		case "data_offsets":
			twice = &seen.offsets
		default:
			return s.skip(0)
		}
		if *twice {
			return fmt.Errorf("%s occurs twice", key)
		}
		*twice = true
		switch key {
		case "dtype":
			v, err := s.string()
			if err != nil {
				return fmt.Errorf("dtype: %w", err)
			}
			t.DType = DType(v)
			if t.DType.rank() < 0 {
				return fmt.Errorf("unknown dtype %q", v)
			}
		case "shape":
			return s.array("shape", func(int) error {
				dim, err := s.uint()
				if err != nil {
					return fmt.Errorf("shape: %w", err)
				}
				if dim > math.MaxInt {
					return fmt.Errorf("shape: dimension %d is too large", dim)
				}
				t.Shape = append(t.Shape, int(dim))
				return nil
			})
		case "data_offsets":
			var r [2]uint64
			count := 0
			err := s.array("data_offsets", func(i int) error {
				if i >= len(r) {
					return errors.New("data_offsets: more than two numbers")
				}
				var err error
				if r[i], err = s.uint(); err != nil {
					return fmt.Errorf("data_offsets: %w", err)
				}
				count++
				return nil
			})
			if err != nil {
				return err
			}
			if count != len(r) {
				return fmt.Errorf("data_offsets: %d numbers, want a begin and an end", count)
			}
			if r[0] > r[1] {
				return fmt.Errorf("data_offsets begin at %d, after their end %d", r[0], r[1])
			}
			// Leaves room for the header's own length, so that no later sum
			// of offsets overflows.
			if r[1] > math.MaxInt64-MaxHeader-8 {
				return fmt.Errorf("data_offsets end at %d, which no file can hold", r[1])
			}
			t.Offset, t.Size = int64(r[0]), int64(r[1]-r[0])
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	switch {
	case !seen.dtype:
		return t, errors.New("no dtype")
	case !seen.shape:
		return t, errors.New("no shape")
	case !seen.offsets:
		return t, errors.New("no data_offsets")
	}
	return t, nil
}

// uint reads a JSON number that is an unsigned integer below 2^64.
func (s *scanner) uint() (uint64, error) {
	s.space()
	start := s.i
	var n uint64
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		hi, lo := bits.Mul64(n, 10)
		lo, carry := bits.Add64(lo, uint64(s.b[s.i]-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, s.errorf("number overflows 64 bits")
		}
		n = lo
		s.i++
	}
	switch {
	case s.i == start:
		return 0, s.errorf("want an unsigned integer")
	case s.b[start] == '0' && s.i > start+1:
		return 0, s.errorf("number with a leading zero")
	case s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|0x20 == 'e'):
		return 0, s.errorf("want an integer, without fraction or exponent")
	}
	return n, nil
}
