package platform

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func mmap(f *os.File, size int) ([]byte, error) {
	h, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	// The view keeps the mapping alive.
	defer windows.CloseHandle(h)
	addr, err := windows.MapViewOfFile(h, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// addr is memory that the garbage collector does not own, so it cannot
	// move; the detour keeps vet from taking it for a hidden Go pointer.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), nil
}

func munmap(b []byte) error {
	return os.NewSyscallError("UnmapViewOfFile", windows.UnmapViewOfFile(uintptr(unsafe.Pointer(&b[0]))))
}

func discard(b []byte) {
	// Unlocking pages that are not locked fails with ERROR_NOT_LOCKED and, as
	// documented, takes them out of the working set: the wanted effect.
	_ = windows.VirtualUnlock(uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
}
