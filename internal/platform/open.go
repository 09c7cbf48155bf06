package platform

import (
	"errors"
	"io/fs"
	"os"
)

// Open opens a regular file for reading. Anything else is an error that says
// so: opening a pipe would wait for ever, and a device may have no end.
func Open(path string) (*os.File, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	return os.Open(path)
}
