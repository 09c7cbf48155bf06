//go:build unix

package platform

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func mmap(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func munmap(b []byte) error { return unix.Munmap(b) }

func discard(b []byte) {
	// madvise wants a page-aligned start. Growing down to it is harmless: the
	// neighbour's bytes on that page are only read again. The end is rounded
	// up by the kernel.
	head := int(uintptr(unsafe.Pointer(&b[0])) % uintptr(os.Getpagesize()))
	_ = unix.Madvise(unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(&b[0]), -head)), len(b)+head), unix.MADV_DONTNEED)
}
