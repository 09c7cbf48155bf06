//go:build unix && !linux && !solaris && !aix

package check

import (
	"runtime"
	"syscall"
)

// peakMemory returns the largest resident memory that this process has had,
// in bytes; 0 if the system does not say.
func peakMemory() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss) // bytes
	}
	return int64(u.Maxrss) << 10 // kilobytes
}
