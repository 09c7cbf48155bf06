package platform

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
)

// Mmap maps the whole of f read-only and returns its bytes. The map stays
// valid after f is closed; release it with [Munmap]. An empty file gives an
// empty, non-nil slice.
//
// Writing to the bytes, reading them after Munmap, or reading past a point
// where another process has since cut the file ends the program: compare
// sizes before reading, and don't map files that others still write. Who reads
// much of a file, over minutes, does it within [Guard].
func Mmap(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("map %s: not a regular file", f.Name())
	}
	size := st.Size()
	if size == 0 {
		return []byte{}, nil
	}
	if size < 0 || size > math.MaxInt {
		return nil, fmt.Errorf("map %s: %d bytes do not fit the address space", f.Name(), size)
	}
	b, err := mmap(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", f.Name(), err)
	}
	return b, nil
}

// Munmap releases a map made by [Mmap]. b must be the slice Mmap returned,
// whole; it must not be used afterwards.
func Munmap(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	return munmap(b)
}

// Guard calls read and returns an error where it would end the program for
// bytes of a map that cannot be read: the file was cut off since, or its disk
// fails. It holds for what read does itself, on no other goroutine. All other
// panics pass through.
func Guard(read func()) (err error) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // which no other runtime error has
			err = errors.New("the file cannot be read any more: it was cut off while it was in use, or its disk fails")
		default:
			panic(r)
		}
	}()
	read()
	return nil
}

// Discard tells the system that the pages under b, which lies in a map made
// by [Mmap], are not needed soon. They leave the process's resident memory
// and are read again from the file when next touched, so b stays valid. It
// is advice: a system that cannot do it does nothing.
func Discard(b []byte) {
	if len(b) != 0 {
		discard(b)
	}
}
