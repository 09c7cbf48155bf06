package bundle

import "golang.org/x/sys/unix"

// reflink makes dst share the blocks of src, as APFS can.
func reflink(dst, src string) error { return unix.Clonefile(src, dst, unix.CLONE_NOFOLLOW) }
