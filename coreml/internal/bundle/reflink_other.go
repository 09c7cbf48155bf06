//go:build !linux && !darwin

package bundle

import "errors"

func reflink(_, _ string) error { return errors.ErrUnsupported }
