//go:build unix

package platform

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir flushes the entries of the folder at path to disk, so that a file
// renamed into it is still there after a power cut. Where the system or the
// file system cannot flush a folder it does nothing.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some network and FUSE file systems answer EINVAL or ENOTSUP.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
