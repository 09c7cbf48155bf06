//go:build !unix && !windows

package platform

import (
	"errors"
	"os"
)

func mmap(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func munmap([]byte) error { return errors.ErrUnsupported }

func discard([]byte) {}
