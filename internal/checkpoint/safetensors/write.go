package safetensors

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"anemone/internal/platform"
)

// Named is a tensor to be written.
type Named struct {
	Name  string
	DType DType
	Shape []int  // row-major; empty for a scalar
	Data  []byte // little endian, as long as type and shape say
}

// Write writes the tensors to a file at path, which appears whole or not at
// all and replaces one that was there. The order of tensors does not matter.
// metadata may be nil; Hugging Face's loaders want "format": "pt".
func Write(path string, tensors []Named, metadata map[string]string) error {
	order, header, err := encode(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replace(path, func(w io.Writer) error {
		if _, err := w.Write(header); err != nil {
			return err
		}
		for _, t := range order {
			if _, err := w.Write(t.Data); err != nil {
				return err
			}
		}
		return nil
	})
}

// encode returns the tensors in the order of the file, and its bytes before
// the first of them.
func encode(tensors []Named, metadata map[string]string) ([]Named, []byte, error) {
	order := slices.Clone(tensors)
	slices.SortFunc(order, func(a, b Named) int {
		if d := b.DType.rank() - a.DType.rank(); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	var out bytes.Buffer
	out.Write(make([]byte, 8)) // the length, filled in below
	comma := byte('{')
	entry := func(key string, value any) error {
		if !utf8.ValidString(key) {
			return fmt.Errorf("key %q is not UTF-8", key)
		}
		out.WriteByte(comma)
		comma = ','
		if err := appendJSON(&out, key); err != nil {
			return err
		}
		out.WriteByte(':')
		return appendJSON(&out, value)
	}
	if len(metadata) > 0 {
		for _, k := range slices.Sorted(maps.Keys(metadata)) {
			if !utf8.ValidString(k) || !utf8.ValidString(metadata[k]) {
				return nil, nil, fmt.Errorf("metadata %q: %q is not UTF-8", k, metadata[k])
			}
		}
		if err := entry(metadataKey, metadata); err != nil { // json sorts the keys
			return nil, nil, err
		}
	}
	seen := make(map[string]struct{}, len(order))
	var offset int64
	for _, t := range order {
		if _, dup := seen[t.Name]; dup {
			return nil, nil, fmt.Errorf("tensor %q is given twice", t.Name)
		}
		seen[t.Name] = struct{}{}
		if t.Name == metadataKey {
			return nil, nil, fmt.Errorf("no tensor can have the name %q", t.Name)
		}
		if t.DType.rank() < 0 {
			return nil, nil, fmt.Errorf("tensor %q: unknown dtype %q", t.Name, t.DType)
		}
		size, err := byteSize(t.DType, t.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if int64(len(t.Data)) != size {
			return nil, nil, fmt.Errorf("tensor %q: %d bytes of data, but %s of shape %v takes %d", t.Name, len(t.Data), t.DType, t.Shape, size)
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{} // [] and not null
		}
		err = entry(t.Name, struct {
			DType   DType    `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{t.DType, shape, [2]int64{offset, offset + size}})
		if err != nil {
			return nil, nil, err
		}
		offset += size
	}
	if comma == '{' {
		out.WriteByte('{')
	}
	out.WriteByte('}')
	for out.Len()%8 != 0 {
		out.WriteByte(' ')
	}
	header := out.Bytes()
	n := len(header) - 8
	if n > MaxHeader {
		return nil, nil, fmt.Errorf("header of %d bytes exceeds the limit of %d", n, MaxHeader)
	}
	binary.LittleEndian.PutUint64(header, uint64(n))
	return order, header, nil
}

// appendJSON writes v without the line end and without the escapes for HTML
// that the standard encoder adds, as the reference implementation does.
func appendJSON(out *bytes.Buffer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out.Truncate(out.Len() - 1)
	return nil
}

// replace lets write fill a temporary file beside path, flushes it to disk
// and renames it to path.
func replace(path string, write func(io.Writer) error) (err error) {
	f, err := createBeside(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if err := write(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return platform.SyncDir(filepath.Dir(path))
}

// createBeside is os.CreateTemp with the permissions of os.Create: a
// temporary file is private, the file that it becomes should not be.
func createBeside(path string) (*os.File, error) {
	dir, name := filepath.Split(path)
	for range 100 {
		temp := filepath.Join(dir, fmt.Sprintf(".%s.%08x.tmp", name, rand.Uint32()))
		f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("no free name for a temporary file beside %s", path)
}
