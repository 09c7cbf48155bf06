//go:build !unix

package platform

import (
	"fmt"
	"os"
)

// SyncDir flushes the entries of the folder at path to disk, so that a file
// renamed into it is still there after a power cut. Where the system or the
// file system cannot flush a folder it does nothing.
func SyncDir(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return fmt.Errorf("sync %s: not a folder", path)
	}
	return nil
}
