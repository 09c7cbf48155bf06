package bundle

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Clone makes dst, which is not there yet, a file with the content of src:
// as a copy that shares its blocks where the file system can do that, else as
// a second name of the same file (a hard link), and only where neither works
// (another file system) by copying the bytes. progress may be nil.
//
// A hard link is the same file: whoever changes it in place changes both.
// Nothing here does; new files are made beside old ones.
func Clone(ctx context.Context, dst, src string, progress func(done, total int64)) error {
	src, err := filepath.EvalSymlinks(src) // or the link would be linked to
	if err != nil {
		return err
	}
	f, err := OpenRegular(src)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if progress == nil {
		progress = func(int64, int64) {}
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o777); err != nil {
		return err
	}
	if reflink(dst, src) == nil || os.Link(src, dst) == nil {
		progress(st.Size(), st.Size())
		return nil
	}
	return copyFile(ctx, dst, f, st.Size(), progress)
}

func copyFile(ctx context.Context, dst string, src io.Reader, size int64, progress func(done, total int64)) error {
	return WriteFile(dst, func(w io.Writer) error {
		for done := int64(0); ; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n, err := io.CopyN(w, src, 4<<20)
			done += n
			if n > 0 {
				progress(done, size)
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
