package llamacpp

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"anemone/internal/checkpoint/gguf"
)

// reader reads keys until one is wrong, and keeps that error.
type reader struct {
	f    *gguf.File
	arch string // prefix of the architecture's keys, with a dot
	err  error
}

// fail keeps the first error.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// bad is the error for a value that is not what was wanted.
func (r *reader) bad(key string, found any, want string) {
	r.fail(fmt.Errorf("%s: key %q: found %v, want %s", r.f.Path(), key, found, want))
}

func (r *reader) text(key string) string {
	s, err := r.f.String(key)
	if err != nil {
		r.fail(err)
	}
	return s
}

func (r *reader) textOr(key, def string) string {
	if !r.f.Has(key) {
		return def
	}
	return r.text(key)
}

func (r *reader) boolOr(key string, def bool) bool {
	if !r.f.Has(key) {
		return def
	}
	b, err := r.f.Bool(key)
	if err != nil {
		r.fail(err)
	}
	return b
}

// int returns an integer from lo to hi. Of the architecture's keys, an array of
// equal ones, one for each layer, is taken for one of them.
func (r *reader) int(key string, lo, hi int) int {
	n, err := r.f.Int(key)
	if errors.Is(err, gguf.ErrType) && r.arch != "" && strings.HasPrefix(key, r.arch) {
		if all, arrayErr := r.f.Ints(key); arrayErr == nil && len(all) > 0 {
			err = nil
			n = all[0]
			for i, v := range all {
				if v != n {
					r.bad(fmt.Sprintf("%s[%d]", key, i), v, fmt.Sprintf("%d as before it: layers of different sizes are not supported", n))
					return lo
				}
			}
		}
	}
	switch {
	case err != nil:
		r.fail(err)
	case n < lo || n > hi:
		r.bad(key, n, fmt.Sprintf("%d to %d", lo, hi))
	default:
		return n
	}
	return lo
}

func (r *reader) intOr(key string, def, lo, hi int) int {
	if !r.f.Has(key) {
		return def
	}
	return r.int(key, lo, hi)
}

// float returns a finite number above 0.
func (r *reader) float(key string) float64 {
	v, err := r.f.Float(key)
	if errors.Is(err, gguf.ErrType) {
		if n, intErr := r.f.Int(key); intErr == nil {
			v, err = float64(n), nil
		}
	}
	switch {
	case err != nil:
		r.fail(err)
	case !(v > 0) || math.IsInf(v, 0):
		r.bad(key, v, "a number above 0")
	default:
		return v
	}
	return 1
}

func (r *reader) floatOr(key string, def float64) float64 {
	if !r.f.Has(key) {
		return def
	}
	return r.float(key)
}
